"""Means and standard errors over trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    domains = list(dict.fromkeys(o.held_out for o in outcomes))
    cells = []
    for algorithm in dict.fromkeys(o.algorithm for o in outcomes):
        results = [o for o in outcomes if o.algorithm == algorithm]

        def make_cell(row: str, values: Sequence[float], tried: Sequence[Outcome], name: str = algorithm) -> Cell:
            diverged = sum(o.value is None for o in tried)
            return Cell(name, row, *mean_and_error(values, SPREADS[spread]), len(values), diverged)

        rows, by_seed = [], dict[int, list[float]]()
        for domain in domains:
            if tried := [o for o in results if o.held_out == domain]:
                known = {o.seed: factor * o.value for o in tried if is_known(o.value)}
                rows.append(make_cell(name_row(domain), list(known.values()), tried))
                for seed, value in known.items():
                    by_seed.setdefault(seed, []).append(value)
        whole = [fmean(values) for values in by_seed.values() if len(values) == len(domains)]
        cells += [*rows, make_cell(AVERAGE, whole, results), _find_worst(rows, len(domains), higher)]
        if joined := {o.seed: factor * o.together for o in results if is_known(o.together)}:
            cells.append(make_cell(TOGETHER, list(joined.values()), results))
    return cells


def name_row(domain: str) -> str:
    """Return the name of a domain's row, also where the domain is called `average`, `worst` or `together`."""
    return f"{domain} (domain)" if domain in SUMMARIES else domain


def is_known(value: float | None) -> TypeGuard[float]:
    """Say whether there is a value: training did not diverge and the criterion is defined (AUROC needs two classes)."""
    return value is not None and math.isfinite(value)


def _find_worst(rows: Sequence[Cell], domains: int, higher: bool) -> Cell:
    """Return the worst domain where every domain has a value; otherwise the worst may be one that is missing."""
    reached = [(row.mean, row) for row in rows if row.mean is not None]
    if len(reached) < domains:
        return Cell(rows[0].algorithm, WORST, None, None, 0, sum(row.diverged for row in rows))
    return replace((min if higher else max)(reached, key=lambda pair: pair[0])[1], held_out=WORST)


def mean_and_error(values: Sequence[float], ddof: int = 1) -> tuple[float | None, float | None]:
    """Return the mean m of n values and its standard error,  sqrt(sum (x - m)^2 / (n - ddof)) / sqrt(n)."""
    if not values:
        return None, None
    deviation = stdev if ddof else pstdev
    return fmean(values), deviation(values) / math.sqrt(len(values)) if len(values) > 1 else None
