"""The table of a paper: algorithms × data sets, from several runs, each judged by a rule of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from seqdg import results
from seqdg.base import UsageError, join_names, list_some
from seqdg.report.run_contents import list_draws
from seqdg.report.sheet import Sheet, build_sheet


@dataclass(frozen=True)
class SummarySheet(Sheet):
    """A row for each data set, the average over its held-out domains, and one for the average over the data sets.

    parts: the table of every data set, by its name.
    """

    parts: Mapping[str, Sheet] = field(default_factory=dict)
    row_title: ClassVar[str] = "data set"
    row_key: ClassVar[str] = "data_set"

    @property
    def by_algorithm(self) -> bool:
        return True

    @property
    def searched(self) -> bool:
        return any(part.searched for part in self.parts.values())

    @cached_property
    def unit(self) -> results.Unit:
        return next(iter(self.parts.values())).unit

    def find_unit(self, row: str) -> results.Unit:
        return self.parts[row].unit if row in self.parts else self.unit

    @property
    def footnote(self) -> str:
        sentences = self._merge(lambda part: [part.footnote])
        return f"Averages over the held-out domains of each data set. {' '.join(sentences)}"

    @property
    def remarks(self) -> list[str]:
        remarks = self._merge(lambda part: [text for text in part.remarks if not text.startswith("- ")])
        if any(self.value(r, c) == "-" for r in self.rows for c in self.columns):
            remarks.append("- not run on every held-out domain, or not defined there.")
        if results.AVERAGE in self.rows:
            return [*remarks, "average: over the data sets; its ± takes their errors as independent."]
        return [*remarks, "There is no average, as the data sets are judged in different units."]

    def describe_cell(self, cell: results.Cell) -> dict[str, Any]:
        if cell.held_out not in self.parts:
            return {}
        part = self.parts[cell.held_out]
        return {"criterion": part.criterion, **part.describe_cell(cell)}

    def _merge(self, read: Callable[[Sheet], Iterable[str]]) -> list[str]:
        """Return the sentences of all parts, those that not all have after the names of those that have them."""
        owners: dict[str, list[str]] = {}
        for name, part in self.parts.items():
            for sentence in read(part):
                owners.setdefault(sentence, []).append(name)
        every = len(self.parts)
        return [s if len(names) == every else f"{join_names(names)}: {s}" for s, names in owners.items()]


def are_several_sets(paths: Sequence[Path]) -> bool:
    """Whether runs are of several data sets: of several benchmarks, of which two hold out no domain of one name."""
    with ExitStack() as stack:
        runs = [stack.enter_context(closing(results.open_run(path))) for path in paths]
        if len({run.benchmark for run in runs}) == 1:
            return False
        domains = [{r.held_out[0] for r in run.records("accuracy")} for run in runs]
        return any(names and not names & domains[0] for names in domains[1:])


def summarize_runs(
    paths: Sequence[Path],
    select: str = "source-val",
    criterion: str | None = None,
    baseline: str | None = None,
    spread: str = "stderr",
) -> SummarySheet:
    """Build the table of several runs, whose columns are their benchmarks.

    Parameters
    ----------
    paths : sequence of Path
        Run directories or packed runs. Those of one benchmark make one column.
    select, criterion : str
        The rule and the criterion of all, or one for each run in their order, with commas. No criterion: the usual one
        of each, accuracy or the RMSE.
    baseline : str, optional
        The algorithm that stands first.
    spread : str
        What ± means, as in `build_sheet`.
    """
    rules = _deal(select, paths, "--select")
    criteria = _deal(criterion, paths, "--criterion") if criterion else [""] * len(paths)
    parts: dict[str, Sheet] = {}
    with ExitStack() as stack:
        opened: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            with closing(results.open_run(path)) as run:
                opened.setdefault(run.benchmark, []).append(i)
        for name, which in opened.items():
            _check_choice(name, [(rules[i], criteria[i]) for i in which])
            source = stack.enter_context(closing(results.open_runs([paths[i] for i in which])))
            chosen = criteria[which[0]] or results.find_usual_criterion(source)
            draws = list_draws(source.read_commands())
            parts[name] = build_sheet(source.records(chosen), rules[which[0]], chosen, spread=spread, draws=draws)
    if len(parts) == 1:
        raise UsageError(
            f"All of these runs are of {next(iter(parts))}, so there is one data set: leave --summary out."
        )
    names = _order_algorithms(parts, paths, baseline)
    return SummarySheet(_list_cells(parts, names), parts=parts, spread=spread)


def _deal(text: str, paths: Sequence[Path], option: str) -> list[str]:
    """Give every run its own of names with commas, or all the same."""
    names = [name.strip() for name in text.split(",")]
    if len(names) == 1:
        return names * len(paths)
    if len(names) != len(paths):
        raise UsageError(
            f"{option} names {len(names)} for {len(paths)} runs: give one for all of them, or one for each in their "
            "order."
        )
    return names


def _check_choice(name: str, chosen: Sequence[tuple[str, str]]) -> None:
    if len(set(chosen)) > 1:
        raise UsageError(
            f"Several of the runs are of {name}, which has one column, and are given different rules or criteria: give "
            "them the same."
        )


def _order_algorithms(parts: Mapping[str, Sheet], paths: Sequence[Path], baseline: str | None) -> list[str]:
    """List all algorithms in the order of the runs, the baseline first; refuse runs that share none."""
    names = list(dict.fromkeys(name for part in parts.values() for name in part.columns))
    if not any(all(name in part.columns for part in parts.values()) for name in names):
        has = "; ".join(f"{name} has {list_some(part.columns)}" for name, part in parts.items())
        raise UsageError(
            f"No algorithm was run on all of these data sets, so there is nothing to average: {has}. Run one on each "
            "of them, or print their tables one by one."
        )
    if baseline is not None and baseline not in names:
        raise UsageError(f"No run has the baseline {baseline}. Choose one of: {list_some(names)}.")
    return sorted(names, key=lambda name: name != baseline)


def _list_cells(parts: Mapping[str, Sheet], names: Sequence[str]) -> list[results.Cell]:
    """Return the average of each algorithm on each data set, and over all of them where their units are one."""
    units = {(p.unit.factor, p.unit.higher_is_better, p.unit.is_share) for p in parts.values()}
    has_average = len(units) == 1 and next(iter(units))[2]
    cells = []
    for algorithm in names:
        row = []
        for name, part in parts.items():
            known = part.cell(results.AVERAGE, algorithm)
            cell = known or results.Cell(algorithm, "", None, None, 0)
            row.append(results.Cell(algorithm, name, cell.mean, cell.stderr, cell.trials, cell.diverged))
        cells += row
        if has_average:
            cells.append(_average(algorithm, row))
    return cells


def _average(algorithm: str, row: Sequence[results.Cell]) -> results.Cell:
    """Return the mean m_1, ..., m_K over K data sets, with the error  sqrt(se_1^2 + ... + se_K^2) / K."""
    means, errors = [c.mean for c in row if c.mean is not None], [c.stderr for c in row if c.stderr is not None]
    if len(means) < len(row):
        return results.Cell(algorithm, results.AVERAGE, None, None, 0)
    error = math.hypot(*errors) / len(row) if len(errors) == len(row) else None
    return results.Cell(algorithm, results.AVERAGE, fmean(means), error, min(c.trials for c in row))
