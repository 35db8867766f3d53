"""Trackers: what they are handed of a trial and of the table, and what they do with it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from seqdg.results.criteria import CRITERIA, choose_usual, find_unit
from seqdg.results.curves import list_ends
from seqdg.results.record import Record
from seqdg.results.select import average_finite, select_outcomes
from seqdg.results.summary import AVERAGE, Cell, format_cell, summarize

Series = dict[str, list[tuple[int, float]]]  # by name, the values and the steps after which they were measured


class Tracker(Protocol):
    """Writes trials and the table of a run to a tool."""

    name: str

    def list_known(self) -> set[str]:
        """Return the keys of the trials that the tool has whole."""

    def add(self, trial: TrackedTrial) -> None:
        """Write a trial. What an interrupted call left of it is replaced."""

    def show(self, table: Table) -> None:
        """Write the table in place of the one before."""


@dataclass(frozen=True)
class TrackedTrial:
    """A trial as trackers see it: its names, its settings and its curves."""

    key: str
    algorithm: str
    held_out: str
    seed: int
    status: str
    finished: float
    seconds: float
    settings: Mapping[str, Any]  # of the algorithm and of its training, by name
    series: Series

    @property
    def path(self) -> str:
        """`agg/photo/seed-0-1f3a5b7c`: its key tells candidates of a search apart."""
        names = (_make_safe(name) for name in (self.algorithm, self.held_out))
        return "/".join([*names, f"seed-{self.seed}-{self.key[:8]}"])

    def list_points(self) -> list[tuple[int, dict[str, float]]]:
        """List the values of all curves by step, the first step first."""
        points: dict[int, dict[str, float]] = {}
        for name, curve in self.series.items():
            for step, value in curve:
                points.setdefault(step, {})[name] = value
        return sorted(points.items())

    def find_time(self, step: int) -> float:
        """Say when it had taken so many steps, in seconds since 1970, as if all took the same time."""
        last = max((s for curve in self.series.values() for s, _ in curve), default=0)
        return self.finished - self.seconds * (1 - step / last if last else 0.0)


def describe_trial(record: Record) -> TrackedTrial:
    """Return what is tracked of a record."""
    about = record.description
    return TrackedTrial(
        key=record.key,
        algorithm=record.algorithm,
        held_out="+".join(record.held_out),
        seed=record.seed,
        status=record.status,
        finished=record.finished,
        seconds=record.seconds,
        settings={**about["protocol"], **about.get("settings", {})},
        series=_list_series(record),
    )


def _list_series(record: Record) -> Series:
    """Return the training loss, the criteria on each held-out domain, and their means over the sources."""
    series: Series = {}
    last = record.history[-1].step if record.history else len(record.losses)
    if record.losses:
        series["loss"] = list(zip(list_ends(last, len(record.losses)), record.losses, strict=True))
    for e in record.history:
        for name, values in e.source.items():
            series.setdefault(f"source/{name}", []).append((e.step, average_finite(values)))
        for name, values in e.held_out.items():
            for domain, value in zip(record.held_out, values, strict=False):
                place = "held_out" if len(record.held_out) == 1 else f"held_out/{_make_safe(domain)}"
                series.setdefault(f"{place}/{name}", []).append((e.step, value))
    return series


@dataclass(frozen=True)
class Table:
    """The table of a run: means and standard errors by held-out domain and algorithm."""

    title: str
    cells: Sequence[Cell]
    digits: int

    @property
    def averages(self) -> dict[str, float]:
        """The average over held-out domains, by algorithm."""
        return {c.algorithm: c.mean for c in self.cells if c.held_out == AVERAGE and c.mean is not None}

    def list_rows(self) -> list[list[str]]:
        """List the names of the columns, then a row for each held-out domain."""
        algorithms = list(dict.fromkeys(c.algorithm for c in self.cells))
        by_place = {(c.held_out, c.algorithm): c for c in self.cells}
        rows = [
            [name, *(format_cell(by_place.get((name, a)), self.digits) for a in algorithms)]
            for name in dict.fromkeys(c.held_out for c in self.cells)
        ]
        return [["held out", *algorithms], *rows]

    def write_markdown(self) -> str:
        head, *rows = self.list_rows()
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + ["", self.title, ""])

    def write_csv(self) -> str:
        """Write every cell with every digit."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["algorithm", "held_out", "mean", "stderr", "trials"])
        writer.writerows([c.algorithm, c.held_out, c.mean, c.stderr, c.trials] for c in self.cells)
        return text.getvalue()


def make_table(records: Sequence[Record], rule: str) -> Table:
    """Return the table of these records, as the rule selects."""
    criterion = choose_usual({name for r in records for e in r.history[-1:] for name in e.held_out})
    unit = CRITERIA[criterion]
    cells = summarize(select_outcomes(records, rule, criterion), unit.factor, unit.higher_is_better)
    title = f"{unit.title} on the held-out domain: mean ± standard error, selected by {rule}."
    return Table(title, cells, find_unit(criterion, [cell.mean for cell in cells]).digits)


def _make_safe(name: str) -> str:
    """Return a name that any tool takes as part of a path."""
    return "".join(ch if ch.isalnum() or ch in "+-_." else "_" for ch in name).strip(".") or "_"
