"""Gradient boosting of trees on binned inputs, of all sources together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from seqdg.bench.estimator_learner import EstimatorLearner
from seqdg.bench.learner import Arrays, register_learner
from seqdg.core import Range


@register_learner("hist-gradient-boosting")
class HistGradientBoosting(EstimatorLearner):
    """Gradient boosting of trees (Friedman, 2001) on inputs in 255 bins (scikit-learn's `HistGradientBoosting...`).

    The values are scikit-learn's own, without early stopping: the rows that it would hold back are of the domains that
    it trains on.

    rate: the learning rate, by which every tree counts.
    rounds: trees, one for each class and round where there are more than two classes.
    leaves: of a tree, at most.
    leaf_rows: of a leaf, at least.
    decay: penalty on the squared value of a leaf.
    balance: weigh rows so that every domain counts the same.
    """

    settings: ClassVar[Mapping[str, Any]] = {
        "rate": 0.1, "rounds": 100, "leaves": 31, "leaf_rows": 20, "decay": 0.0, "balance": False,
    }  # fmt: skip
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "rate": {"above": 0.0, "search": Range(0.02, 0.3)},
        "rounds": {"least": 1},
        "leaves": {"least": 2, "search": Range(4, 63)},
        "leaf_rows": {"least": 1, "search": Range(5, 100)},
        "decay": {"least": 0.0, "search": Range(1e-3, 10.0)},
        "balance": {"search": (False, True)},
    }
    draws = False  # but for which rows the bins are made of, where there are more than 200,000
    predicts_numbers = True
    most_work = 15_000_000  # about a minute of one core

    def make(
        self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any
    ) -> HistGradientBoostingClassifier | HistGradientBoostingRegressor:
        kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        return kind(
            learning_rate=settings["rate"], max_iter=settings["rounds"], max_leaf_nodes=settings["leaves"],
            min_samples_leaf=settings["leaf_rows"], l2_regularization=settings["decay"], early_stopping=False,
            random_state=0,
        )  # fmt: skip
