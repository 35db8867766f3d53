"""Estimators of scikit-learn as learners: those of `learners/` by name, and any object of the user's own."""

from __future__ import annotations

import multiprocessing
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from seqdg.base import UsageError
from seqdg.bench.array_learner import ArrayLearner, Arrays, Packed, Predict
from seqdg.bench.estimator_identity import describe_estimator
from seqdg.bench.skops_file import check_skops, read_skops, write_skops
from seqdg.bench.task import Task
from seqdg.bench.trial import Trial
from seqdg.core import Settings
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
    """A learner that scikit-learn fits to the rows of all sources together. A subclass has `settings` and `make`.

    A setting `balance` weighs rows so that every domain counts the same.
    """

    weighs = True
    most_rows: ClassVar[int | None] = None  # a task must have fewer; None: any number

    @abstractmethod
    def make(self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any) -> Any:
        """Make the estimator for these rows, unfitted. classes: 0 where numbers are predicted."""

    def choose_rows(self, y: Arrays, domain: Arrays, classes: int, **settings: Any) -> Arrays | None:
        """Choose the rows to fit, by number; None: all."""
        return None

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
        rows = self.choose_rows(y, domain, classes, **settings)
        if rows is not None:
            x, y, domain, weight = x[rows], y[rows], domain[rows], None if weight is None else weight[rows]
        estimator = self.make(x, y, classes, seed, **settings)
        if settings.get("balance", False):
            counts = np.bincount(domain)
            shares = (len(y) / (len(counts) * counts))[domain]
            weight = shares if weight is None else weight * shares
        labels = np.unique(y) if classes else np.empty(0, np.int64)
        if classes and len(labels) == 1:  # which most estimators refuse
            estimator = DummyClassifier()
        weights = {} if weight is None else {_name_weights(estimator): weight}
        routing = config_context(enable_metadata_routing=False)  # a pipeline then takes weights by the step's name
        with threadpool_limits(1), warnings.catch_warnings(), routing:
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
        return pack_estimator(predict)

    def unpack(self, packed: Packed) -> Predict:
        return unpack_estimator(packed)

    def check_saving(self) -> None:
        check_skops()


class OwnEstimatorLearner(EstimatorLearner):
    """An estimator or pipeline of the user's own, unfitted. It stays as it is: every trial fits a copy."""

    predicts_numbers = True  # `check` asks the object

    def __init__(self, unfitted: OwnEstimator) -> None:
        self.unfitted = unfitted
        self.weighs = _takes_weights(unfitted.estimator)  # type: ignore[misc]  # the user's object says so

    def build_settings(self, name: str, **settings: Any) -> Settings:
        changed = {k: v for k, v in settings.items() if v != self.unfitted}
        if changed:
            raise UsageError(f"{name} is an object of your own: set {', '.join(changed)} on the object itself.")
        return OwnSettings(self.unfitted)

    def read_settings(self, trial: Trial) -> dict[str, Any]:
        return {}

    def make(self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any) -> Any:
        """Copy it. A part that draws at random and has no random state of its own draws by the trial's seed."""
        estimator = clone(self.unfitted.estimator)
        known = estimator.get_params(deep=True)
        drawing = {k: seed for k, v in known.items() if v is None and k.rpartition("__")[2] == "random_state"}
        inside = multiprocessing.parent_process() is not None  # a worker has one core
        alone = {k: 1 for k in known if inside and k.rpartition("__")[2] == "n_jobs"}
        return estimator.set_params(**drawing, **alone)

    def check(self, trial: Trial, task: Task, net: Net) -> None:
        super().check(trial, task, net)
        regression = task.dataset().is_regression
        if (is_regressor if not regression else is_classifier)(self.unfitted.estimator):
            has, gives = ("numbers", "classes") if regression else ("classes", "numbers")
            raise UsageError(f"{trial.short_name} predicts {gives}, and {task.name} has {has}: choose another.")


@dataclass(frozen=True, eq=False)
class OwnEstimator:
    """An unfitted estimator of the user's own; equal to another of the same class with the same parameters."""

    estimator: Any

    def __str__(self) -> str:
        """Describe the estimator exactly, for records."""
        return describe_estimator(self.estimator)

    def __repr__(self) -> str:
        """Describe the estimator briefly, for people."""
        return " ".join(repr(self.estimator).split())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEstimator) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True)
class OwnSettings(Settings):
    """The settings of a trial with the user's own estimator: the estimator itself."""

    estimator: OwnEstimator | None = None

    def __post_init__(self) -> None:
        """Check nothing: the estimator is as the user made it."""


def is_estimator(candidate: Any) -> bool:
    """Say whether an object has the methods of a scikit-learn estimator."""
    parts = ("fit", "predict", "get_params")
    return not isinstance(candidate, type) and all(hasattr(candidate, name) for name in parts)


def name_estimator(estimator: Any) -> str:
    """Name an estimator by its class, a pipeline by that of its last step."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return type(last).__name__


def _takes_weights(estimator: Any) -> bool:
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return hasattr(last, "fit") and has_fit_parameter(last, "sample_weight")


def _name_weights(estimator: Any) -> str:
    """Name the weights of rows as `fit` takes them: those of a pipeline go to its last step."""
    return f"{estimator.steps[-1][0]}__sample_weight" if isinstance(estimator, Pipeline) else "sample_weight"


def pack_estimator(predict: FittedEstimator) -> Packed:
    """Return a fitted estimator as bytes; refuse what is not of scikit-learn."""
    content = write_skops(predict.estimator)
    arrays: dict[str, Arrays] = {BYTES: np.frombuffer(bytearray(content), np.uint8), "labels": predict.labels}
    return Packed(arrays, {"classes": predict.classes})


def unpack_estimator(packed: Packed) -> FittedEstimator:
    """Read a fitted estimator: what is not of scikit-learn is refused, and nothing is unpickled."""
    estimator = read_skops(packed.arrays[BYTES].tobytes())
    return FittedEstimator(estimator, packed.arrays["labels"], packed.values["classes"])
