"""A run never shows trials of an algorithm's old code as those of its new one."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqdg
from command import Done
from command import seqdg as run_command
from seqdg.core.registry import _factories, _origins

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


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Run what a file of the user's says now, each time as a new process would."""
    seqdg.list_algorithms()
    files = []

    def run(text: str, algorithms: str = "{}:doubled", *more: object) -> Done:
        files.append(tmp_path / str(len(files)) / "mine.py")
        files[-1].parent.mkdir()
        files[-1].write_text(text)
        with monkeypatch.context() as patch:
            for registry in (_factories, _origins):
                for name in ("doubled", "other"):
                    patch.delitem(registry, name, raising=False)
            return run_command(
                "bench", "--algorithms", algorithms.format(files[-1]), "--held-out", "0", "--trials", 1,
                "--steps", 2, "--workers", 0, "--out", tmp_path / "run", *more,
            )  # fmt: skip

    yield run
    for registry in (_factories, _origins):
        registry.pop("doubled", None)
        registry.pop("other", None)


def test_code_that_has_changed_is_refused_beside_trials_of_the_old(bench, tmp_path: Path):
    assert bench(MINE).returncode == 0
    for old, new in (("TWO = 2.0", "TWO = 3.0"), (".mean()", ".sum()")):
        for more in ([], ["--seed", 1]):
            done = bench(MINE.replace(old, new), "{}:doubled", *more)
            assert done.returncode == 2
            assert done.stderr == (
                f"seqdg: The code of doubled has changed since 1 trial of it was stored in {tmp_path / 'run'}: trials "
                "of old and new code do not belong in one table. Give the new code another name in @register, to "
                "compare the two, or give --out another directory.\n"
            )
    done = bench(MINE.replace("TWO = 2.0", "TWO = 3.0").replace('"doubled"', '"other"'), "{}:other")
    assert done.returncode == 0, "another name, another algorithm"


def test_what_changes_no_number_is_no_change(bench):
    assert bench(MINE).returncode == 0
    for text in (MINE.replace("TWO = 2.0", "TWO = 2.0  # twice"), MINE + OTHER):
        done = bench(text)
        assert done.returncode == 0, done.stderr
        assert "1 trial, 1 of them done; 0 to run" in done.stderr
    assert bench(MINE + OTHER, "agg,{0}:doubled,{0}:other+ema").returncode == 0


def test_the_code_of_trials_that_failed_may_be_mended(bench):
    assert bench(MINE.replace("net.losses", "net.loses")).returncode == 1
    assert bench(MINE).returncode == 0


def test_code_that_cannot_be_read_is_not_taken_for_a_change(bench, monkeypatch):
    assert bench(MINE).returncode == 0
    with monkeypatch.context() as patch:
        patch.setattr("seqdg.bench.own_code.read_code", lambda name, learner: "")
        assert bench(MINE).returncode == 0
    assert bench(MINE.replace("TWO = 2.0", "TWO = 3.0")).returncode == 2, "what was noted before stays"
