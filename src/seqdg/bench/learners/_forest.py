"""What random forests and extra trees share: their settings, and limits for many rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from seqdg.bench.array_learner import Arrays
from seqdg.bench.estimator_learner import EstimatorLearner
from seqdg.core import Range

MOST_LEAVES = 4096  # of a tree that is not grown from all rows


class Forest(EstimatorLearner):
    """The mean of trees, each grown with chance. A subclass names the two classes of scikit-learn."""

    classifier: ClassVar[type]
    regressor: ClassVar[type]
    settings: ClassVar[Mapping[str, Any]] = {
        "trees": 100, "leaf_rows": 1, "features": 0.0, "most_rows": 10_000, "balance": False,
    }  # fmt: skip
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "trees": {"least": 1},
        "leaf_rows": {"least": 1, "search": Range(1, 20)},
        "features": {"least": 0.0, "most": 1.0},
        "most_rows": {"least": 2},
        "balance": {"search": (False, True)},
    }
    predicts_numbers = True

    def make(self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any) -> Any:
        most_rows, features = settings["most_rows"], settings["features"]
        few = {"bootstrap": True, "max_samples": most_rows, "max_leaf_nodes": MOST_LEAVES} if len(y) > most_rows else {}
        kind = self.classifier if classes else self.regressor
        return kind(
            n_estimators=settings["trees"], min_samples_leaf=settings["leaf_rows"],
            max_features=features or ("sqrt" if classes else 1 / 3),
            random_state=seed, n_jobs=1, **few,
        )  # fmt: skip

    def describe_fit(self, rows: int, **settings: Any) -> list[str]:
        most = settings["most_rows"]
        if rows <= most:
            return []
        return [
            f"Each tree is grown from {most:,} of {rows:,} rows, drawn at random, to {MOST_LEAVES:,} leaves at most."
        ]
