"""`seqdg check` of an algorithm, with the one that CONTRIBUTING.md shows."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.bench import Request, load_benchmark

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


def test_a_learner_is_not_checked_as_an_algorithm(tmp_path, monkeypatch):
    monkeypatch.setattr("seqdg.bench.learners.contract._learners", {})  # what is registered here is forgotten
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


def test_a_file_without_a_name_asks_for_it_and_too_few_domains_are_told_where_to_stand(tmp_path):
    file = example(tmp_path, "losses.sum()", "losses.sum() / (episode.domains // 2)", "pull-two")
    assert f"Which algorithm of {file}? Give its name after a colon" in seqdg("check", file).stderr
    done = seqdg("check", f"{file}:pull-two")
    assert "with 1 source domain, which it accepts (`needs = 2` in the class refuses that), is not" in done.stderr


def test_an_error_in_a_file_of_ones_own_names_its_line(tmp_path):
    file = example(tmp_path, "net.losses(params, episode)", "net.lossess(params, episode)", "pull-line")
    number = next(i for i, line in enumerate(file.read_text().splitlines(), 1) if "lossess" in line)
    said = seqdg("check", f"{file}:pull-line").stderr
    assert f"'Net' object has no attribute 'lossess' (line {number} of {file.name})" in said


def test_a_name_that_is_nothing_says_what_a_check_takes():
    done = seqdg("check", "fo-s-mlgd")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "seqdg: There is no table, benchmark or algorithm 'fo-s-mlgd'. Did you mean 'fo-s-mldg'?"
    )
    assert "an algorithm of your own is FILE.py:fo-s-mlgd." in done.stderr


def test_what_is_named_twice_is_run_once_and_a_failure_says_where_to_look(tmp_path):
    quick = ["--trials", "1", "--steps", "2", "--held-out", "0,0", "--workers", "0", "--out", tmp_path / "run"]
    done = seqdg("bench", "--algorithms", "agg,agg", *quick)
    assert done.returncode == 0, done.stderr
    assert "1 trial, 0 of them done" in done.stderr
    file = example(tmp_path, "net.losses(params, episode)", "net.lossess(params, episode)", "pull-typo")
    done = seqdg("bench", "--algorithms", f"{file}:pull-typo,agg", *quick)
    assert done.returncode == 1
    assert "seqdg: 1 trial failed (AttributeError" in done.stderr
    assert f"of pull-typo. `seqdg status {tmp_path / 'run'} --errors` shows where" in done.stderr


@pytest.fixture(scope="module")
def shake(tmp_path_factory) -> Path:
    """The wrapper that the page shows, in a file of one's own."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if '@register("shake")' in block)
    assert len(code.splitlines()) <= 30
    file = tmp_path_factory.mktemp("wrapper") / "shake.py"
    file.write_text(code)
    return file


@pytest.mark.slow
def test_the_wrapper_of_the_page_keeps_the_contract_around_any_algorithm(shake):
    for name in (f"fo-s-mldg+{shake}:shake", f"{shake}:shake", f"group-dro+{shake}:shake+ema"):
        done = seqdg("check", name)
        assert done.returncode == 0, done.stderr
        assert "keeps the contract" in done.stdout


def test_the_wrapper_of_the_page_is_run_tabled_and_trained_again(shake, tmp_path):
    chain = f"fo-s-mldg+{shake}:shake+ema"
    words = ["--trials", "1", "--steps", "4", "--held-out", "0", "--workers", "0", "--out", tmp_path / "run"]
    settings = ["--set", "fo-s-mldg+shake.size=0.5", "--set", "fo-s-mldg+shake+ema.decay=0.9"]
    done = seqdg("bench", "--algorithms", f"fo-s-mldg,{chain}", *settings, *words)
    assert done.returncode == 0, done.stderr
    shown = seqdg("table", tmp_path / "run").stdout
    assert "fo-s-mldg+shake+ema" in shown
    done = seqdg("rerun", tmp_path / "run", "--sample", "2", "--algorithms", chain, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same  agrees") == 2


@pytest.mark.parametrize(
    ("algorithms", "settings", "words"),
    [
        ("agg+ema+mixup", (), "'mixup' after 'ema'"),
        ("agg+emma", (), "There is no wrapper 'emma'. Did you mean 'ema'?"),
        ("agg+swad", (), "agg+swad needs at least 9 evaluations on source validation, but there are 6"),
        ("agg+swad", ("agg.steps=5",), "5, one for each step: raise them (--steps 9), or choose +ema or +sma"),
        ("agg+ema", ("agg+ema.dacey=1",), "Did you mean 'decay'"),
        ("agg+ema", ("agg+sma.since=0.1",), "This run has no algorithm 'agg+sma'"),
        ("rsc+mixup", (), "drop +mixup"),
        ("agg", ("agg.schedule=cosin",), "Did you mean 'cosine'"),
        ("agg", ("agg.warmup=2",), "warmup is 2.0, but it must be a share of the steps"),
    ],
)
def test_a_chain_that_cannot_train_is_one_sentence_before_anything_is_trained(algorithms, settings, words, tmp_path):
    more = [word for text in settings for word in ("--set", text)]
    done = seqdg("bench", "--algorithms", algorithms, *more, "--out", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_lists_show_wrappers():
    both, wrappers = seqdg("list", "algorithms").stdout, seqdg("list", "wrappers").stdout
    assert "Wrappers, each around any algorithm (agg+ema, fo-s-mldg+mixup+sma), in this order:" in both
    assert wrappers in both
    assert [line.split()[0] for line in wrappers.splitlines() if "+shake" not in line] == [
        "+mixup", "+l2sp", "+sagm", "+sam", "+lp", "+lora", "+ema", "+sma", "+swad", "+wise",
    ]  # fmt: skip
    found = json.loads(seqdg("list", "wrappers", "--json").stdout)
    assert {"name": "+ema", "settings": {"decay": "0.99", "grows": "false"}}.items() <= next(
        e.items() for e in found if e["name"] == "+ema"
    )


def test_a_benchmark_s_file_has_a_schedule_and_tables_of_chains(tmp_path):
    text = (files("seqdg") / "benchmarks" / "rotated-mnist.toml").read_text()
    text = text.replace("evaluations = 6", 'evaluations = 6\nschedule = "cosine"\nwarmup = 0.1')
    file = tmp_path / "mine.toml"
    file.write_text(text + '\n[algorithms."fo-s-mldg+ema"]\ndecay = 0.5\nlr = 0.01\n')
    benchmark = load_benchmark(str(file))
    request = Request(algorithms=["fo-s-mldg", "fo-s-mldg+ema"])
    plain, chain = benchmark.list_candidates(request, ["0", "15", "30"])
    assert (plain.protocol.schedule, plain.protocol.warmup, plain.protocol.lr) == ("cosine", 0.1, 0.05)
    assert (chain.protocol.lr, dict(chain.settings)["decay"], dict(chain.settings)["alpha"]) == (0.01, "0.5", "0.3")
    file.write_text(text + '\n[algorithms."fo-s-mldg+emma"]\ndecay = 0.5\n')
    with pytest.raises(UsageError, match="Did you mean 'ema'"):
        load_benchmark(str(file)).list_candidates(Request(algorithms=["agg"]), ["0", "15", "30"])


def test_more_domains_a_step_than_there_are_to_learn_from_are_seen_before_training(seqdg, features, benchmark_file):
    done = seqdg("check", benchmark_file(protocol="domains_per_step = 3"), "--data", features)
    assert done.returncode == 2
    assert "A step is to meet 3 domains (domains_per_step), but mine has 2 to learn from" in done.stderr
    done = seqdg("check", benchmark_file(protocol="[algorithms.agg]\ndomains_per_step = 3"), "--data", features)
    assert "A step of agg is to meet 3 domains" in done.stderr
    assert seqdg("check", benchmark_file(protocol="domains_per_step = 2"), "--data", features).returncode == 0
