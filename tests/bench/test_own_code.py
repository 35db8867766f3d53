"""A run never shows trials of an algorithm's old code as those of its new one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import seqdg
from command import Done
from command import seqdg as run_command
from seqdg.base.plugins import _later
from seqdg.core.registry import _factories, _origins, _wrappers
from seqdg.results import Store
from seqdg.training.trainer import _Run

MINE = """
from dataclasses import dataclass

from seqdg import Algorithm, register, setting

TWO = 2.0


@register("doubled")
@dataclass(frozen=True)
class Doubled(Algorithm):
    weight: float = setting(1.0)

    def loss(self, net, params, episode):
        return TWO * self.weight * net.losses(params, episode).mean()
"""
OTHER = """

@register("other")
@dataclass(frozen=True)
class Other(Algorithm):
    def loss(self, net, params, episode):
        return net.losses(params, episode).sum()
"""
CHAIN = """
    def extend(self, net, past, episode, i):
        return lambda params: past(params) + TWO * net.loss(params, episode.minibatch(i))
"""
WRAPPER = """
from dataclasses import dataclass

from seqdg import Wrapper, register
from seqdg.base import tree


@register("louder")
@dataclass(frozen=True)
class Louder(Wrapper):
    def gradient(self, net, params, episode):
        direction, loss = super().gradient(net, params, episode)
        return tree.scale(direction, 2.0), loss
"""
NAMES = ("doubled", "s-doubled", "other", "louder")


STUDY = """
[defaults]
benchmark = "rotated-mnist"
algorithms = ["FILE:doubled"]
variants = ["plain", "ema"]
trials = 1
steps = 2
evaluations = 2
held_out = ["0"]

[[parts]]
name = "digits/momentum"
draws = 2

[[parts]]
name = "digits/fixed"
path = "fixed"
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command on what a file of the user's says now, each time as a new process would. Of the command and of the
    text of a study, FILE is that file."""
    seqdg.list_algorithms()
    files = []

    def run_with(text: str, *words: object, study: str = "") -> Done:
        files.append(tmp_path / str(len(files)) / "mine.py")
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].write_text(text)
        (tmp_path / "study.toml").write_text(study.replace("FILE", str(files[-1])))
        with monkeypatch.context() as patch:
            for registry in (_factories, _origins, _wrappers):
                for name in NAMES:
                    patch.delitem(registry, name, raising=False)
            return run_command(*(str(word).replace("FILE", str(files[-1])) for word in words))

    yield run_with
    for registry in (_factories, _origins, _wrappers):
        for name in NAMES:
            registry.pop(name, None)


@pytest.fixture
def bench(run, tmp_path):
    def run_bench(text: str, algorithms: str = "FILE:doubled", *more: object) -> Done:
        return run(
            text, "bench", "--algorithms", algorithms, "--held-out", "0", "--trials", 1, "--steps", 2,
            "--workers", 0, "--out", tmp_path / "run", *more,
        )  # fmt: skip

    return run_bench


@pytest.fixture
def study(run, tmp_path):
    def run_study(text: str, *more: object) -> Done:
        words = (
            "study",
            tmp_path / "study.toml",
            "--workers",
            0,
            "--device",
            "cpu",
            "--out",
            tmp_path / "runs",
            "--trust",
            "FILE",
        )
        return run(text, *words, *more, study=STUDY)

    return run_study


def test_code_that_has_changed_is_refused_beside_trials_of_the_old(bench, tmp_path: Path):
    assert bench(MINE).returncode == 0
    for old, new in (("TWO = 2.0", "TWO = 3.0"), (".mean()", ".sum()")):
        for more in ([], ["--seed", 1]):
            done = bench(MINE.replace(old, new), "FILE:doubled", *more)
            assert done.returncode == 2
            assert done.stderr == (
                f"seqdg: The code of doubled has changed since 1 trial of it was stored in {tmp_path / 'run'}: trials "
                "of old and new code do not belong in one table. Give the new code another name in @register, to "
                "compare the two, or give --out another directory. Any change of its file, or of one beside it that it "
                "imports, counts, even a comment.\n"
            )
    done = bench(MINE.replace("TWO = 2.0", "TWO = 3.0").replace('"doubled"', '"other"'), "FILE:other")
    assert done.returncode == 0, "another name, another algorithm"


def test_code_that_has_changed_is_refused_under_other_wrappers_too(bench, tmp_path: Path):
    changed = MINE.replace("TWO = 2.0", "TWO = 3.0")
    assert bench(MINE, "FILE:doubled").returncode == 0
    done = bench(changed, "FILE:doubled+ema")
    assert done.returncode == 2, "a table of this run would show doubled beside another doubled+ema"
    assert done.stderr.startswith("seqdg: The code of doubled has changed since 1 trial of it was stored in")
    assert bench(MINE, "FILE:doubled+ema").returncode == 0
    assert "since 2 trials of it were stored" in bench(changed, "FILE:doubled+sma").stderr


def test_code_that_has_changed_is_refused_of_its_sequential_form_too(bench):
    chain = MINE.replace("Algorithm", "Chainable") + CHAIN
    assert bench(chain).returncode == 0
    done = bench(chain.replace("TWO = 2.0", "TWO = 3.0"), "FILE:s-doubled")
    assert done.stderr.startswith("seqdg: The code of doubled has changed since 1 trial of it was stored in")
    assert bench(chain, "FILE:s-doubled").returncode == 0


def test_code_of_a_wrapper_that_has_changed_is_refused(bench):
    assert bench(WRAPPER, "agg+FILE:louder").returncode == 0
    done = bench(WRAPPER.replace("2.0", "3.0"), "agg+FILE:louder+ema")
    assert done.stderr.startswith("seqdg: The code of louder has changed since 1 trial of it was stored in")
    assert bench(WRAPPER, "agg,agg+FILE:louder+ema").returncode == 0


def test_any_change_of_the_file_counts_and_is_said_to(bench):
    assert bench(MINE).returncode == 0
    for text in (MINE.replace("TWO = 2.0", "TWO = 2.0  # twice"), MINE + OTHER):
        done = bench(text)
        assert done.returncode == 2
        assert "or of one beside it that it imports, counts, even a comment" in done.stderr
    assert "1 trial, 1 of them done; 0 to run" in bench(MINE).stderr


def test_all_classes_of_a_file_can_be_run_one_after_the_other(bench):
    assert bench(MINE + OTHER).returncode == 0
    assert bench(MINE + OTHER, "agg,FILE:doubled,FILE:other+ema").returncode == 0


def test_the_code_of_trials_that_failed_may_be_fixed(bench):
    assert bench(MINE.replace("net.losses", "net.loses")).returncode == 1
    assert bench(MINE).returncode == 0


def test_a_checkpoint_of_old_code_is_not_used(bench, tmp_path: Path, monkeypatch):
    def train(text: str, out: str) -> str:
        assert bench(text, "FILE:doubled", "--out", tmp_path / out).returncode == 0
        (record,) = Store.open(tmp_path / out).records()
        return record.weights

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_Run, "_evaluate", interrupt)
        assert bench(MINE).returncode == 130
    changed = MINE.replace("TWO = 2.0", "TWO = 3.0")
    assert train(changed, "run") == train(changed, "whole") != train(MINE, "other")


@pytest.mark.slow
def test_a_file_imports_what_lies_beside_it_in_worker_processes_and_when_a_run_goes_on(
    bench, tmp_path: Path, monkeypatch
):
    def train(number: int, *more: object) -> Done:
        folder = tmp_path / str(number)  # where the file will be
        folder.mkdir()
        (folder / "helper_for_workers.py").write_text("TWO = 2.0\n")
        for known in (sys.modules, _later.files):
            monkeypatch.delitem(known, "helper_for_workers", raising=False)
        text = MINE.replace("TWO = 2.0", "from helper_for_workers import TWO") + OTHER
        return bench(text, "FILE:doubled,FILE:other", "--workers", 2, *more)

    for number, more, counts in ((0, (), "0 of them done; 2 to run"), (1, ("--trials", 2), "2 of them done; 2 to run")):
        done = train(number, *more)
        assert done.returncode == 0, done.stderr
        assert counts in done.stderr


def test_code_that_cannot_be_read_is_not_taken_for_a_change(bench, monkeypatch):
    assert bench(MINE).returncode == 0
    with monkeypatch.context() as patch:
        patch.setattr("seqdg.bench.reruns.hash_own_code", lambda kinds: "")
        assert bench(MINE).returncode == 0
    assert bench(MINE.replace("TWO = 2.0", "TWO = 3.0")).returncode == 2, "what was noted before stays"


def test_a_study_refuses_code_that_has_changed_before_it_trains(study, tmp_path: Path):
    done = study(MINE, "--parts", "digits/momentum")
    assert done.returncode == 0, done.stderr
    assert study(MINE, "--parts", "digits/momentum").returncode == 0
    for part in ("digits/momentum", "digits/fixed"):  # answers compare the parts with one another
        done = study(MINE.replace("TWO = 2.0", "TWO = 3.0"), "--parts", part)
        assert done.returncode == 2
        assert done.stderr == (
            "seqdg: The code of doubled has changed since 2 trials of it were stored in "
            f"{tmp_path / 'runs' / 'digits/momentum'}: trials of old and new code do not belong in one table. Give the "
            "new code another name in @register, to compare the two, or give --out another directory. Any change of "
            "its file, or of one beside it that it imports, counts, even a comment.\n"
        )
    assert not (tmp_path / "runs" / "digits/fixed").exists()
    assert study(MINE, "--parts", "digits/fixed").returncode == 0


def test_what_a_search_was_trained_by_counts_too(study, tmp_path: Path):
    assert study(MINE, "--parts", "digits/momentum").returncode == 0
    for file in (tmp_path / "runs" / "digits/momentum").glob("results.sqlite*"):
        file.unlink()
    done = study(MINE.replace("TWO = 2.0", "TWO = 3.0"))
    assert done.returncode == 2
    assert str(tmp_path / "runs" / "digits/momentum/search") in done.stderr


def test_soups_need_the_code_that_trained_their_weights(bench, run, tmp_path: Path):
    more = ["--save-weights", "--search", 2]
    assert bench(MINE, "FILE:doubled", *more).returncode == 0
    words = "soup", tmp_path / "run", "--algorithms", "FILE:doubled", "--device", "cpu"
    done = run(MINE.replace("TWO = 2.0", "TWO = 3.0"), *words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"seqdg: The code of doubled has changed since 2 trials of it were stored in {tmp_path / 'run'}: their weights "
        "need the code that trained them. Go back to it, or train the new code into another directory. Any change of "
        "its file, or of one beside it that it imports, counts, even a comment."
    )
    assert run(MINE, *words).returncode == 0


def test_trials_of_code_that_has_changed_are_not_trained_again(bench, run, tmp_path: Path):
    assert bench(MINE, "FILE:doubled,FILE:doubled+ema,agg").returncode == 0
    words = "rerun", tmp_path / "run", "--algorithms", "FILE:doubled,FILE:doubled+ema", "--device", "cpu"
    changed = MINE.replace("TWO = 2.0", "TWO = 3.0")
    done = run(changed, *words)
    assert done.returncode == 2
    assert done.stderr == (
        f"seqdg: The code of doubled has changed since 2 trials of it were stored in {tmp_path / 'run'}: the new code "
        "cannot repeat what the old code gave. Go back to the old code, or name trials of other algorithms: --list "
        "shows them all. Any change of its file, or of one beside it that it imports, counts, even a comment.\n"
    )
    keys = {record.algorithm: record.key for record in Store.open(tmp_path / "run").records()}
    assert run(changed, *words, keys["doubled+ema"]).returncode == 2
    assert "1 of 1 agree." in run(changed, *words, keys["agg"]).stdout
    assert "3 of 3 agree." in run(MINE, *words).stdout
