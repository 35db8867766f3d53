"""The baseline that needs no model, against scikit-learn's dummies, and where it stands."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics
from sklearn.dummy import DummyClassifier, DummyRegressor

import seqdg
from seqdg.estimator import DomainClassifier, DomainRegressor
from seqdg.estimator.compare.comparison import score_constant
from seqdg.estimator.user_data import make_user_data

NAMES = np.repeat(["north", "south", "east"], [50, 30, 40])
DRAW = np.random.default_rng(3)
X, Y, NUMBERS, WEIGHT = (
    DRAW.normal(size=(120, 2)),
    DRAW.choice(["a", "b", "c"], 120, p=[0.2, 0.5, 0.3]),
    DRAW.normal(5, 2, 120),
    DRAW.uniform(0.5, 2, 120),
)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_it_predicts_the_majority_class_of_the_other_domains(weight):
    data = make_user_data(X, Y, NAMES, DomainClassifier().make_recipe(), sample_weight=weight).dataset
    found = score_constant(data)
    by_row = np.ones(120) if weight is None else data.weight.numpy()
    for domain in ("north", "south", "east"):
        inside = domain == NAMES
        dummy = DummyClassifier(strategy="prior").fit(X[~inside], Y[~inside], by_row[~inside])
        truth, its = Y[inside], by_row[inside]
        assert found[domain]["accuracy"] == pytest.approx(dummy.score(X[inside], truth, its), abs=1e-5)
        loss = metrics.log_loss(truth, dummy.predict_proba(X[inside]), sample_weight=its, labels=["a", "b", "c"])
        assert found[domain]["log_loss"] == pytest.approx(loss, abs=1e-5)
        assert found[domain]["balanced_accuracy"] == pytest.approx(1 / 3)


def test_of_numbers_it_is_their_mean():
    found = score_constant(make_user_data(X, NUMBERS, NAMES, DomainRegressor().make_recipe()).dataset)
    for domain in ("north", "south", "east"):
        inside = domain == NAMES
        said = DummyRegressor().fit(X[~inside], NUMBERS[~inside]).predict(X[inside])
        assert found[domain]["rmse"] == pytest.approx(metrics.root_mean_squared_error(NUMBERS[inside], said))
        assert found[domain]["r2"] == pytest.approx(metrics.r2_score(NUMBERS[inside], said))


def test_it_stands_beside_every_score_and_shares_are_in_percent_everywhere():
    found = seqdg.compare(X, Y, NAMES, ["logistic"], baseline=None, seeds=1)
    average = np.mean([found.constant[d]["accuracy"] for d in found.domains])
    board = found.leaderboard()
    assert board["candidate"].tolist() == ["logistic", "majority-class"]
    assert board["held_out"].tolist() == pytest.approx([100 * found.expected, 100 * average])
    assert f"; always predicting the majority class reaches {100 * average:.1f} %." in found.sentence
    row = next(line.split() for line in str(found).splitlines() if line.startswith("majority-class"))
    assert row[2:-2] == [f"{100 * found.constant[d]['accuracy']:.1f}" for d in found.domains]
    numbers = seqdg.compare(X, NUMBERS, NAMES, ["ridge"], baseline=None, seeds=1, criterion="r2", refit=False)
    board, mean = numbers.leaderboard(), np.mean([numbers.constant[d]["r2"] for d in numbers.domains])
    assert board["candidate"].tolist() == ["ridge", "mean"]
    assert board["held_out"][1] == pytest.approx(mean)
    assert f"always predicting the mean reaches {mean:.3f}." in numbers.sentence
