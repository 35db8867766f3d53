"""The learning curve over domains: which domains are trained on, what is averaged, and what is said of one more."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

import seqdg
from command import seqdg as command
from seqdg import Algorithm
from seqdg.base import UsageError
from seqdg.estimator.domain_curve import LearningCurve, Measured, choose_sizes, choose_subsets

DOMAINS = ("a", "b", "c", "d")


def quick(name="agg", **how):
    return seqdg.DomainClassifier(name, **{"steps": 10, "hidden": (4,), "evaluations": 2, "device": "cpu", **how})


def draw_curve(level):
    """A curve of four domains, whose value of every training is a function of its size and the unseen domain."""
    measured = [
        Measured(chosen, d, level(len(chosen), d))
        for k in (1, 2, 3)
        for chosen in combinations(DOMAINS, k)
        for d in DOMAINS
        if d not in chosen
    ]
    return LearningCurve("agg", DOMAINS, "accuracy", tuple(measured))


def test_of_few_domains_every_choice_is_tried_and_of_many_each_domain_about_as_often():
    assert choose_subsets(DOMAINS, 2, 12, seed=0) == list(combinations(DOMAINS, 2))
    many = [f"d{i}" for i in range(20)]
    chosen = choose_subsets(many, 5, 12, seed=0)
    assert len(set(chosen)) == 12
    assert {len(c) for c in chosen} == {5}
    counts = [sum(d in c for c in chosen) for d in many]
    assert max(counts) - min(counts) <= 5
    assert chosen == choose_subsets(many, 5, 12, seed=0) != choose_subsets(many, 5, 12, seed=1)
    assert choose_sizes(4) == [1, 2, 3]
    assert choose_sizes(31)[0] == 1
    assert choose_sizes(31)[-1] == 30
    assert len(choose_sizes(31)) <= 8


def test_a_curve_that_is_a_plus_b_over_k_goes_on_as_it_is():
    """From 4 to 5 domains, a + b / k changes by b (1/5 - 1/4)."""
    base = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}
    curve = draw_curve(lambda k, d: base[d] - (0.2 + base[d] / 10) / k)
    expected = [(0.2 + base[d] / 10) * (1 / 4 - 1 / 5) for d in DOMAINS]
    assert curve.gain.mean == pytest.approx(np.mean(expected))
    assert curve.gain.error == pytest.approx(np.std(expected, ddof=1) / 2)
    assert "would improve accuracy on an unseen one by +1.4 points" in curve.sentence
    assert "likely to help" in curve.sentence


def test_means_are_over_unseen_domains_and_changes_are_paired():
    base = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}
    rows = draw_curve(lambda k, d: base[d] + 0.05 * k).frame()
    assert rows["mean"].tolist() == pytest.approx([0.80, 0.85, 0.90])
    assert rows["error"].tolist() == pytest.approx([np.std(list(base.values()), ddof=1) / 2] * 3)
    assert rows["change"].tolist()[1:] == pytest.approx([0.05, 0.05])
    assert rows["change_error"].tolist()[1:] == pytest.approx([0.0, 0.0], abs=1e-12)  # domains differ, changes do not
    assert rows["trainings"].tolist() == [4, 6, 4]


def test_a_criterion_of_which_less_is_better_improves_when_it_falls():
    curve = draw_curve(lambda k, d: 0.3 + 0.2 / k)
    assert curve.gain.mean < 0
    other = LearningCurve("agg", DOMAINS, "log_loss", curve.measured)
    assert other.gain.mean == pytest.approx(-curve.gain.mean)


def test_it_trains_on_every_number_of_domains_and_says_how_many_trainings_beforehand(hospitals):
    said = []
    curve = seqdg.learning_curve(quick(), *hospitals, on_message=said.append)
    assert curve.sizes == [1, 2, 3]
    assert said == ["14 trainings of agg on 1 to 3 of 4 domains."]
    for m in curve.measured:
        assert m.held_out not in m.trained_on
    assert len(curve.measured) == 4 * 3 + 6 * 2 + 4
    again = seqdg.learning_curve(quick(), *hospitals)
    assert again.measured == curve.measured
    assert "Errors are standard errors over unseen domains" in str(curve)
    assert curve.sentence in curve.figure().caption


def test_its_last_number_is_what_a_model_of_the_others_reaches_on_the_domain_left_out(hospitals):
    """With every row trained on and no scaling that differs, a training of all but one domain is `fit` without it."""
    x, y, domains = hospitals
    numbers = x[["age", "pressure", "visits"]].fillna(50.0)
    curve = seqdg.learning_curve(quick(), numbers, y, domains)
    last = {m.held_out: m.value for m in curve.measured if len(m.trained_on) == 3}
    kept = domains != "west"
    model = quick().fit(numbers[kept], y[kept], domains=domains[kept])
    assert last["west"] == pytest.approx(model.score(numbers[~kept], y[~kept]), abs=0.2)
    assert np.isfinite(list(last.values())).all()


def test_numbers_of_domains_that_an_algorithm_cannot_train_on_are_left_out_with_a_note(hospitals):
    curve = seqdg.learning_curve(quick("coral"), *hospitals)
    assert curve.sizes == [2, 3]
    assert "1 domain cannot be trained on" in curve.notes[0]
    assert "which two sizes cannot check" in curve.sentence


def test_an_estimator_of_the_users_own_is_traced(hospitals):
    _, y, domains = hospitals
    curve = seqdg.learning_curve(quick(DummyClassifier(strategy="constant", constant=1)), *hospitals)
    assert curve.sizes == [1, 2, 3]
    assert curve.name == "DummyClassifier"
    for m in curve.measured:
        assert m.value == pytest.approx((y[domains == m.held_out] == "ill").mean())


@pytest.mark.slow
@pytest.mark.parametrize("candidate", [DummyClassifier(strategy="prior"), make_pipeline(GaussianNB()), "logistic"])
def test_what_compare_takes_as_a_candidate_needs_no_estimator_around_it(hospitals, candidate):
    curve = seqdg.learning_curve(candidate, *hospitals)
    assert curve.measured == seqdg.learning_curve(seqdg.DomainClassifier(candidate), *hospitals).measured


def test_a_candidate_that_predicts_numbers_is_judged_by_their_error(hospitals):
    x, _, domains = hospitals
    curve = seqdg.learning_curve(DummyRegressor(), x, np.linspace(0, 1, len(x)), domains)
    assert (curve.name, curve.criterion) == ("DummyRegressor", "rmse")


@dataclass(frozen=True)
class Unregistered(Algorithm):
    """AGG by another name, for this test."""

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()


def test_an_algorithm_without_a_name_is_traced(hospitals):
    ours, agg = (seqdg.learning_curve(quick(one), *hospitals).measured for one in (Unregistered(), "agg"))
    assert [(m.trained_on, m.held_out) for m in ours] == [(m.trained_on, m.held_out) for m in agg]
    assert [m.value for m in ours] == pytest.approx([m.value for m in agg], abs=0.02)


def test_two_domains_say_nothing_of_a_third(hospitals):
    x, y, domains = hospitals
    kept = np.isin(domains, ["east", "west"])
    curve = seqdg.learning_curve(quick(), x[kept], y[kept], domains[kept])
    assert curve.gain is None
    assert "at least three" in curve.sentence
    with pytest.raises(UsageError, match="only the domain"):
        seqdg.learning_curve(quick(), x[kept], y[kept], np.full(kept.sum(), "east"))
    with pytest.raises(UsageError, match="leave stop out"):
        seqdg.learning_curve(quick(stop=3), x[kept], y[kept], domains[kept])


def test_the_command_prints_the_curve_and_writes_it(hospitals, tmp_path):
    x, y, domains = hospitals
    x.assign(ill=y, site=domains).to_csv(tmp_path / "table.csv", index=False)
    words = ["learning-curve", "table.csv", "--label", "ill", "--domain", "site", "--algorithm", "agg", "--steps", 10]
    done = command(*words, "--workers", 0, "--device", "cpu", "--out", "curve", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "14 trainings of agg" in done.stderr
    assert "One more domain than these 4" in done.stdout
    assert pd.read_csv(tmp_path / "curve" / "learning-curve.csv")["domains"].tolist() == [1, 2, 3]
    assert len(pd.read_csv(tmp_path / "curve" / "by_training.csv")) == 28
    assert (tmp_path / "curve" / "learning-curve.svg").read_text().startswith("<svg")
    lacking = command(*words[:4], cwd=tmp_path)
    assert lacking.returncode == 2
    assert "--domain" in lacking.stderr


def test_of_numbers_the_curve_is_of_their_error(hospitals, tmp_path):
    x, _, domains = hospitals
    x.assign(site=domains).to_csv(tmp_path / "table.csv", index=False)
    words = ["learning-curve", "table.csv", "--label", "age", "--domain", "site", "--steps", 5]
    x.dropna(subset=["age"]).assign(site=domains[x["age"].notna()]).to_csv(tmp_path / "table.csv", index=False)
    done = command(*words, "--workers", 0, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "would improve rmse on an unseen one" in done.stdout
    assert "of agg+ema" in done.stderr
