"""Means and standard errors over trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from seqdg.report.select import Outcome

AVERAGE, WORST = "average", "worst"


@dataclass(frozen=True)
class Cell:
    """One number of a table, in percent."""

    algorithm: str
    held_out: str  # a domain, or AVERAGE, or WORST
    mean: float | None
    stderr: float | None  # None with fewer than two trials
    trials: int
    diverged: int = 0


def summarize(outcomes: Sequence[Outcome], scale: float = 100.0) -> list[Cell]:
    """Per held-out domain; then the average over them, taken within each seed; then the worst of them."""
    algorithms = list(dict.fromkeys(o.algorithm for o in outcomes))
    domains = list(dict.fromkeys(o.held_out for o in outcomes))
    cells = []
    for algorithm in algorithms:
        own = [o for o in outcomes if o.algorithm == algorithm]
        rows = [_cell(algorithm, d, [o for o in own if o.held_out == d], scale) for d in domains]
        rows = [row for row in rows if row.trials or row.diverged]
        known = [row for row in rows if row.mean is not None]
        cells += rows
        cells.append(_average(algorithm, own, domains, scale))
        if known:
            low = min(known, key=lambda row: row.mean if row.mean is not None else math.inf)
            cells.append(Cell(algorithm, WORST, low.mean, low.stderr, low.trials, low.diverged))
    return cells


def _cell(algorithm: str, held_out: str, outcomes: Sequence[Outcome], scale: float) -> Cell:
    values = [scale * o.value for o in outcomes if o.value is not None]
    return Cell(algorithm, held_out, *mean_and_error(values), len(values), len(outcomes) - len(values))


def _average(algorithm: str, outcomes: Sequence[Outcome], domains: Sequence[str], scale: float) -> Cell:
    """Over the seeds for which every domain has a value."""
    by_seed: dict[int, list[float]] = {}
    for o in outcomes:
        if o.value is not None:
            by_seed.setdefault(o.seed, []).append(scale * o.value)
    whole = [fmean(values) for values in by_seed.values() if len(values) == len(domains)]
    diverged = sum(o.value is None for o in outcomes)
    return Cell(algorithm, AVERAGE, *mean_and_error(whole), len(whole), diverged)


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and standard error of the mean."""
    if not values:
        return None, None
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
