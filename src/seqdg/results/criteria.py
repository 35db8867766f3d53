"""The criteria by which results are judged: one table. `seqdg.training.metrics` computes the value of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """How values of a criterion are compared and printed."""

    title: str
    higher_is_better: bool = True
    factor: float = 100.0
    digits: int = 1
    points: str = "points"  # the unit of a difference


CRITERIA = {
    "accuracy": Unit("Accuracy in %"),
    "balanced_accuracy": Unit("Balanced accuracy in %"),
    "log_loss": Unit("Log-loss", higher_is_better=False, factor=1.0, digits=3, points=""),
    "calibration_error": Unit("Expected calibration error in %", higher_is_better=False),
    "auroc": Unit("Area under the ROC curve in %"),
}
DECIMALS = 9  # to which values are compared


def score(value: float, criterion: str) -> float:
    """Return the value as a number of which more is better, rounded so that rounding errors do not decide."""
    return round(value if CRITERIA[criterion].higher_is_better else -value, DECIMALS)
