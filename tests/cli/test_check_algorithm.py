"""`seqdg check` of an algorithm, with the one that CONTRIBUTING.md shows."""

from __future__ import annotations

import re
from pathlib import Path

from command import seqdg

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def example(folder: Path, old: str = "", new: str = "", name: str = "pull") -> Path:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if '@register("pull")' in block)
    assert old in code
    file = folder / "pull.py"
    file.write_text(code.replace(old, new).replace('register("pull")', f'register("{name}")'))
    return file


def test_the_example_of_the_page_and_its_sequential_form_keep_the_contract(tmp_path):
    file = example(tmp_path)
    for name in ("pull", "s-pull"):
        done = seqdg("check", f"{file}:{name}")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{name} keeps the contract: ")


def test_a_registered_algorithm_is_checked_by_its_name():
    done = seqdg("check", "fo-s-mldg")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fo-s-mldg keeps the contract: ")


def test_a_benchmark_is_checked_by_its_name_as_data():
    done = seqdg("check", "rotated-mnist")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rotated-mnist comes with seqdg: ")


def test_a_learner_is_not_checked_as_an_algorithm(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "@register_learner(" in block)
    (tmp_path / "nearest.py").write_text(code.replace('"nearest-mean"', '"nearest-unchecked"'))
    done = seqdg("check", f"{tmp_path / 'nearest.py'}:nearest-unchecked")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nearest-unchecked is a learner, and the contract is for algorithms." in done.stderr


def test_what_breaks_the_contract_is_one_sentence(tmp_path):
    file = example(tmp_path, "losses.sum()", "losses.sum() / 0 * 0", "pull-nan")
    done = seqdg("check", f"{file}:pull-nan")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the loss of stage 1 is not a number." in done.stderr


def test_what_is_named_twice_is_run_once_and_a_failure_says_where_to_look(tmp_path):
    quick = ["--trials", "1", "--steps", "2", "--held-out", "0,0", "--workers", "0", "--out", tmp_path / "run"]
    done = seqdg("bench", "--algorithms", "agg,agg", *quick)
    assert done.returncode == 0, done.stderr
    assert "1 trials, 0 of them done" in done.stderr
    file = example(tmp_path, "net.losses(params, episode)", "net.lossess(params, episode)", "pull-typo")
    done = seqdg("bench", "--algorithms", f"{file}:pull-typo,agg", *quick)
    assert done.returncode == 1
    assert f"of pull-typo. `seqdg status {tmp_path / 'run'} --errors` shows where" in done.stderr
