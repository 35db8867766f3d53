"""The mean of one value per domain and its 95 % interval, and files of an analysis."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from seqdg.report import MISSING, Figure, can_draw, write_figures
from seqdg.results import make_directory

LEVEL = 0.95


@dataclass(frozen=True)
class Spread:
    """A mean over domains with its standard error and 95 % interval, which are None if there is one domain alone."""

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


def write_analysis(folder: Path, frames: Mapping[str, Any], figure: Figure) -> list[Path]:
    """Write each frame as NAME.csv and the figure as SVG, and return the paths."""
    make_directory(folder, "--out")
    paths = [folder / f"{name}.csv" for name in frames]
    for path, frame in zip(paths, frames.values(), strict=True):
        frame.to_csv(path, index=False)
    if not can_draw():
        print(f"There is no picture. {MISSING}", file=sys.stderr)
        return paths
    return [*paths, *write_figures([figure], folder, ["svg"])]
