"""Estimators of scikit-learn as learners: those of `learners/` by name, and any object of the user's own."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from seqdg.base.errors import UsageError
from seqdg.bench.array_learner import ArrayLearner, Arrays, Packed, Predict
from seqdg.bench.skops_file import check_skops, read_skops, write_skops
from seqdg.bench.task import Task
from seqdg.bench.trial import Trial
from seqdg.nets import Net

BYTES = "skops"  # the array that holds a fitted estimator


@dataclass(frozen=True)
class FittedEstimator:
    """A fitted estimator that predicts rows of single precision, as those of training were."""

    estimator: Any
    labels: NDArray[np.int64]  # (class met,); none where it predicts numbers
    classes: int

    def __call__(self, rows: Arrays) -> Arrays:
        x = np.asarray(rows, np.float32).astype(np.float64)
        with threadpool_limits(1):
            if not self.classes:
                return np.asarray(self.estimator.predict(x), np.float64).reshape(-1)
            everywhere = np.zeros((len(x), self.classes))
            everywhere[:, self.labels] = self._predict_met(x)
        return everywhere

    def _predict_met(self, x: NDArray[np.float64]) -> Arrays:
        """Return probabilities (row, class met): its own, or else made of its scores, or of its choices."""
        if hasattr(self.estimator, "predict_proba"):
            return np.asarray(self.estimator.predict_proba(x))
        if hasattr(self.estimator, "decision_function"):
            scores = np.asarray(self.estimator.decision_function(x))
            if scores.ndim == 1:
                p = expit(scores)
                return np.stack([1 - p, p], axis=1)
            return np.asarray(softmax(scores, axis=1))
        chosen: Arrays = np.asarray(self.estimator.predict(x))
        return np.asarray(chosen[:, None] == self.labels, np.float64)


class EstimatorLearner(ArrayLearner):
    """What scikit-learn fits, to the rows of all sources together. A subclass has `settings` and `make`.

    A setting `balance` weighs rows so that every domain counts the same.
    """

    weighs = True
    most_rows: ClassVar[int | None] = None  # a task must have fewer; None: any number

    @abstractmethod
    def make(self, rows: int, classes: int, seed: int, **settings: Any) -> Any:
        """Make the estimator for so many rows. classes: 0 where numbers are predicted."""

    def fit(
        self,
        x: Arrays,
        y: Arrays,
        domain: Arrays,
        classes: int,
        seed: int,
        weight: Arrays | None = None,
        **settings: Any,
    ) -> Predict:
        balance = settings.pop("balance", False)
        estimator = self.make(len(y), classes, seed, **settings)
        if balance:
            counts = np.bincount(domain)
            shares = (len(y) / (len(counts) * counts))[domain]
            weight = shares if weight is None else weight * shares
        labels = np.unique(y) if classes else np.empty(0, np.int64)
        if classes and len(labels) == 1:  # which most estimators refuse
            estimator = DummyClassifier()
        weights = {} if weight is None else {"sample_weight": weight}
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(x.astype(np.float64), y, **weights)
        return FittedEstimator(estimator, labels, classes)

    def check(self, trial: Trial, task: Task, net: Net) -> None:
        super().check(trial, task, net)
        rows = len(task.dataset().y)
        if self.most_rows is not None and rows >= self.most_rows:
            raise UsageError(
                f"{trial.short_name} compares every row with every other and takes fewer than {self.most_rows:,} rows, "
                f"and {task.name} has {rows:,}: choose another, such as hist-gradient-boosting."
            )

    def pack(self, predict: Predict) -> Packed:
        assert isinstance(predict, FittedEstimator)
        content = write_skops(predict.estimator)
        arrays: dict[str, Arrays] = {BYTES: np.frombuffer(bytearray(content), np.uint8), "labels": predict.labels}
        return Packed(arrays, {"classes": predict.classes})

    def unpack(self, packed: Packed) -> Predict:
        return unpack_estimator(packed)

    def check_saving(self) -> None:
        check_skops()


def unpack_estimator(packed: Packed) -> FittedEstimator:
    """Read a fitted estimator: what is not of scikit-learn is refused, and nothing is unpickled."""
    estimator = read_skops(packed.arrays[BYTES].tobytes())
    return FittedEstimator(estimator, packed.arrays["labels"], packed.values["classes"])
