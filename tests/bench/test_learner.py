"""A learner that is no neural net, in a user's own file, runs, resumes and is tabled like the algorithms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from command import Done, seqdg
from digits import BENCHMARK, TASK
from seqdg.base import Folder, UsageError
from seqdg.bench import (
    STACK,
    ArrayLearner,
    Draft,
    Group,
    Request,
    RowsInMemory,
    Session,
    Task,
    Trial,
    find_learner,
    register_learner,
)
from seqdg.core import Range
from seqdg.results import DONE, Store
from seqdg.training import Saving, split_rows

NEAREST = '''
"""Assign each row to the class with the nearest mean."""

import numpy as np

from seqdg.bench.learners.array_learner import ArrayLearner
from seqdg.bench.learners.contract import register_learner


@register_learner("nearest-mean")
class NearestMean(ArrayLearner):
    """softmax of -|x - m_c|^2 / temperature, with m_c the mean of class c over all sources, or of their means."""

    settings = {"temperature": 5.0, "by_domain": False}

    def fit(self, x, y, domain, classes, seed, *, temperature, by_domain):
        parts = [domain == d for d in np.unique(domain)] if by_domain else [np.ones(len(y), bool)]
        means = np.stack([np.mean([x[(y == c) & p].mean(0) for p in parts], 0) for c in range(classes)])

        def predict(rows):
            scores = -((rows[:, None] - means) ** 2).sum(-1) / temperature
            odds = np.exp(scores - scores.max(1, keepdims=True))
            return odds / odds.sum(1, keepdims=True)

        return predict
'''
NAME = "./nearest.py:nearest-mean"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: two files that define the same learner would be refused."""
    folder = tmp_path_factory.mktemp("nearest")
    (folder / "nearest.py").write_text(NEAREST)
    return folder


def bench(folder: Path, *words: object, out: str = "run", trials: int = 2) -> Done:
    return seqdg(
        "bench", "rotated-mnist", "--algorithms", f"agg,{NAME}", "--held-out", "0,75", "--trials", trials,
        "--steps", 20, "--device", "cpu", "--out", out, *words, cwd=folder,
    )  # fmt: skip


def succeed(done: Done) -> Done:
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def accuracies(folder: Path, out: str = "run") -> dict[str, float]:
    records = Store.open(folder / out).records()
    assert all(r.status == DONE for r in records)
    return {r.key: r.history[-1].held_out["accuracy"][0] for r in records if r.algorithm == "nearest-mean"}


@pytest.mark.slow
def test_it_stands_in_one_paired_table_and_is_rerun(folder: Path) -> None:
    succeed(bench(folder, "--workers", 0))
    assert len(accuracies(folder)) == 4
    cells = json.loads(succeed(seqdg("table", "run", "--baseline", "agg", "--format", "json", cwd=folder)).stdout)
    average = {c["algorithm"]: c for c in cells if c["held_out"] == "average"}
    assert average["nearest-mean"]["trials"] == 2
    assert average["nearest-mean"]["against"]["baseline"] == "agg"
    assert average["nearest-mean"]["against"]["pairs"] == 4
    succeed(seqdg("report", "run", cwd=folder))
    again = succeed(seqdg("rerun", "run", "--sample", 8, "--algorithms", NAME, "--device", "cpu", cwd=folder))
    assert "8 of 8 agree" in again.stdout
    assert "within" not in again.stdout, "every number must be the same"


@pytest.mark.slow
def test_worker_processes_find_it_and_give_the_same(folder: Path) -> None:
    succeed(bench(folder, "--workers", 0, out="here"))
    succeed(bench(folder, "--workers", 2, out="workers"))
    assert accuracies(folder, "here") == accuracies(folder, "workers") != {}


@pytest.mark.slow
def test_a_finished_trial_of_it_is_not_run_again(folder: Path) -> None:
    succeed(bench(folder, "--workers", 0, trials=1, out="resumed"))
    before = {r.key: r.finished for r in Store.open(folder / "resumed").records()}
    again = succeed(bench(folder, "--workers", 0, trials=2, out="resumed"))
    assert "8 trials, 4 of them done" in again.stderr
    after = {r.key: r.finished for r in Store.open(folder / "resumed").records()}
    assert before.items() <= after.items()
    assert len(after) == 8


@pytest.mark.slow
def test_its_settings_are_checked_and_described(folder: Path) -> None:
    succeed(
        bench(
            folder,
            "--workers",
            0,
            "--set",
            "nearest-mean.temperature=2",
            "--set",
            "nearest-mean.by_domain=true",
            out="set",
        )
    )
    records = [r for r in Store.open(folder / "set").records() if r.algorithm == "nearest-mean"]
    assert all(r.description["settings"] == {"temperature": "2.0", "by_domain": "true"} for r in records)
    succeed(bench(folder, "--workers", 0, out="plain"))
    assert sorted(accuracies(folder, "set").values()) != sorted(accuracies(folder, "plain").values()), (
        "the settings reach the learner"
    )
    for text, words in (
        ("temperature=warm", "temperature is 'warm', but it must be a number"),
        ("by_domain=perhaps", "by_domain is 'perhaps', but it must be true or false"),
        ("warmth=2", "nearest-mean has no setting 'warmth'"),
    ):
        refused = bench(folder, "--set", f"nearest-mean.{text}", out="refused")
        assert refused.returncode == 2
        assert words in refused.stderr


def test_the_same_value_written_otherwise_is_the_same_trial(folder: Path) -> None:
    succeed(bench(folder, "--workers", 0, "--set", "nearest-mean.temperature=2", out="same"))
    again = succeed(bench(folder, "--workers", 0, "--set", "nearest-mean.temperature=2.00", out="same"))
    assert "8 trials, 8 of them done" in again.stderr


class Spy(ArrayLearner):
    """Keeps what it is given, and predicts the shares of the classes."""

    def fit(self, x, y, domain, classes, seed, **settings):
        self.seen = x, y, domain, seed
        shares = np.bincount(y, minlength=classes) / len(y)
        return lambda rows: np.tile(shares, (len(rows), 1))


def make_trial(held_out: str = "75", seed: int = 3) -> Trial:
    return TASK.make_trial("spy", {}, BENCHMARK.protocol, (held_out,), seed)


def test_it_is_fitted_to_the_training_rows_of_the_sources_alone() -> None:
    spy, trial, dataset = Spy(), make_trial(), TASK.dataset()
    record = spy.train_one(trial, TASK)[1]
    split = split_rows(dataset, trial.protocol, trial.held_out, trial.seed)
    rows = torch.cat(split.train)
    x, y, domain, seed = spy.seen
    assert seed == trial.seed
    assert np.array_equal(x, dataset.x[rows].numpy())
    assert np.array_equal(y, dataset.y[rows].numpy())
    names = [n for n in dataset.domains if n != "75"]
    assert [names[d] for d in domain] == [dataset.domains[d] for d in dataset.domain[rows]]
    shares = np.bincount(y, minlength=len(dataset.classes)) / len(y)
    for part, value in zip(split.test, record.history[0].held_out["log_loss"], strict=True):
        assert value == pytest.approx(-np.log(shares[dataset.y[part].numpy()]).mean())


def test_a_domain_without_validation_rows_does_not_make_it_diverge(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial()
    split = split_rows(TASK.dataset(), trial.protocol, trial.held_out, trial.seed)
    empty = split._replace(validation=(split.validation[0][:0], *split.validation[1:]))
    monkeypatch.setattr("seqdg.bench.learners.array_learner.split_rows", lambda *about: empty)
    assert Spy().train_one(trial, TASK)[1].status == DONE


class Same(Spy):
    """A spy to whom the seed makes no difference, and who counts its fits."""

    draws = False
    fits = 0

    def fit(self, x, y, domain, classes, seed, **settings):
        self.fits += 1
        return super().fit(x, y, domain, classes, seed, **settings)


OFFICIAL = replace(BENCHMARK.protocol, split="official")


def make_seeds(count: int = 3) -> Group:
    """Make a group of trials that differ in the seed alone, with a split that no seed decides."""
    return Group(tuple(replace(make_trial(seed=seed), protocol=OFFICIAL) for seed in range(count)))


@pytest.fixture
def official() -> Task:
    """The digits with a split of their own: every fifth row validates."""
    dataset = replace(TASK.dataset(), validation=torch.arange(len(TASK.dataset().y)) % 5 == 0)
    return replace(TASK, rows=RowsInMemory(dataset))


def test_an_interruption_after_a_fit_leaves_its_records_and_one_during_a_fit_leaves_none(official: Task) -> None:
    class Interruption(BaseException):
        """Like KeyboardInterrupt, which would end the tests."""

    def interrupt(step: int) -> None:
        raise Interruption

    group = make_seeds()
    records = Same().train(group, Session(official), interrupt)
    assert [(r.key, r.status) for r in records] == [(t.key, DONE) for t in group.trials]

    class Interrupted(Same):
        def fit(self, x, y, domain, classes, seed, **settings):
            raise Interruption

    with pytest.raises(Interruption):
        Interrupted().train(group, Session(official))


def test_trials_that_share_a_fit_have_the_numbers_that_they_have_alone(official: Task) -> None:
    group, learner = make_seeds(), Same()
    together = learner.train(group, Session(official))
    assert learner.fits == 1
    for trial, record in zip(group.trials, together, strict=True):
        assert record.history == learner.train_one(trial, official)[1].history
    fifths = [r.history[0].held_out_fifth["accuracy"] for r in together]
    assert fifths[0] != fifths[1], "each seed draws its own fifth of the held-out rows"


def test_trials_that_share_a_fit_each_keep_predictions(official: Task, tmp_path: Path) -> None:
    group, learner = make_seeds(), Same()
    learner.train(group, Session(official, saving=Saving(Folder(tmp_path), predictions=True)))
    assert learner.fits == 1
    kept = {path.name for path in (tmp_path / "predictions").iterdir()}
    assert kept == {f"{t.key}.{step}.safetensors" for t in group.trials for step in ("chosen", "last")}


def test_two_learners_and_a_learner_and_an_algorithm_cannot_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqdg.bench.learners.contract._learners", {})
    register_learner("spy")(Spy)
    assert isinstance(find_learner("spy"), Spy)
    register_learner("spy")(Spy)

    class Other(Spy):
        pass

    with pytest.raises(UsageError, match="Two learners are named 'spy'"):
        register_learner("spy")(Other)
    with pytest.raises(UsageError, match="'agg' is the name of an algorithm"):
        register_learner("agg")(Other)


class Tunable(ArrayLearner):
    settings: ClassVar = {"width": 1.0, "count": 3, "kind": "near", "plain": 2.0}
    rules: ClassVar = {
        "width": {"above": 0.0, "search": Range(0.1, 10.0)},
        "count": {"least": 1, "search": Range(1, 9, log=False)},
        "kind": {"choices": ("near", "far"), "search": ("near", "far")},
    }

    def fit(self, x, y, domain, classes, seed, **settings):
        raise AssertionError


def test_a_search_draws_the_settings_of_a_learner_that_have_a_range():
    draft = Draft("tunable", BENCHMARK.protocol, count=30)
    found = Tunable().propose(draft)
    drawn = [dict(c.settings) for c in found]
    assert drawn[0] == {"width": "1.0", "count": "3", "kind": "near", "plain": "2.0"}
    assert len({d["width"] for d in drawn}) == len(found) == 30
    assert all(0.1 <= float(d["width"]) <= 10 for d in drawn)
    assert {d["count"] for d in drawn} == {str(n) for n in range(1, 10)}
    assert {d["kind"] for d in drawn} == {"near", "far"}
    assert all(d["plain"] == "2.0" and c.protocol == BENCHMARK.protocol for d, c in zip(drawn, found, strict=True))
    assert Tunable().propose(replace(draft, count=5)) == found[:5]
    fixed = Tunable().propose(replace(draft, settings={"width": "2", "kind": "far"}))
    assert {(dict(c.settings)["width"], dict(c.settings)["kind"]) for c in fixed} == {("2.0", "far")}
    assert len(fixed) == 9
    assert len(find_learner("dica").propose(replace(draft, name="dica"))) == 30


def test_a_setting_outside_of_its_rules_is_refused():
    for name, text, words in (("width", "0", "width is 0"), ("count", "1.5", "whole number"), ("kind", "odd", "odd")):
        with pytest.raises(UsageError, match=words):
            Tunable().propose(Draft("tunable", BENCHMARK.protocol, settings={name: text}))
    with pytest.raises(UsageError, match="tunable has no setting 'breadth'"):
        Tunable().propose(Draft("tunable", BENCHMARK.protocol, settings={"breadth": "1"}))


def test_a_learner_that_trains_no_net_is_not_wrapped():
    with pytest.raises(UsageError, match="dica trains no net"):
        BENCHMARK.plan(TASK, Request(algorithms=("dica+ema",), held_out=("0",), trials=1))


def test_an_average_that_still_holds_its_first_weights_is_told_of(folder: Path) -> None:
    def caution(name: str, steps: int, **settings: str) -> list[str]:
        (candidate,) = STACK.propose(Draft(name, replace(BENCHMARK.protocol, steps=steps), settings=settings))
        return STACK.caution(TASK.make_trial(name, dict(candidate.settings), candidate.protocol, ("0",), 0))

    assert caution("agg", 30) == caution("agg+ema", 300) == caution("agg+sma", 30) == []
    assert caution("agg+ema", 30, decay="0.9") == []
    assert caution("agg+ema", 30) == [
        "After 30 steps, 74 % of the average of agg+ema are still its first weights: train longer, or take a smaller "
        "decay."
    ]
    assert caution("metareg+ema", 100), "the average starts anew with the second stage, of as many steps"
    done = seqdg(
        "bench", "--algorithms", "agg+ema", "--held-out", "0", "--trials", 1, "--steps", 6, "--device", "cpu",
        "--workers", 0, "--out", "short", cwd=folder,
    )  # fmt: skip
    assert "note: After 6 steps, 94 % of the average of agg+ema" in succeed(done).stderr
