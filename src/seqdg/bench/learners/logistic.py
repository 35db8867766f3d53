"""Logistic regression of all sources together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.linear_model import LogisticRegression

from seqdg.bench.estimator_learner import EstimatorLearner
from seqdg.bench.learner import Arrays, register_learner
from seqdg.core import Range


@register_learner("logistic")
class Logistic(EstimatorLearner):
    """Logistic regression of the rows of all sources (scikit-learn's `LogisticRegression`).

        min over W, b of  sum_i -log softmax(W x_i + b)_{y_i} + |W|^2 / (2 inverse_decay)

    `ridge` is its like for numbers.

    inverse_decay: C, the larger the less the weights are held back.
    balance: weigh rows so that every domain counts the same.
    """

    settings: ClassVar[Mapping[str, Any]] = {"inverse_decay": 1.0, "balance": False}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "inverse_decay": {"above": 0.0, "search": Range(1e-3, 10.0)},
        "balance": {"search": (False, True)},
    }
    draws = False

    def make(self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any) -> LogisticRegression:
        return LogisticRegression(C=settings["inverse_decay"], max_iter=300, tol=1e-3)
