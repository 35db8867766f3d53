"""A net of the user's own in a benchmark: `--net FILE.py:FUNCTION`, or in a benchmark's file that is trusted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import seqdg
from command import Done
from command import seqdg as run_command
from seqdg.base import UsageError
from seqdg.results import Store

MINE = """
from torch import nn

def build(input_shape, classes):
    width = input_shape[0]
    return nn.Sequential(nn.Linear(width, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, classes))

def images(input_shape, classes):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 14 * 14, classes))
    net.normalization = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    return net

def broken(input_shape, classes):
    raise ValueError("no weights here")

def wide(input_shape, classes):
    return nn.Linear(input_shape[0], classes + 1)

def number(input_shape, classes):
    return 3

def narrow(input_shape, classes):
    return nn.Linear(5, classes)
"""
_folders = itertools.count()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The user's file: another for each test, as a process imports a file once."""
    path = tmp_path / str(next(_folders)) / "mine.py"
    path.parent.mkdir()
    path.write_text(MINE)
    return path


@pytest.fixture
def bench(file: Path, tmp_path: Path) -> Callable[..., Done]:
    def run(net: str, *more: object, benchmark: object = "rotated-mnist") -> Done:
        return run_command(
            "bench", benchmark, "--net", f"{file}:{net}", "--algorithms", "agg,fo-s-mldg", "--held-out", "0",
            "--trials", 2, "--steps", 2, "--workers", 0, "--out", tmp_path / "run", *more,
        )  # fmt: skip

    return run


def test_a_function_of_the_users_builds_the_net_and_its_hash_is_part_of_the_trial(bench, file, tmp_path):
    done = bench("build")
    assert done.returncode == 0, done.stderr
    records = Store.open(tmp_path / "run").records()
    assert {r.status for r in records} == {"done"}
    about = records[0].description["net"]
    assert about["name"] == "mine.py:build"
    assert len(about["code"]) == 64
    again = bench("build")
    assert "4 trials, 4 of them done" in again.stderr
    back = run_command("rerun", tmp_path / "run", "--sample", 1, "--net", f"{file}:build")
    assert back.returncode == 0, back.stderr + back.stdout
    lost = run_command("rerun", tmp_path / "run", "--sample", 1)
    assert (lost.returncode, "Say where it is: --net FILE.py:build." in lost.stderr) == (2, True)


def test_trials_of_changed_code_are_refused(bench, file, tmp_path):
    assert bench("build").returncode == 0
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(MINE.replace("GELU", "ReLU"))
    done = run_command(
        "bench", "--net", f"{other}:build", "--algorithms", "agg", "--held-out", "0", "--trials", 1, "--steps", 2,
        "--workers", 0, "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.returncode == 2
    assert "The code of mine.py:build has changed since trials of it were stored" in done.stderr


def test_the_settings_of_a_net_are_set_like_those_of_an_algorithm(tmp_path):
    results = seqdg.run(
        "rotated-mnist", ["agg"], held_out=["0"], trials=1, steps=2, net="mlp",
        settings={"net": {"hidden": (6, 5)}, "agg": {"lr": 0.1}}, out=tmp_path, progress=False,
    )  # fmt: skip
    assert results.records()[0].description["net"]["hidden"] == [6, 5]
    done = run_command("bench", "--set", "net.width=3", "--out", tmp_path / "other")
    assert (done.returncode, "The net has no setting 'width'" in done.stderr) == (2, True), done.stderr
    done = run_command("bench", "--set", "net.size=small", "--out", tmp_path / "other")
    assert (done.returncode, "net.size is 'small', but it must be a whole number." in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("net", "sentence"),
    [
        ("broken", "raises ValueError: no weights here"),
        ("wide", "gives [2, 11] for 2 rows, but it must give a tensor [2, 10]"),
        ("number", "returns a int, but it must return an nn.Module."),
        ("narrow", "cannot read rows of shape (196,), float32 ("),
        ("nothing", "has no function 'nothing'"),
    ],
)
def test_what_is_wrong_with_a_net_is_one_sentence(bench, net, sentence):
    done = bench(net)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_benchmarks_file_that_names_code_is_trusted_or_refused(file, tmp_path):
    digits = (Path(seqdg.__file__).parent / "benchmarks" / "rotated-mnist.toml").read_text()
    head, _, rest = digits.partition("[net]")
    text = f'{head}[net]\nname = "{file}:build"\n[protocol]{rest.partition("[protocol]")[2]}'
    (tmp_path / "mine.toml").write_text(text)
    words = ["bench", tmp_path / "mine.toml", "--algorithms", "agg", "--held-out", "0", "--trials", 1, "--steps", 1]
    words += ["--workers", 0, "--out", tmp_path / "run"]
    refused = run_command(*words)
    assert (refused.returncode, f"add --trust {file}" in refused.stderr) == (2, True), refused.stderr
    done = run_command(*words, "--trust", file)
    assert done.returncode == 0, done.stderr


def test_a_net_of_ones_own_says_how_images_are_normalized(file):
    spec = seqdg.nets.NetSpec(f"{file}:images")
    built = seqdg.nets.build_net(spec, (3, 16, 16), 2, torch.Generator().manual_seed(0))
    assert built.normalization.mean == (0.5, 0.5, 0.5)
    assert not any(getattr(layer, "inplace", False) for layer in built.module.modules())
    before = torch.get_rng_state()
    again = seqdg.nets.build_net(spec, (3, 16, 16), 2, torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, built.module.state_dict().values(), again.module.state_dict().values()))
    with pytest.raises(UsageError, match="'dropout' is not a setting of"):
        seqdg.nets.NetSpec(f"{file}:images", dropout=0.1)


def example(folder: Path, text: str) -> Path:
    """Write the block of CONTRIBUTING.md that holds this text into a file."""
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if text in block)
    path = folder / "example.py"
    path.write_text(code)
    return path


def test_the_contract_is_checked_with_the_rows_and_the_net_of_a_benchmark(tmp_path):
    teacher = Path(__file__).with_name("teacher.py")  # which reads the rows of that benchmark alone
    words = [
        "check",
        f"{teacher}:follow-teacher",
        "--benchmark",
        "rotated-mnist",
        "--net",
        "mlp",
        "--set",
        "net.hidden=6",
    ]
    done = run_command(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "each with the network and rows of rotated-mnist" in done.stdout


def test_the_net_that_the_page_for_contributors_shows_trains(tmp_path):
    net = example(tmp_path, "def build(")
    results = seqdg.run(
        "rotated-mnist", ["agg"], held_out=["0"], trials=1, steps=2, net=f"{net}:build", out=tmp_path, progress=False
    )
    assert results.records()[0].status == "done"
