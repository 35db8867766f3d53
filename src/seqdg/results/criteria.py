"""The criteria by which results are judged: one table. `seqdg.training.metrics` computes the value of each."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from statistics import median


@dataclass(frozen=True)
class Unit:
    """A criterion: how its values are compared and printed, and for which data it is defined."""

    title: str
    higher_is_better: bool = True
    factor: float = 100.0
    digits: int = 1
    points: str = "points"  # the unit of a difference
    least_classes: int = 2
    most_classes: int | None = None  # None: any number
    by_group: bool = False  # whether it judges groups of rows, which not all data have
    has_size: bool = False  # whether it grows with the targets, so that no number of digits suits all

    @property
    def sign(self) -> str:
        """The unit that follows a value in a sentence: `" %"` or nothing."""
        return " %" if self.is_share else ""

    @property
    def is_of_numbers(self) -> bool:
        """True where it judges regression, not classification."""
        return self.most_classes == 0

    @property
    def is_share(self) -> bool:
        """True where its values lie between 0 and 1."""
        return self.factor == 100.0 and not self.is_of_numbers

    def is_defined(self, classes: int, groups: int = 0) -> bool:
        """Say whether there is a value for so many classes and groups of rows. 0 classes: regression."""
        if self.by_group and not groups:
            return False
        return self.least_classes <= classes and (self.most_classes is None or classes <= self.most_classes)

    @property
    def scope(self) -> str:
        """The data for which it is defined, in words; empty for all."""
        if self.by_group:
            return "data with groups (group_column in [data])"
        if self.is_of_numbers:
            return "regression"
        if self.most_classes is None:
            return f"{self.least_classes} or more classes" if self.least_classes > 2 else ""
        if self.least_classes == self.most_classes:
            return "two classes" if self.most_classes == 2 else f"{self.most_classes} classes"
        return f"{self.least_classes} to {self.most_classes} classes"


CRITERIA = {
    "accuracy": Unit("Accuracy in %"),
    "balanced_accuracy": Unit("Balanced accuracy in %"),
    "log_loss": Unit("Log-loss", higher_is_better=False, factor=1.0, digits=3, points=""),
    "calibration_error": Unit("Expected calibration error in %", higher_is_better=False),
    "auroc": Unit("Area under the ROC curve in %", most_classes=2),
    "macro_f1": Unit("Macro-F1 in %"),
    "worst_class": Unit("Accuracy on the worst class in %"),
    "top5": Unit("Top-5 accuracy in %", least_classes=6),
    "worst_group": Unit("Accuracy on the worst group in %", by_group=True),
    "group_p10": Unit("10th percentile of the accuracy over groups in %", by_group=True),
    "rmse": Unit("Root mean squared error", False, 1.0, 3, "", least_classes=0, most_classes=0, has_size=True),
    "mae": Unit("Mean absolute error", False, 1.0, 3, "", least_classes=0, most_classes=0, has_size=True),
    "r2": Unit("R²", True, 1.0, 3, "", least_classes=0, most_classes=0),
    "pearson": Unit("Pearson correlation", True, 1.0, 3, "", least_classes=0, most_classes=0),
}
USUAL = ("accuracy", "rmse")  # of classes, and of numbers: what is shown where nothing else is asked for
LOSSES = ("log_loss", "rmse")  # what says whether training stayed finite
WORDS = {"auroc": "AUROC", "rmse": "RMSE", "mae": "mean absolute error", "r2": "R²", "pearson": "correlation"}
DECIMALS = 9  # to which values are compared; of those that have a size, one significant digit more


def score(value: float, criterion: str) -> float:
    """Return the value as a number of which more is better, rounded so that rounding errors do not decide."""
    unit = CRITERIA[criterion]
    more = value if unit.higher_is_better else -value
    return float(f"{more:.{DECIMALS + 1}g}") if unit.has_size else round(more, DECIMALS)


def find_unit(criterion: str, values: Iterable[float | None]) -> Unit:
    """Return the unit of a criterion, with more digits where these values would be printed as 0.000."""
    unit = CRITERIA[criterion]
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v]
    if not (unit.has_size and sizes):
        return unit
    return replace(unit, digits=max(unit.digits, 2 - math.floor(math.log10(median(sizes)))))


def name_criterion(criterion: str) -> str:
    """Name a criterion in a sentence."""
    return WORDS.get(criterion, criterion.replace("_", " "))


def choose_usual(known: Container[str]) -> str:
    """Choose what is shown and selected by where nothing else is asked for, of the criteria that a run has."""
    return next((name for name in USUAL if name in known), USUAL[0])


def choose_loss(known: Container[str]) -> str:
    """Choose the criterion that is finite as long as the training is, of those that an evaluation has."""
    return next((name for name in LOSSES if name in known), LOSSES[0])
