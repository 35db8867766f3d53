"""Weights of rows, as users give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, list_some

Weights = NDArray[np.float64]


def read_weights(sample_weight: Any, names: Sequence[str], domain: NDArray[np.int64]) -> Weights | None:
    """Return the weights of rows (row,), or None where all weigh the same.

    domain: (row,) the place of each row's domain among the names.
    """
    if sample_weight is None:
        return None
    try:
        weight = np.array(sample_weight, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise UsageError(f"sample_weight must hold a number for every row: {error}") from None
    if weight.ndim == 0:
        weight = np.full(len(domain), float(weight))
    if weight.shape != domain.shape:
        raise UsageError(
            f"sample_weight has shape {list(weight.shape)}, but there are {len(domain)} rows: give one number for each "
            "(Sample weights must be 1D array or scalar)."
        )
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise UsageError(
            f"sample_weight is below 0 or no number in {count_things(len(wrong), 'row')} (from 0: {list_some(wrong)}): "
            "give numbers of at least 0."
        )
    without = [name for i, name in enumerate(names) if not weight[domain == i].sum() > 0]
    if without:
        raise UsageError(
            f"Every row of {list_some(without)} has weight zero: leave its rows out, or give some of them a weight."
        )
    return None if len(np.unique(weight)) == 1 else weight


def count_effective(weight: Weights) -> int:
    """Count the rows of equal weight that would say as much of a mean,  (sum w)^2 / sum w^2  (Kish, 1965)."""
    scaled = weight / weight.max()  # so that squares stay numbers
    return max(1, round(float(scaled.sum() ** 2 / (scaled**2).sum())))
