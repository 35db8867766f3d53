"""A comparison within a time: what is tried first, what is left out with a word, and that there is always a model."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.bench import ArrayLearner
from seqdg.bench.learners.estimators import HistGradientBoosting
from seqdg.estimator.compare import parse_settings_texts
from seqdg.estimator.compare import time_limit as module
from seqdg.estimator.compare.folds import Sweep
from seqdg.estimator.compare.time_limit import Budget, draw_rows, list_rounds


def quick(**how):
    return seqdg.DomainClassifier(**{"steps": 10, "hidden": (4,), "evaluations": 2, "device": "cpu", **how})


def compared(hospitals, names=("agg", "agg+ema", "coral", "logistic"), **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return seqdg.compare(*hospitals, list(names), estimator=quick(), seeds=1, rules=(), **how)


def test_candidates_come_in_order_of_promise_and_cost_and_averages_with_their_training():
    names = ["knn", "fo-s-mldg+ema", "agg", "mine", "hist-gradient-boosting", "agg+ema", "logistic", "coral+mixup+ema"]
    assert list_rounds(names) == [
        ["logistic"], ["agg", "agg+ema"], ["hist-gradient-boosting"], ["fo-s-mldg+ema"], ["coral+mixup+ema"], ["knn"],
        ["mine"],
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
    rows = draw_rows(rare, domain, 1000, seed=0)
    assert abs(len(rows) - 1000) <= 5
    assert (np.diff(rows) > 0).all()
    for d, share in enumerate((0.6, 0.3, 0.1)):
        assert (domain[rows] == d).mean() == pytest.approx(share, abs=0.01)
    assert (rare[rows] == 1).mean() == pytest.approx(y.mean(), abs=0.01)
    assert (rare[rows] == 2).sum() == 2  # of three
    assert (rows == draw_rows(rare, domain, 1000, seed=0)).all()
    assert (rows != draw_rows(rare, domain, 1000, seed=1)).any()
    assert draw_rows(rare, domain, 10_000, seed=0) is None


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


def test_what_is_slower_than_expected_is_stopped_and_left_out(hospitals, monkeypatch):
    now = iter(range(10**9))  # every look at the clock takes a second
    monkeypatch.setattr(module, "_estimate", lambda *a: [])  # as if it took no time
    monkeypatch.setattr(
        "seqdg.estimator.compare.comparing.Budget", lambda minutes: Budget(minutes, clock=lambda: float(next(now)))
    )
    found = compared(hospitals, minutes=0.2)
    assert "agg, agg+ema were left out: not done in time." in found.notes
    assert "coral was left out: no time was left." in found.notes
    assert set(found.scores()) == {"logistic", "chosen"}


@pytest.fixture
def pretended(monkeypatch):
    """Seconds by candidate that are estimated, and by a clock that goes on by twice as many when it is trained; the
    candidates in the order in which they are timed and trained."""
    seconds, now, timed, trained = {}, [0.0], [], []

    def estimate(sweep, searches, targets, learners):
        timed.append(next(iter(searches)))
        return [seconds[timed[-1]]]

    def train(sweep, searches, *how):
        trained.append(next(iter(searches)))
        now[0] += 2 * seconds[trained[-1]]
        return run(sweep, searches, *how)

    run = Sweep.run
    monkeypatch.setattr(Sweep, "run", train)
    monkeypatch.setattr(module, "_estimate", estimate)
    monkeypatch.setattr(
        "seqdg.estimator.compare.comparing.Budget", lambda minutes: Budget(minutes, clock=lambda: now[0])
    )
    return seconds, timed, trained


def test_what_takes_long_waits_until_what_is_shorter_is_done(hospitals, pretended):
    seconds, _, trained = pretended
    seconds |= {"logistic": 1, "agg": 200, "extra-trees": 20, "knn": 10, "svc": 90}
    found = compared(hospitals, ("logistic", "agg", "extra-trees", "knn", "svc"), minutes=10)
    assert trained == ["logistic", "extra-trees", "knn", "svc"]
    assert [n for n in found.notes if "left out" in n] == [
        "agg was left out: that takes about 4 min, and less was left."
    ]
    assert set(found.scores()) == {"logistic", "extra-trees", "knn", "svc", "chosen"}


def test_no_net_is_timed_while_another_waits_nor_where_there_was_no_time_for_the_quickest(hospitals, pretended):
    seconds, timed, trained = pretended
    seconds |= {"logistic": 1, "agg": 150, "coral": 170, "knn": 10}
    found = compared(hospitals, ("logistic", "agg", "coral", "knn"), minutes=12)
    assert timed == ["logistic", "agg", "knn"]
    assert trained == ["logistic", "knn", "agg"]
    assert "coral was left out: that takes about 3 min, and less was left." in found.notes
    timed.clear()
    seconds["agg"] = 30
    compared(hospitals, ("logistic", "agg", "coral", "knn"), minutes=12)
    assert timed == ["logistic", "agg", "coral", "knn"]


def test_with_time_for_all_the_order_is_that_of_promise(hospitals, pretended):
    seconds, _, trained = pretended
    seconds |= {"logistic": 1, "agg": 200, "coral": 20, "knn": 10, "svc": 90}
    compared(hospitals, ("logistic", "agg", "coral", "knn", "svc"), minutes=60)
    assert trained == ["logistic", "agg", "coral", "svc", "knn"]


def test_what_takes_long_to_be_timed_is_timed_when_the_others_are_done(hospitals, pretended, monkeypatch):
    seconds, timed, trained = pretended
    names = ("logistic", "hist-gradient-boosting", "knn", "svc")
    seconds |= dict.fromkeys(names, 5)
    compared(hospitals, names, minutes=10, baseline=None)
    assert timed == trained == ["logistic", "hist-gradient-boosting", "svc", "knn"]
    timed.clear()
    trained.clear()
    monkeypatch.setattr(HistGradientBoosting, "most_work", 500)  # of 240 rows and 7 inputs: some 200 s
    compared(hospitals, names, minutes=10, baseline=None)
    assert timed == trained == ["logistic", "svc", "knn", "hist-gradient-boosting"]
    timed.clear()
    monkeypatch.setattr(HistGradientBoosting, "most_work", 200)  # some 500 s
    found = compared(hospitals, names, minutes=10, baseline=None)
    assert timed == ["logistic", "svc", "knn"]
    assert "hist-gradient-boosting was left out: a single fit takes about 8 min, and less was left." in found.notes


@pytest.fixture
def parts(monkeypatch):
    """Seconds by candidate that a fit to a sixteenth and to a quarter of the rows are said to take; the rows of these
    fits."""
    seconds, rows, train = {}, {}, ArrayLearner.train_one

    def train_part(learner, trial, task):
        taken = rows.setdefault(trial.short_name, [])
        taken.append(len(task.dataset().y))
        predict, record = train(learner, trial, task)
        return predict, replace(record, seconds=seconds[trial.short_name][len(taken) - 1])

    monkeypatch.setattr(ArrayLearner, "train_one", train_part)
    monkeypatch.setattr(module, "MANY_ROWS", 200)
    return seconds, rows


def test_fits_to_some_rows_tell_of_one_that_is_too_long_to_be_tried(hospitals, pretended, parts):
    seconds, timed, trained = pretended
    seconds |= {"logistic": 1, "svc": 1, "knn": 10}
    parts[0].update(svc=(2.0, 32.0), knn=(0.1, 0.2))  # 16 times as long for 4 times the rows: 512 s for all; and 0.4 s
    found = compared(hospitals, ("logistic", "svc", "knn"), minutes=10, baseline=None, refit=False)
    assert parts[1] == {name: [pytest.approx(16, abs=3), pytest.approx(60, abs=3)] for name in ("svc", "knn")}
    assert timed == trained == ["logistic", "knn"]
    (note,) = (note for note in found.notes if "left out" in note)
    assert note == "svc was left out: that takes about 2 h, and less was left."


def test_what_is_long_by_some_rows_is_timed_by_a_whole_fit_when_it_is_its_turn(hospitals, pretended, parts):
    seconds, timed, trained = pretended
    seconds |= {"logistic": 1, "svc": 300, "knn": 10}
    parts[0].update(svc=(2.5, 10.0), knn=(0.1, 0.1))  # 40 s for all, of 720 for 11 fits
    found = compared(hospitals, ("logistic", "svc", "knn"), minutes=20, baseline=None, refit=False)
    assert timed == trained == ["logistic", "knn", "svc"]
    assert not [note for note in found.notes if "left out" in note]


def test_many_rows_are_compared_on_some_and_the_winner_is_fitted_on_all(hospitals, monkeypatch):
    monkeypatch.setattr("seqdg.estimator.compare.time_limit.MOST_ROWS", 120)
    found = compared(hospitals, ("logistic", "agg"), minutes=60)
    assert any("made on 120 of 240 rows" in note or "made on 121 of 240" in note for note in found.notes)
    rows = sum(domain["rows"] for domain in found.estimator.model_.facts["domains"].values())
    assert rows == 240


def test_what_takes_too_long_on_all_rows_is_left_out(hospitals, monkeypatch):
    monkeypatch.setattr("seqdg.estimator.compare.time_limit.MOST_ROWS", 120)
    monkeypatch.setattr(module, "POWER", {"knn": 60.0})
    found = compared(hospitals, ("logistic", "knn"), minutes=1)
    assert any(note.startswith("knn was left out: fitting it to all 240 rows takes") for note in found.notes)


def test_what_is_tried_is_said_after_how_the_table_was_read(hospitals, tmp_path):
    x, y, domains = hospitals
    x.assign(y=y, site=domains).to_csv(tmp_path / "table.csv", index=False)
    words = ["--choose", "--candidates", "logistic", "--minutes", 5, "--seeds", 1, "--steps", 2, "--workers", 0]
    done = command("fit", "table.csv", "--label", "y", "--domain", "site", *words, "--out", "m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    places = [done.stderr.index(said) for said in ("240 rows; labels", "for 5 min in all", "Trying logistic: ")]
    assert places == sorted(places)


def test_minutes_without_choose_are_refused(tmp_path):
    done = command("fit", "table.csv", "--minutes", 3, "--out", "model", cwd=tmp_path)
    assert done.returncode == 2
    assert "--minutes is how long --choose may take" in done.stderr


def test_candidates_without_settings_are_not_asked_for():
    """The usual candidates for classes and for numbers differ, and nothing is set of those that are not there."""
    assert parse_settings_texts([], None) == {}
    assert parse_settings_texts(["agg.lr=0.1"], None) == {"agg": {"lr": 0.1}, "agg+ema": {"lr": 0.1}}
