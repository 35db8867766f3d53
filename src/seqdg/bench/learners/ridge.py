"""Ridge regression of all sources together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.linear_model import Ridge

from seqdg.bench.estimator_learner import EstimatorLearner
from seqdg.bench.learner import Arrays, register_learner
from seqdg.core import Range


@register_learner("ridge")
class RidgeLearner(EstimatorLearner):
    """Least squares with a penalty on the weights, of the rows of all sources (scikit-learn's `Ridge`).

        min over w, b of  sum_i (w' x_i + b - y_i)^2 + decay |w|^2

    It predicts numbers; `logistic` is its like for classes.

    decay: alpha, how much the weights are held back.
    balance: weigh rows so that every domain counts the same.
    """

    settings: ClassVar[Mapping[str, Any]] = {"decay": 1.0, "balance": False}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "decay": {"least": 0.0, "search": Range(1e-2, 1e3)},
        "balance": {"search": (False, True)},
    }
    draws = False
    tells_classes, predicts_numbers = False, True

    def make(self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any) -> Ridge:
        return Ridge(alpha=settings["decay"])
