"""Means and standard errors over trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev
from typing import TypeGuard

from seqdg.base import unknown
from seqdg.results.select import Outcome

AVERAGE, WORST, TOGETHER = SUMMARIES = ("average", "worst", "together")
SPREADS = {"stderr": 1, "stderr-ddof0": 0}  # n trials: the deviation divides by n less this; DomainBed's tables by n


@dataclass(frozen=True)
class Cell:
    """One number of a table, in the unit of its criterion."""

    algorithm: str
    held_out: str  # a domain, or one of SUMMARIES
    mean: float | None
    stderr: float | None  # None with fewer than two trials
    trials: int
    diverged: int = 0


def format_cell(cell: Cell | None, digits: int, plus_minus: str = "±") -> str:
    """`57.5 ± 0.5`; a dash where there is no value."""
    if cell is None:
        return "-"
    if cell.mean is None:
        return "diverged" if cell.diverged else "-"
    error = f" {plus_minus} {cell.stderr:.{digits}f}" if cell.stderr is not None else ""
    diverged = f" ({cell.diverged} diverged)" if cell.diverged else ""
    return f"{cell.mean:.{digits}f}{error}{diverged}"


def summarize(
    outcomes: Sequence[Outcome], factor: float = 100.0, higher: bool = True, spread: str = "stderr"
) -> list[Cell]:
    """Return a cell for each held-out domain, their average (taken within each seed) and the worst of them. Where a
    fixed split holds out several at once, there is also one over all their rows together.

    spread: what ± means, one of `SPREADS`.
    """
    if spread not in SPREADS:
        raise unknown("meaning of ±", spread, SPREADS)
    algorithms = list(dict.fromkeys(o.algorithm for o in outcomes))
    domains = list(dict.fromkeys(o.held_out for o in outcomes))
    cells = []
    for algorithm in algorithms:
        results = [o for o in outcomes if o.algorithm == algorithm]
        by_domain = {d: [o for o in results if o.held_out == d] for d in domains}
        rows = [_make_cell(algorithm, name_row(d), tried, factor, spread) for d, tried in by_domain.items() if tried]
        cells += rows
        cells.append(_make_average(algorithm, results, domains, factor, spread))
        cells.append(_make_worst(algorithm, rows, len(domains), higher))
        joined = {o.seed: factor * o.together for o in results if is_known(o.together)}
        if joined:
            lost = sum(o.value is None for o in results)
            cells.append(
                Cell(algorithm, TOGETHER, *mean_and_error(list(joined.values()), SPREADS[spread]), len(joined), lost)
            )
    return cells


def name_row(domain: str) -> str:
    """Return the name of a domain's row, also where the domain is called `average`, `worst` or `together`."""
    return f"{domain} (domain)" if domain in SUMMARIES else domain


def is_known(value: float | None) -> TypeGuard[float]:
    """Say whether there is a value: training did not diverge and the criterion is defined (AUROC needs two classes)."""
    return value is not None and math.isfinite(value)


def _make_cell(algorithm: str, held_out: str, outcomes: Sequence[Outcome], factor: float, spread: str) -> Cell:
    values = [factor * o.value for o in outcomes if is_known(o.value)]
    lost = sum(o.value is None for o in outcomes)
    return Cell(algorithm, held_out, *mean_and_error(values, SPREADS[spread]), len(values), lost)


def _make_average(
    algorithm: str, outcomes: Sequence[Outcome], domains: Sequence[str], factor: float, spread: str
) -> Cell:
    """Average over the seeds for which every domain has a value."""
    by_seed: dict[int, list[float]] = {}
    for o in outcomes:
        if is_known(o.value):
            by_seed.setdefault(o.seed, []).append(factor * o.value)
    whole = [fmean(values) for values in by_seed.values() if len(values) == len(domains)]
    diverged = sum(o.value is None for o in outcomes)
    return Cell(algorithm, AVERAGE, *mean_and_error(whole, SPREADS[spread]), len(whole), diverged)


def _make_worst(algorithm: str, rows: Sequence[Cell], domains: int, higher: bool) -> Cell:
    """Return the worst domain where every domain has a value; otherwise the worst may be one that is missing."""
    reached = [(row.mean, row) for row in rows if row.mean is not None]
    if len(reached) < domains:
        return Cell(algorithm, WORST, None, None, 0, sum(row.diverged for row in rows))
    _, low = (min if higher else max)(reached, key=lambda pair: pair[0])
    return Cell(algorithm, WORST, low.mean, low.stderr, low.trials, low.diverged)


def mean_and_error(values: Sequence[float], ddof: int = 1) -> tuple[float | None, float | None]:
    """Return the mean m of n values and its standard error,  sqrt(sum (x - m)^2 / (n - ddof)) / sqrt(n)."""
    if not values:
        return None, None
    deviation = stdev if ddof else pstdev
    return fmean(values), deviation(values) / math.sqrt(len(values)) if len(values) > 1 else None
