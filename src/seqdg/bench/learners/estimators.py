"""Estimators of scikit-learn as learners: those with a name, and any object of the user's own."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import multiprocessing
import types
import warnings
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from seqdg.base import UsageError, refuse_broken
from seqdg.bench.learners.array_learner import ArrayLearner, Arrays, Packed, Predict, choose_rows, weigh_domains
from seqdg.bench.learners.contract import register_learner
from seqdg.bench.task import Task, Trial
from seqdg.core import Range, Settings
from seqdg.nets import Net
from seqdg.training import spread

BYTES = "skops"  # the array that holds a fitted estimator


@dataclass(frozen=True)
class FittedEstimator:
    """A fitted estimator that predicts rows of single precision, as those of training were."""

    estimator: Any
    labels: NDArray[np.int64]  # (class met,); none for regression
    classes: int

    def __call__(self, rows: Arrays) -> Arrays:
        x = np.asarray(rows, np.float32).astype(np.float64)
        with threadpool_limits(1):
            if not self.classes:
                return np.asarray(self.estimator.predict(x), np.float64).reshape(-1)
            return spread(self._predict_met(x), self.labels, self.classes)

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
        """Make the estimator for these rows, unfitted. classes: 0 for regression."""

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
        weight = weigh_domains(weight, domain, settings.get("balance", False))
        labels = np.unique(y) if classes else np.empty(0, np.int64)
        if classes and len(labels) == 1:  # which most estimators refuse
            estimator = DummyClassifier()
        weights = {} if weight is None else {_name_weights(estimator): weight}
        routing = config_context(enable_metadata_routing=False)  # a pipeline then takes weights by the step's name
        with threadpool_limits(1), warnings.catch_warnings(), routing:
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(x.astype(np.float64), y, **weights)
        return FittedEstimator(estimator, labels, classes)

    def check(self, trial: Trial, task: Task, net: Net | None) -> None:
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


class OwnEstimatorLearner(EstimatorLearner):
    """An estimator or pipeline of the user's own, unfitted. It stays as it is: every trial fits a copy."""

    def __init__(self, unfitted: OwnEstimator) -> None:
        self.unfitted = unfitted
        last = _find_last(unfitted.estimator)
        self.weighs = hasattr(last, "fit") and has_fit_parameter(last, "sample_weight")
        self.predicts_numbers = not is_classifier(unfitted.estimator)
        self.tells_classes = not is_regressor(unfitted.estimator)

    def build_settings(self, name: str, **settings: Any) -> Settings:
        changed = {k: v for k, v in settings.items() if v != self.unfitted}
        if changed:
            raise UsageError(f"{name} is an object of your own: set {', '.join(changed)} on the object itself.")
        return OwnSettings(self.unfitted)

    def check_saving(self) -> None:
        write_skops(clone(self.unfitted.estimator))

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
    return type(_find_last(estimator)).__name__


def _find_last(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


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


def describe_estimator(value: Any) -> str:
    """Describe an estimator, or a part of one: `sklearn.linear_model._ridge.Ridge(alpha=1.0, ...)`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    if isinstance(value, Mapping):
        pairs = sorted((describe_estimator(k), describe_estimator(v)) for k, v in value.items())
        return _name(value) + "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    if isinstance(value, set | frozenset):
        return f"{_name(value)}{{{', '.join(sorted(map(describe_estimator, value)))}}}"
    if isinstance(value, list | tuple):
        return f"{_name(value)}[{', '.join(map(describe_estimator, value))}]"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, partial):
        return f"partial({', '.join(map(describe_estimator, (value.func, value.args, value.keywords)))})"
    if isinstance(value, Callable) and hasattr(value, "__qualname__"):  # type: ignore[arg-type]
        return _describe_function(value)
    return _describe_object(value)


def _describe_array(array: np.ndarray[Any, Any]) -> str:
    if array.dtype == object:
        return f"array{array.shape}{describe_estimator(array.tolist())}"
    return f"array{array.shape}{array.dtype.str}{_hash(np.ascontiguousarray(array).tobytes())}"


def _describe_function(function: Any) -> str:
    """Name a function by where it is defined, and by its code where it has some: two lambdas may share a line."""
    where = f"{getattr(function, '__module__', '')}.{function.__qualname__}"
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        where += f" of {describe_estimator(owner)}"
    code = getattr(function, "__code__", None)
    if code is None:
        return where
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    parts = (*_list_code(code), describe_estimator([function.__defaults__, function.__kwdefaults__, inside]).encode())
    return f"{where}#{_hash(*parts)}"


def _list_code(code: types.CodeType) -> Iterable[bytes]:
    """Yield what a function does: its operations, names and constants, those of functions inside it included."""
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _list_code(constant)
        else:
            yield repr(constant).encode()


def _describe_object(value: Any) -> str:
    """Describe an estimator by its parameters, a generator by its state, anything else by what it holds."""
    if hasattr(value, "get_params"):
        held = value.get_params(deep=False)  # what is inside is described in its turn
    elif isinstance(value, np.random.RandomState):
        held = {"state": value.get_state(legacy=False)}
    elif isinstance(value, np.random.Generator):
        held = {"state": value.bit_generator.state}
    else:
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        held = {
            **{name: getattr(value, name) for name in slots if hasattr(value, name)},
            **getattr(value, "__dict__", {}),
        }
    return f"{_name(value)}({', '.join(f'{name}={describe_estimator(held[name])}' for name in sorted(held))})"


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else describe_estimator(kind)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:24]


SCHEMA, IDENTITY = "schema.json", "__id__"  # skops's names of the list of what a file holds, and of an object's number


def write_skops(estimator: Any) -> bytes:
    """Write a fitted estimator, or refuse what is not of scikit-learn, numpy or scipy."""
    import skops.io  # now: it takes a moment

    name = type(estimator).__name__
    end = ". Only models that are made of scikit-learn's own classes can be."
    with refuse_broken(f"A model of {name} cannot be saved", end):  # whatever a foreign class may raise
        content: bytes = skops.io.dumps(estimator)
    foreign = [kind for kind in skops.io.get_untrusted_types(data=content) if not is_of_sklearn(kind)]
    if foreign:
        raise UsageError(
            f"A model of {name} holds {', '.join(foreign)}, and only scikit-learn's own classes are saved, so that "
            "loading a model never runs foreign code. Keep the object in this process, or take another candidate."
        )
    return _make_repeatable(content)


def _make_repeatable(content: bytes) -> bytes:
    """Number objects in the order in which they are listed, in place of their addresses in memory, and leave the time
    out, so that the same model is the same bytes."""
    numbers: dict[Any, int] = {}
    files: dict[str, str] = {}

    def renumber(node: Any) -> Any:
        if isinstance(node, list):
            return [renumber(part) for part in node]
        if not isinstance(node, dict):
            return node
        copy = {key: renumber(value) for key, value in node.items()}
        if "__loader__" in node and isinstance(node.get(IDENTITY), int):
            copy[IDENTITY] = numbers.setdefault(node[IDENTITY], len(numbers) + 1)
        if "__loader__" in node and node.get("file") in names:
            name = node["file"]
            copy["file"] = files.setdefault(name, f"{len(files) + 1}.{name.rpartition('.')[2]}")
        return copy

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as repeatable:
        names = set(archive.namelist()) - {SCHEMA}
        schema = renumber(json.loads(archive.read(SCHEMA)))
        for name in (*files, *sorted(names - set(files))):
            repeatable.writestr(zipfile.ZipInfo(files.get(name, name)), archive.read(name))
        repeatable.writestr(zipfile.ZipInfo(SCHEMA), json.dumps(schema))
    return out.getvalue()


def read_skops(content: bytes) -> Any:
    """Read what `write_skops` wrote; refuse anything else before a part of it is made."""
    import skops.io

    needed = skops.io.get_untrusted_types(data=content)
    foreign = [kind for kind in needed if not is_of_sklearn(kind)]
    if foreign:
        raise UsageError(f"The model holds {', '.join(foreign)}, which is not scikit-learn's own: it is not loaded.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = skops.io.loads(content, trusted=needed)
    for warning in caught:  # above all: that another version of scikit-learn wrote it
        warnings.warn(str(warning.message).splitlines()[0], UserWarning, stacklevel=2)
    return estimator


def is_of_sklearn(kind: str) -> bool:
    """Whether this is the full name of a class, and no function, that scikit-learn itself defines."""
    module, _, name = kind.rpartition(".")
    if not module.startswith("sklearn."):
        return False
    try:
        named = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return False
    return isinstance(named, type) and named.__module__.partition(".")[0] == "sklearn"


@register_learner("logistic")
class Logistic(EstimatorLearner):
    """Logistic regression of the rows of all sources (scikit-learn's `LogisticRegression`).

        min over W, b of  sum_i -log softmax(W x_i + b)_{y_i} + |W|^2 / (2 inverse_decay)

    `ridge` is its counterpart for regression.

    inverse_decay: C, the larger the less the weights are held back.
    balance: weigh rows so that every domain counts the same.
    """

    settings: ClassVar[Mapping[str, Any]] = {"inverse_decay": 1.0, "balance": False}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "inverse_decay": {"above": 0.0, "search": Range(1e-3, 10.0)},
        "balance": {"search": (False, True)},
    }
    draws = False
    simplicity, cost = 0, 0

    def make(self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any) -> LogisticRegression:
        return LogisticRegression(C=settings["inverse_decay"], max_iter=300, tol=1e-3)


@register_learner("ridge")
class RidgeLearner(EstimatorLearner):
    """Least squares with a penalty on the weights, of the rows of all sources (scikit-learn's `Ridge`).

        min over w, b of  sum_i (w' x_i + b - y_i)^2 + decay |w|^2

    It is for regression; `logistic` is its counterpart for classes.

    decay: alpha, how much the weights are held back.
    balance: weigh rows so that every domain counts the same.
    """

    settings: ClassVar[Mapping[str, Any]] = {"decay": 1.0, "balance": False}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "decay": {"least": 0.0, "search": Range(1e-2, 1e3)},
        "balance": {"search": (False, True)},
    }
    draws = False
    simplicity, cost = 1, 0
    tells_classes, predicts_numbers = False, True

    def make(self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any) -> Ridge:
        return Ridge(alpha=settings["decay"])


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
    simplicity, cost = 5, 8
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
        if np.unique(y, return_counts=True)[1].min() < FOLDS:
            return machine  # too few rows of a class to validate on: its scores stand for themselves
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        return CalibratedClassifierCV(machine, cv=folds, ensemble=False)


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
    simplicity, cost = 4, 1
    compares_rows = True
    predicts_numbers = True

    def choose_rows(self, y: Arrays, domain: Arrays, classes: int, **settings: Any) -> Arrays:
        return choose_rows(y if classes else np.zeros(len(y)), domain, settings["most_rows"], 0)

    def make(
        self, x: Arrays, y: Arrays, classes: int, seed: int, **settings: Any
    ) -> KNeighborsClassifier | KNeighborsRegressor:
        kind = KNeighborsClassifier if classes else KNeighborsRegressor
        return kind(n_neighbors=min(settings["neighbors"], len(y)), algorithm="brute")


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
    cost = 4
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


@register_learner("random-forest")
class RandomForest(Forest):
    """The mean of trees of rows drawn with replacement (Breiman, 2001; scikit-learn's `RandomForest...`).

    trees: how many.
    leaf_rows: rows of a leaf, at least.
    features: share of the inputs that a split looks at; 0 means their square root, or a third for regression.
    most_rows: that a tree is grown from.
    balance: weigh rows so that every domain counts the same.
    """

    classifier, regressor = RandomForestClassifier, RandomForestRegressor
    simplicity = 6


@register_learner("extra-trees")
class ExtraTrees(Forest):
    """The mean of trees whose splits are drawn at random (Geurts, Ernst and Wehenkel, 2006; `ExtraTrees...`).

    trees: how many.
    leaf_rows: rows of a leaf, at least.
    features: share of the inputs that a split looks at; 0 means their square root, or a third for regression.
    most_rows: that a tree is grown from.
    balance: weigh rows so that every domain counts the same.
    """

    classifier, regressor = ExtraTreesClassifier, ExtraTreesRegressor
    simplicity = 7


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
    simplicity, cost = 8, 2
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
