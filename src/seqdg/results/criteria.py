"""The criteria by which results are judged, and how two values of one are compared."""

from __future__ import annotations

CRITERIA = ("accuracy", "balanced_accuracy", "log_loss", "calibration_error", "auroc")
HIGHER_IS_BETTER = {
    "accuracy": True,
    "balanced_accuracy": True,
    "log_loss": False,
    "calibration_error": False,
    "auroc": True,
}
DECIMALS = 9  # to which values are compared


def score(value: float, criterion: str) -> float:
    """Return the value as a number of which more is better, rounded so that rounding errors do not decide."""
    return round(value if HIGHER_IS_BETTER[criterion] else -value, DECIMALS)
