"""SIGTERM, by which a cluster takes a machine back, does what Ctrl-C does: nothing is lost, and a sentence says so."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.results import Store

GRACE = 20.0  # seconds: clusters give 30 before they send SIGKILL
WORDS = ["bench", "--algorithms", "mldg", "--held-out", "0", "--trials", "1", "--steps", "8000"]
STUDY = """
title = "One part"

[[parts]]
name = "digits/one"
benchmark = "rotated-mnist"
algorithms = ["mldg"]
held_out = ["0"]
trials = 1
steps = 8000
"""


def started(*words: object, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from seqdg.cli import main; main()", *map(str, words)]
    return subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def is_under_way(directory: Path) -> bool:
    """Whether a group is some steps on its way."""
    try:
        return any(group.step > 0 for group in Store.open(directory).running())
    except UsageError:
        return False


def terminate(
    run: subprocess.Popen[str], is_ready: Callable[[], bool], send: Callable[[int, int], None] = os.kill
) -> str:
    """Send SIGTERM as soon as the run is ready; assert that it ends in time, and return what it said."""
    until = time.monotonic() + 120
    while not is_ready():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < until, "it has not come so far"
        time.sleep(0.02)
    send(run.pid, signal.SIGTERM)
    began = time.monotonic()
    out, err = run.communicate(timeout=120)
    assert time.monotonic() - began < GRACE
    assert run.returncode == 143, err
    assert "Traceback" not in err
    assert not out
    return err


def read_bytes(directory: Path) -> list[tuple[object, ...]]:
    return [(r.key, r.status, r.weights, repr(r.history), r.losses) for r in Store.open(directory).records()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[object, ...]], str]:
    """Records and table of a run that nobody disturbs."""
    directory = tmp_path_factory.mktemp("whole")
    done = seqdg(*WORDS, "--workers", 0, "--out", directory)
    assert done.returncode == 0, done.stderr
    return read_bytes(directory), done.stdout


RAY = pytest.param(
    ("--executor", "ray", "--workers", 1), os.kill,
    marks=[pytest.mark.ray, pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not here.")],
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "send"), [(("--workers", 0), os.kill), (("--workers", 2), os.kill), (("--workers", 2), os.killpg), RAY]
)
def test_a_run_that_is_terminated_keeps_a_checkpoint_and_goes_on_to_the_same_bits(
    tmp_path: Path, where: tuple[object, ...], send: Callable[[int, int], None], undisturbed
) -> None:
    """Some clusters send it to the first process, others to every process of the job."""
    words = [*WORDS, *where, "--out", "run"]
    err = terminate(started(*words, cwd=tmp_path), lambda: is_under_way(tmp_path / "run"), send)
    sentence = f"interrupted by SIGTERM; 0 trials stored in run. To go on: seqdg {' '.join(map(str, words))}"
    assert sentence in err
    assert len(list((tmp_path / "run" / "checkpoints").glob("*.safetensors"))) == 1
    done = seqdg(*WORDS, "--workers", 0, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert read_bytes(tmp_path / "run") == undisturbed[0]
    assert done.stdout == undisturbed[1]


@pytest.mark.slow
def test_a_study_that_is_terminated_says_that_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    words, run = ("study", "study.toml", "--out", "all"), tmp_path / "all" / "digits" / "one"
    err = terminate(started(*words, cwd=tmp_path), lambda: is_under_way(run))
    assert "interrupted by SIGTERM; the same command continues where this one stopped." in err
    assert list((run / "checkpoints").glob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_fit_that_is_terminated_goes_on_to_the_same_model(tmp_path: Path, workers: int) -> None:
    rows = [f"{i * 37 % 101},{i * 53 % 97},{(i * 37 % 101 + i * 53 % 97) % 2},{'abc'[i % 3]}" for i in range(300)]
    (tmp_path / "table.csv").write_text("\n".join(["x,y,ill,site", *rows]) + "\n")
    words = [
        "fit", "table.csv", "--label", "ill", "--domain", "site", "--choose", "--candidates", "fo-mldg,agg",
        "--steps", 1500, "--hidden", 8, "--seeds", 1, "--device", "cpu", "--workers", workers, "--out",
    ]  # fmt: skip
    partial = tmp_path / "model.partial"
    err = terminate(started(*words, "model", cwd=tmp_path), lambda: (partial / "results.sqlite").exists(), os.killpg)
    assert "interrupted by SIGTERM" in err
    assert f"To go on: seqdg fit {' '.join(map(str, [*words[1:], 'model']))}" in err
    for name in ("model", "other"):
        done = seqdg(*words, name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, other = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.safetensors")}
        for name in ("model", "other")
    )
    assert one == other != {}


@pytest.mark.slow
def test_any_other_command_that_is_terminated_ends_with_a_word(tmp_path: Path) -> None:
    code = "import os, signal, seqdg.cli as c, seqdg.results as r\n"
    code += "r.read_status = lambda where: os.kill(os.getpid(), signal.SIGTERM)\nc.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "status", "run"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "seqdg: interrupted by SIGTERM.\n")
