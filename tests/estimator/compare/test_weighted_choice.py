"""What chooses is weighted as training is: the step, the temperature, the winner; and so is what is expected of it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

import seqdg
from seqdg.estimator import importance
from seqdg.estimator.user_data import count_effective, draw_validation

SITES = ("a", "b", "c")


class Sign(ClassifierMixin, BaseEstimator):
    """Says that the class is the sign of the first column, times a factor; nothing is learned."""

    def __init__(self, factor=1):
        self.factor = factor

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return (self.factor * X[:, 0] > 0).astype(int)


class Multiple(RegressorMixin, BaseEstimator):
    """Predicts a multiple of the first column."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def fit(self, X, y, sample_weight=None):
        self.fitted_ = True
        return self

    def predict(self, X):
        return self.factor * X[:, 0]


@pytest.fixture(scope="module")
def contradicting():
    """Of ten rows, three say that the class is the sign of a column, and the others that it is the opposite."""
    draw = np.random.default_rng(0)
    x, site = draw.standard_normal((240, 2)), np.repeat(SITES, 80)
    x[:, 0] += np.sign(x[:, 0])  # so that scaling does not change the sign
    trusted = np.arange(240) % 10 < 3
    return x, np.where(trusted, x[:, 0] > 0, x[:, 0] < 0).astype(int), site, np.where(trusted, 50.0, 1.0)


def quick(name="agg", **how):
    return seqdg.DomainClassifier(
        name, **{"steps": 60, "hidden": (8,), "evaluations": 4, "lr": 0.01, "members": 1, "device": "cpu", **how}
    )


def test_the_step_and_the_temperature_follow_the_rows_that_weigh(contradicting):
    x, y, site, weight = contradicting
    model = quick(steps=200, evaluations=10).fit(x, y, domains=site, sample_weight=weight)
    assert model.step_ > 20  # judged by the number of rows, the first evaluation would be the least wrong
    heavy = weight > 1
    assert model.score(x[heavy], y[heavy]) > 0.9
    assert all(metrics["accuracy"] > 0.9 for metrics in model.validation_.values())
    assert model.model_.temperature < 2  # by the number of rows, it would be far too sure of itself
    assert "Rows count by their weights, in training and in every score." in model.notes_


@pytest.mark.slow
@pytest.mark.parametrize("is_number", [False, True])
def test_the_winner_is_the_one_that_the_heavy_rows_prefer(contradicting, is_number):
    x, y, site, weight = contradicting
    kind, truth, template = Sign, y, quick()
    if is_number:
        kind, truth = Multiple, np.where(weight > 1, x[:, 0], -x[:, 0])
        template = seqdg.DomainRegressor("agg", steps=5, hidden=(4,), evaluations=1, device="cpu")
    winners, expected = [], []
    for w in (weight, None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = seqdg.compare(
                x, truth, site, [kind(1), kind(-1)], estimator=template, seeds=1, baseline=None, refit=False,
                sample_weight=w, ensemble=False,
            )  # fmt: skip
        winners.append(found.winner.settings["estimator"].estimator.factor)
        expected.append(found.expected)
    assert winners == [1, -1]
    if not is_number:
        assert expected == pytest.approx([0.955, 0.7], abs=0.01)  # 3 * 50 of 3 * 50 + 7, and 7 of 10


def test_the_interval_is_of_as_many_rows_as_the_weighted_ones_are_worth(contradicting):
    x, y, site, weight = contradicting
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few, all_rows = (
            seqdg.compare(
                x, y, site, [Sign()], estimator=quick(), seeds=1, baseline=None, refit=False, rules=("source-val",),
                sample_weight=w,
            )
            for w in (weight, None)
        )  # fmt: skip
    assert all_rows.rows == dict.fromkeys(SITES, 80)
    heavy, light = 24 * 50.0, 56 * 1.0
    assert few.rows == dict.fromkeys(SITES, round((heavy + light) ** 2 / (24 * 50.0**2 + 56)))


def test_effective_rows_are_those_that_count_where_others_weigh_nothing():
    assert count_effective(np.array([0.0, 2.0, 2.0, 0.0, 2.0])) == 3
    assert count_effective(np.full(7, 1e-300)) == 7
    assert count_effective(np.array([1e200, 1.0, 1.0])) == 1


def test_rows_without_weight_are_never_validated_on():
    y, domain = np.arange(80) % 2, np.repeat([0, 1], 40)
    weighs = np.arange(80) % 5 == 0
    drawn = draw_validation(y, domain, 0.25, seed=0, weighs=weighs).numpy()
    assert [int(drawn[domain == d].sum()) for d in (0, 1)] == [2, 2]
    assert weighs[drawn].all()


def test_importance_and_learning_curve_follow_the_heavy_rows(contradicting):
    x, y, site, weight = contradicting
    found = importance(Sign(), x, y, site, repeats=2, sample_weight=weight)
    assert found.scores.mean() > 0.9
    assert found.drops[:, 0].mean() > 0.3
    assert importance(Sign(), x, y, site, repeats=2).scores.mean() < 0.5
    heavy, plain = (
        seqdg.learning_curve(quick("logistic"), x, y, site, sample_weight=w).measured for w in (weight, None)
    )
    assert np.mean([m.value for m in heavy]) > 0.9 > np.mean([m.value for m in plain])
