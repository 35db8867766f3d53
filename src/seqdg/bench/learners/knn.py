"""The nearest rows of all sources together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from seqdg.bench.estimator_learner import EstimatorLearner
from seqdg.bench.learner import Arrays, register_learner
from seqdg.bench.learners._rows import choose_rows, describe_choice
from seqdg.core import Range


@register_learner("knn")
class NearestNeighbors(EstimatorLearner):
    """The mean of the nearest rows of the sources (Fix and Hodges, 1951; scikit-learn's `KNeighbors...`).

    neighbors: how many; as many as there are rows where these are fewer.
    most_rows: that are kept, drawn alike from every class of every domain; what a prediction costs grows with them.
    """

    settings: ClassVar[Mapping[str, Any]] = {"neighbors": 15, "most_rows": 20_000}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "neighbors": {"least": 1, "search": Range(3, 60)},
        "most_rows": {"least": 1},
    }
    weighs = False
    draws = False
    predicts_numbers = True

    def choose_rows(self, y: Arrays, domain: Arrays, classes: int, **settings: Any) -> Arrays:
        return choose_rows(y if classes else np.zeros(len(y)), domain, settings["most_rows"], 0)

    def make(
        self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any
    ) -> KNeighborsClassifier | KNeighborsRegressor:
        kind = KNeighborsClassifier if classes else KNeighborsRegressor
        return kind(n_neighbors=min(settings["neighbors"], len(y)), algorithm="brute")

    def describe_fit(self, rows: int, **settings: Any) -> list[str]:
        return describe_choice("knn", rows, settings["most_rows"])
