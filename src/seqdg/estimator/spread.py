"""The mean of one value per domain, and how well it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Spread:
    """A mean over domains with its standard error and the limits of its 95 % interval; None where one domain says
    nothing of how domains differ."""

    mean: float
    error: float | None = None
    low: float | None = None
    high: float | None = None


def estimate_spread(values: Sequence[float] | NDArray[np.float64]) -> Spread:
    """Estimate mean +- t(n - 1) * s / sqrt(n) from the values of n domains, those that are not finite left out."""
    known = [float(v) for v in values if math.isfinite(v)]
    if not known:
        return Spread(math.nan)
    mean = float(np.mean(known))
    if len(known) < 2:
        return Spread(mean)
    error = float(np.std(known, ddof=1)) / math.sqrt(len(known))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(known) - 1)) * error
    return Spread(mean, error, mean - reach, mean + reach)


def make_records_frame(rows: list[dict[str, Any]]) -> Any:
    """Make a pandas frame of rows, or return them as they are where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        return rows
    return pd.DataFrame(rows)
