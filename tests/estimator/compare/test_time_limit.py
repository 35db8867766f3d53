"""A comparison within a time: what is tried first, that the limit is kept, and that there is always a model."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.estimator.compare import parse_settings_texts
from seqdg.estimator.compare.comparing import name_candidates
from seqdg.estimator.compare.folds import Budget, list_rounds
from seqdg.estimator.user_data import draw_rows

LIMIT = "seqdg.estimator.compare.folds"


class Slow(ClassifierMixin, BaseEstimator):
    """Takes its time by two clocks, and knows nothing."""

    now = 0.0

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def fit(self, X, y):
        Slow.now += 2.0
        time.sleep(self.seconds)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


@pytest.fixture
def clock(monkeypatch):
    """A clock that only `Slow` lets go on."""
    monkeypatch.setattr(Slow, "now", 0.0)
    monkeypatch.setattr(
        "seqdg.estimator.compare.comparing.Budget", lambda minutes: Budget(minutes, clock=lambda: Slow.now)
    )


def quick(**how):
    return seqdg.DomainClassifier(**{"steps": 10, "hidden": (4,), "evaluations": 2, "device": "cpu", **how})


def compared(hospitals, names=("agg", "agg+ema", "coral", "logistic"), **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return seqdg.compare(
            *hospitals, list(names), estimator=quick(), seeds=1, rules=(), **{"ensemble": False, **how}
        )


def test_the_cheapest_candidates_come_first_and_averages_with_their_training():
    names = ["svc", "fo-s-mldg+ema", "agg", "hist-gradient-boosting", "agg+ema", "logistic", "coral+mixup+ema", "knn"]
    assert list_rounds(name_candidates(names)) == [
        ["logistic"], ["knn"], ["hist-gradient-boosting"], ["agg", "agg+ema"], ["fo-s-mldg+ema"], ["coral+mixup+ema"],
        ["svc"],
    ]  # fmt: skip


def test_time_is_divided_between_comparing_and_the_last_fit():
    now = [100.0]
    budget = Budget(10.0, clock=lambda: now[0])
    assert (budget.left, budget.reserve) == (360.0, pytest.approx(240.0))
    now[0] += 400
    assert budget.left == -40.0
    with pytest.raises(UsageError, match="positive number"):
        Budget(0)


def test_rows_are_drawn_from_every_class_of_every_domain_in_proportion():
    draw = np.random.default_rng(0)
    domain, y = np.repeat([0, 1, 2], [6000, 3000, 1000]), draw.random(10_000) < 0.2
    y[:3] = False
    rare = np.where(np.arange(10_000) < 3, 2, y.astype(int))
    labels = SimpleNamespace(
        y=torch.from_numpy(rare), domain=torch.from_numpy(domain), classes="abc", is_regression=False
    )
    data = SimpleNamespace(dataset=labels)
    rows = draw_rows(data, 1000, seed=0)
    assert abs(len(rows) - 1000) <= 5
    assert (np.diff(rows) > 0).all()
    for d, share in enumerate((0.6, 0.3, 0.1)):
        assert (domain[rows] == d).mean() == pytest.approx(share, abs=0.01)
    assert (rare[rows] == 1).mean() == pytest.approx(y.mean(), abs=0.01)
    assert (rare[rows] == 2).sum() == 2  # of three
    assert (rows == draw_rows(data, 1000, seed=0)).all()
    assert (rows != draw_rows(data, 1000, seed=1)).any()
    assert draw_rows(data, 10_000, seed=0) is None


@pytest.mark.slow
def test_with_time_enough_nothing_is_left_out_and_the_scores_are_the_same(hospitals):
    whole, within = compared(hospitals), compared(hospitals, minutes=60)
    assert within.notes == whole.notes
    for name, row in whole.scores().items():
        assert within.scores()[name] == pytest.approx(row, abs=1e-6), name


def test_without_time_the_first_is_compared_and_the_rest_is_named(hospitals):
    found = compared(hospitals, minutes=1e-6)
    assert set(found.scores()) - {"chosen"} == {"logistic"}
    assert "agg, agg+ema, coral were left out: no time was left." in found.notes
    assert found.baseline is None
    assert found.estimator.predict(hospitals[0]).shape == (240,)


def test_a_time_that_leaves_one_candidate_leaves_no_ensemble(hospitals):
    found = compared(hospitals, minutes=1e-6, ensemble=True)
    assert "There is no ensemble: logistic is all that is left of 4 candidates." in found.notes
    assert not found.members
    assert "the only candidate that there was time for (a larger time limit tries more)" in found.how[0]
    assert found.winner.algorithm == "logistic"
    assert found.estimator.predict(hospitals[0]).shape == (240,)


@pytest.mark.slow
def test_what_runs_over_is_cut_in_the_midst_of_a_fit(hospitals, clock):
    began = time.monotonic()
    found = compared(hospitals, ["logistic", Slow(100.0), "svc"], minutes=0.05, baseline=None)
    assert time.monotonic() - began < 60
    assert found.notes[-2:] == ("Slow was left out: not done in time.", "svc was left out: no time was left.")
    assert set(found.scores()) == {"logistic", "chosen"}


def test_in_a_thread_that_hears_no_signal_it_is_cut_between_two_fits(hospitals, clock):
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(compared, hospitals, ["logistic", Slow(), "svc"], minutes=0.05, baseline=None).result()
    assert Slow.now == 2.0
    assert found.notes[-2:] == ("Slow was left out: not done in time.", "svc was left out: no time was left.")


def test_the_first_candidate_always_finishes_and_nothing_is_begun_after_it(hospitals, clock):
    found = compared(hospitals, [Slow(), Slow(0.001)], minutes=0.001, baseline=None)
    assert set(found.scores()) == {"Slow", "chosen"}
    assert "Slow-2 was left out: no time was left." in found.notes


@pytest.mark.slow
def test_many_rows_are_compared_on_some_and_the_winner_is_fitted_on_all(hospitals, monkeypatch):
    monkeypatch.setattr("seqdg.estimator.compare.comparing.MOST_ROWS", 120)
    found = compared(hospitals, ("logistic", "agg"), minutes=60)
    assert any("made on 120 of 240 rows" in note or "made on 121 of 240" in note for note in found.notes)
    assert sum(found.rows.values()) in (120, 121)
    rows = sum(domain["rows"] for domain in found.estimator.model_.facts["domains"].values())
    assert rows == 240


@pytest.mark.slow
def test_what_takes_too_long_on_all_rows_is_left_out(hospitals, monkeypatch):
    monkeypatch.setattr("seqdg.estimator.compare.comparing.MOST_ROWS", 120)
    monkeypatch.setattr(f"{LIMIT}.MARGIN", 1e6)
    found = compared(hospitals, ("logistic", "knn"), minutes=1)
    assert any(note.startswith("knn was left out: fitting it to all 240 rows takes") for note in found.notes)


@pytest.mark.slow
def test_what_cannot_be_fitted_to_all_rows_is_not_compared_on_some(hospitals, monkeypatch):
    monkeypatch.setattr("seqdg.estimator.compare.comparing.MOST_ROWS", 120)
    monkeypatch.setattr(type(name_candidates(["svc"])["svc"]), "most_rows", 200)
    found = compared(hospitals, ("logistic", "svc"), minutes=60)
    assert any(note.startswith("svc was left out: svc compares every row") for note in found.notes)


@pytest.mark.slow
def test_what_is_tried_is_said_after_how_the_table_was_read(hospitals, tmp_path):
    x, y, domains = hospitals
    x.assign(y=y, site=domains).to_csv(tmp_path / "table.csv", index=False)
    words = ["--choose", "--candidates", "logistic", "--minutes", 5, "--seeds", 1, "--steps", 2, "--workers", 0]
    done = command("fit", "table.csv", "--label", "y", "--domain", "site", *words, "--out", "m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = ("240 rows; labels", "for 5 min in all", "Trying, the cheapest first: logistic")
    places = [done.stderr.index(said) for said in told]
    assert places == sorted(places)


def test_minutes_for_one_algorithm_are_refused(hospitals, tmp_path):
    x, y, domains = hospitals
    x.assign(y=y, site=domains).to_csv(tmp_path / "table.csv", index=False)
    words = ["--label", "y", "--domain", "site", "--algorithms", "agg", "--minutes", 3, "--out", "model"]
    done = command("fit", "table.csv", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "--minutes is how long a comparison may take" in done.stderr


def test_candidates_without_settings_are_not_asked_for():
    """The usual candidates for classes and for numbers differ, and nothing is set of those that are not there."""
    assert parse_settings_texts([], None) == {}
    assert parse_settings_texts(["agg.lr=0.1"], None) == {"agg": {"lr": 0.1}, "agg+ema": {"lr": 0.1}}
