"""A support vector machine with a Gaussian kernel, of all sources together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC, SVR

from seqdg.bench.estimator_learner import EstimatorLearner
from seqdg.bench.learner import Arrays, register_learner
from seqdg.core import Range

FOLDS = 3


@register_learner("svc")
class SupportVectors(EstimatorLearner):
    """A support vector machine with a Gaussian kernel (Cortes and Vapnik, 1995; `SVC`, `SVR` for numbers).

    The kernel is exp(-gamma |x - x'|^2), with gamma = 1 / (width^2 inputs variance). Probabilities are a sigmoid of its
    scores (Platt, 1999), from a threefold cross-validation on the sources; numbers count in units of their
    deviation. Every row is compared with every other: it takes fewer than 20,000 rows.

    cost: C, of a row on the wrong side.
    width: of the kernel; 1 is scikit-learn's `scale`.
    balance: weigh rows so that every domain counts the same.
    """

    settings: ClassVar[Mapping[str, Any]] = {"cost": 1.0, "width": 1.0, "balance": False}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cost": {"above": 0.0, "search": Range(0.1, 100.0)},
        "width": {"above": 0.0, "search": Range(0.3, 3.0)},
        "balance": {"search": (False, True)},
    }
    draws = False
    predicts_numbers = True
    most_rows = 20_000

    def make(
        self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any
    ) -> SVC | SVR | CalibratedClassifierCV:
        gamma = 1 / (settings["width"] ** 2 * x.shape[1] * (float(x.var()) or 1.0))
        if not classes:
            scale = float(y.std()) or 1.0  # as if the numbers had a deviation of 1
            return SVR(C=settings["cost"] * scale, epsilon=0.1 * scale, gamma=gamma)
        machine = SVC(C=settings["cost"], gamma=gamma)
        if (
            np.unique(y, return_counts=True)[1].min() < FOLDS
        ):  # too few rows of a class to validate on: its scores stand for themselves
            return machine
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        return CalibratedClassifierCV(machine, cv=folds, ensemble=False)
