"""LightGBM, XGBoost and CatBoost as learners, where they are installed (the extra `boosting`).

Each is called by its own interface, on one thread, so that a seed gives the same trees; a missing value stays one, and
the trees say where it goes. A fitted model is saved in its library's own format, which is data and no code.
"""

from __future__ import annotations

import importlib
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, refuse_broken
from seqdg.bench.learners.array_learner import ArrayLearner, Arrays, Packed, Predict, weigh_domains
from seqdg.bench.learners.contract import register_learner
from seqdg.bench.task import Task, Trial
from seqdg.core import Range
from seqdg.data import OPEN
from seqdg.nets import Net
from seqdg.training import spread

TREES = "trees"  # the array that holds a fitted model in its library's format
MOST_SEED = 2**31 - 1  # that all three take


@dataclass(frozen=True)
class FittedBoosting:
    """Fitted trees, and what their scores stand for."""

    learner: Boosting
    trees: Any  # of the library; None where only one class was met
    labels: NDArray[np.int64]  # (class met,); none for regression
    classes: int
    mean: float = 0.0  # of the numbers that it was fitted to, which the trees see standardized
    deviation: float = 1.0

    def __call__(self, rows: Arrays) -> Arrays:
        x = np.ascontiguousarray(rows, np.float32)
        if not len(x):
            return np.zeros((0, self.classes) if self.classes else 0)
        if not self.classes:
            numbers: Arrays = self.learner.score(self.trees, x).astype(np.float64) * self.deviation + self.mean
            return numbers
        if self.trees is None:
            return spread(np.ones((len(x), 1)), self.labels, self.classes)
        p = self.learner.score(self.trees, x).astype(np.float64)
        p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p / p.sum(axis=1, keepdims=True)
        return spread(p, self.labels, self.classes)


class Boosting(ArrayLearner):
    """Boosted trees of a library. A subclass says how it trains them, what they score, and how they are written."""

    package: ClassVar[str]
    weighs = True
    predicts_numbers = True
    scaling = OPEN
    most_work = 15_000_000  # about a minute of one core

    def check(self, trial: Trial, task: Task, net: Net | None) -> None:
        self.load_library()
        super().check(trial, task, net)

    def load_library(self) -> ModuleType:
        """Import the library; raise a UsageError that says how to get it where it is missing."""
        # A library of another language may raise anything where a part of it is missing.
        with refuse_broken(f"{self.package} is installed and cannot be loaded"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other packages' versions
            try:
                return importlib.import_module(self.package)
            except ImportError:
                raise UsageError(f"{self.package} is not installed: pip install 'seqdg[boosting]'.") from None

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
        x, weight = np.ascontiguousarray(x, np.float32), weigh_domains(weight, domain, settings["balance"])
        seed = seed % MOST_SEED
        if not classes:
            mean = float(np.average(y, weights=weight))
            deviation = float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) or 1.0
            trees = self.train_trees(x, (y - mean) / deviation, weight, 0, seed, **settings)
            return FittedBoosting(self, trees, np.empty(0, np.int64), 0, mean, deviation)
        labels, codes = np.unique(y, return_inverse=True)
        met = len(labels)
        trees = None if met == 1 else self.train_trees(x, codes, weight, met, seed, **settings)
        return FittedBoosting(self, trees, labels.astype(np.int64), classes)

    @abstractmethod
    def train_trees(self, x: Arrays, y: Arrays, weight: Arrays | None, classes: int, seed: int, **settings: Any) -> Any:
        """Train on rows (row, input), NaN where a value is missing. classes: that were met, from 2 on; 0: numbers."""

    @abstractmethod
    def score(self, trees: Any, x: Arrays) -> Arrays:
        """Return numbers (row,), the probability of the second of two classes (row,), or of each of more."""

    @abstractmethod
    def write(self, trees: Any) -> bytes:
        """Write them in the library's own format; the same trees give the same bytes."""

    @abstractmethod
    def read(self, content: bytes) -> Any:
        """Read what `write` has written."""

    def pack(self, predict: Predict) -> Packed:
        assert isinstance(predict, FittedBoosting)
        arrays: dict[str, Arrays] = {"labels": predict.labels}
        if predict.trees is not None:
            arrays[TREES] = np.frombuffer(bytearray(self.write(predict.trees)), np.uint8)
        return Packed(arrays, {"classes": predict.classes, "mean": predict.mean, "deviation": predict.deviation})

    def unpack(self, packed: Packed) -> Predict:
        trees = None
        if TREES in packed.arrays:
            self.load_library()
            with refuse_broken(f"{self.package} cannot read the trees of the model"):  # of another version
                trees = self.read(packed.arrays[TREES].tobytes())
        return FittedBoosting(self, trees, packed.arrays["labels"], **packed.values)

    def check_saving(self) -> None:
        """They can always be saved."""


_COMMON: Mapping[str, Mapping[str, Any]] = {
    "rate": {"above": 0.0, "search": Range(0.02, 0.3)},
    "rounds": {"least": 1},
    "depth": {"least": 1, "most": 16, "search": Range(3, 10)},
    "balance": {"search": (False, True)},
}


@register_learner("lightgbm")
class LightGBM(Boosting):
    """Gradient boosting of trees grown leaf by leaf (Ke et al., NeurIPS 2017; the package `lightgbm`).

    The values are the package's own, without early stopping. It needs the extra `boosting`.

    rate: the learning rate, by which every tree counts.
    rounds: trees, one for each class and round where there are more than two classes.
    leaves: of a tree, at most.
    leaf_rows: of a leaf, at least.
    decay: penalty on the squared value of a leaf.
    balance: weigh rows so that every domain counts the same.
    """

    package = "lightgbm"
    settings: ClassVar[Mapping[str, Any]] = {
        "rate": 0.1, "rounds": 100, "leaves": 31, "leaf_rows": 20, "decay": 0.0, "balance": False,
    }  # fmt: skip
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **{name: _COMMON[name] for name in ("rate", "rounds", "balance")},
        "leaves": {"least": 2, "search": Range(4, 63)},
        "leaf_rows": {"least": 1, "search": Range(5, 100)},
        "decay": {"least": 0.0, "search": Range(1e-3, 10.0)},
    }
    draws = False  # but for which rows the bins are made of, where there are more than 200,000
    simplicity, cost = 9, 3

    def train_trees(self, x: Arrays, y: Arrays, weight: Arrays | None, classes: int, seed: int, **settings: Any) -> Any:
        library = self.load_library()
        goal = {0: {"objective": "regression"}, 2: {"objective": "binary"}}
        how = {
            **goal.get(classes, {"objective": "multiclass", "num_class": classes}),
            "learning_rate": settings["rate"], "num_leaves": settings["leaves"],
            "min_data_in_leaf": settings["leaf_rows"], "lambda_l2": settings["decay"],
            "num_threads": 1, "deterministic": True, "force_row_wise": True, "seed": 0, "verbosity": -1,
        }  # fmt: skip
        rows = library.Dataset(x, y, weight=weight, params={"verbosity": -1}, free_raw_data=True)
        return library.train(how, rows, settings["rounds"])

    def score(self, trees: Any, x: Arrays) -> Arrays:
        return np.asarray(trees.predict(x, num_threads=1))

    def write(self, trees: Any) -> bytes:
        text: str = trees.model_to_string()
        return text.encode()

    def read(self, content: bytes) -> Any:
        return self.load_library().Booster(model_str=content.decode())


@register_learner("xgboost")
class XGBoost(Boosting):
    """Gradient boosting of trees grown level by level (Chen and Guestrin, KDD 2016; the package `xgboost`).

    The values are the package's own, without early stopping. It needs the extra `boosting`.

    rate: the learning rate, by which every tree counts.
    rounds: trees, one for each class and round where there are more than two classes.
    depth: of a tree, at most.
    leaf_weight: the sum of second derivatives of a leaf, at least.
    decay: penalty on the squared value of a leaf.
    balance: weigh rows so that every domain counts the same.
    """

    package = "xgboost"
    settings: ClassVar[Mapping[str, Any]] = {
        "rate": 0.3, "rounds": 100, "depth": 6, "leaf_weight": 1.0, "decay": 1.0, "balance": False,
    }  # fmt: skip
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **_COMMON,
        "leaf_weight": {"least": 0.0, "search": Range(0.3, 30.0)},
        "decay": {"least": 0.0, "search": Range(1e-2, 30.0)},
    }
    draws = False
    simplicity, cost = 9, 2

    def train_trees(self, x: Arrays, y: Arrays, weight: Arrays | None, classes: int, seed: int, **settings: Any) -> Any:
        library = self.load_library()
        goal = {0: {"objective": "reg:squarederror"}, 2: {"objective": "binary:logistic"}}
        how = {
            **goal.get(classes, {"objective": "multi:softprob", "num_class": classes}),
            "eta": settings["rate"], "max_depth": settings["depth"], "min_child_weight": settings["leaf_weight"],
            "lambda": settings["decay"], "tree_method": "hist", "nthread": 1, "seed": 0, "verbosity": 0,
        }  # fmt: skip
        return library.train(how, library.DMatrix(x, y, weight=weight, nthread=1), settings["rounds"])

    def score(self, trees: Any, x: Arrays) -> Arrays:
        return np.asarray(trees.predict(self.load_library().DMatrix(x, nthread=1)))

    def write(self, trees: Any) -> bytes:
        return bytes(trees.save_raw("ubj"))

    def read(self, content: bytes) -> Any:
        trees = self.load_library().Booster({"nthread": 1, "verbosity": 0})
        trees.load_model(bytearray(content))
        return trees


@register_learner("catboost")
class CatBoost(Boosting):
    """Gradient boosting of trees that split a whole level alike (Prokhorenkova et al., NeurIPS 2018; `catboost`).

    It needs the extra `boosting`, and takes several times as long as the others.

    rate: the learning rate, by which every tree counts.
    rounds: trees, each of all classes.
    depth: of a tree.
    decay: penalty on the squared value of a leaf.
    balance: weigh rows so that every domain counts the same.
    """

    package = "catboost"
    settings: ClassVar[Mapping[str, Any]] = {"rate": 0.1, "rounds": 300, "depth": 6, "decay": 3.0, "balance": False}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **_COMMON,
        "decay": {"least": 0.0, "search": Range(0.3, 30.0)},
    }
    simplicity, cost = 10, 7

    def train_trees(self, x: Arrays, y: Arrays, weight: Arrays | None, classes: int, seed: int, **settings: Any) -> Any:
        library = self.load_library()
        goal = {0: "RMSE", 2: "Logloss"}
        trees = library.CatBoost({
            "loss_function": goal.get(classes, "MultiClass"), "learning_rate": settings["rate"],
            "iterations": settings["rounds"], "depth": settings["depth"], "l2_leaf_reg": settings["decay"],
            "random_seed": seed, "thread_count": 1, "allow_writing_files": False, "logging_level": "Silent",
            "allow_const_label": True,
        })  # fmt: skip
        return trees.fit(library.Pool(x, y, weight=weight, thread_count=1))

    def score(self, trees: Any, x: Arrays) -> Arrays:
        kind = "RawFormulaVal" if not trees.classes_.size else "Probability"
        p = np.asarray(trees.predict(x, prediction_type=kind, thread_count=1))
        return p[:, 1] if p.ndim == 2 and p.shape[1] == 2 else p

    def write(self, trees: Any) -> bytes:
        about = trees.get_metadata()
        for name in ("model_guid", "train_finish_time"):  # so that the same trees are the same bytes
            about[name] = ""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trees.cbm"
            trees.save_model(str(path), format="cbm")
            return path.read_bytes()

    def read(self, content: bytes) -> Any:
        return self.load_library().CatBoost().load_model(blob=content)
