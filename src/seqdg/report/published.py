"""The paper's published numbers, to set beside those of a run, and how the protocols differ."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from seqdg.base import UsageError
from seqdg.report.departures import list_departures
from seqdg.results import AVERAGE, Cell, Record, drop_label

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper; `values` are by (row, column), as printed, in percent."""

    name: str
    place: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: Mapping[tuple[str, str], float]
    protocol: Mapping[str, Any]  # what the paper says about its net, inputs, split, steps, optimizer and trials
    unprinted: Mapping[str, str]  # columns that its source alone has: "commented out", or "cut"


@dataclass(frozen=True)
class PaperColumns:
    """The columns of the paper's table that belong to the algorithms of a run."""

    table: PaperTable
    columns: Mapping[str, str]  # the paper's name of each algorithm
    values: Mapping[tuple[str, str], float]  # by (held-out, algorithm), in our names
    notes: tuple[str, ...]  # what to know before comparing
    source: str = "paper"  # who published them, as tables call it


@cache
def _read_content() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((files("seqdg") / "report" / "paper.toml").read_text(encoding="utf-8"))
    return content


def cite() -> str:
    """Return the reference of the paper."""
    return str(_read_content()["source"])


@cache
def load_tables() -> dict[str, PaperTable]:
    """Return the tables of accuracy by name: ixmas, vlcs, pacs, pacs-alexnet. Columns that are printed come first."""
    tables = {}
    for name, table in _read_content()["tables"].items():
        rest = {k: v for k, v in table.items() if k not in ("place", "title", "columns", "rows", "unprinted")}
        printed, others = tuple(table["columns"]), table.get("unprinted", {})
        values = {(r, c): v for r, line in table["rows"].items() for c, v in zip(printed, line, strict=True)}
        values |= {(r, c): others[c][r] for c in others for r in table["rows"]}
        tables[name] = PaperTable(
            name=name,
            place=table["place"],
            title=table["title"],
            columns=(*printed, *others),
            rows=tuple(table["rows"]),
            values=values,
            protocol={**_read_content()["protocol"], **rest},
            unprinted={column: other["place"] for column, other in others.items()},
        )
    return tables


def load_settings(table: str) -> dict[str, dict[str, Any]]:
    """Return the settings that appendix C gives for a table, by the names of our algorithms."""
    settings: dict[str, dict[str, Any]] = {name: dict(s) for name, s in _read_content()["settings"][table].items()}
    return {**settings, "s-mldg": settings["fo-s-mldg"]}


def find_wrong_averages(table: PaperTable) -> dict[str, float]:
    """Return the columns whose printed average is not the mean of their rows, even to rounding, with that mean."""
    means = {}
    for column in table.columns:
        mean = fmean(table.values[row, column] for row in table.rows if row != AVERAGE)
        if abs(mean - table.values[AVERAGE, column]) > 0.0501:
            means[column] = mean
    return means


def load_minutes() -> dict[str, float]:
    """Return the minutes of training by column, from the cost table."""
    return {str(name): float(minutes) for name, minutes in _read_content()["cost"]["minutes"].items()}


def find_column(algorithm: str) -> str | None:
    """Return the paper's name of one of our algorithms."""
    for column, ours in _read_content()["columns"].items():
        if algorithm in ours:
            return str(column)
    return None


def set_beside(
    cells: Sequence[Cell], records: Sequence[Record], benchmark: str, select: str = "source-val"
) -> PaperColumns:
    """Return the paper's numbers to set beside those of a run; a UsageError where there are none."""
    table = find_table(benchmark, records)
    if table is None:
        raise UsageError(
            f"The paper has no table for '{benchmark}': it has IXMAS, VLCS and PACS (with ResNet-18 and with AlexNet). "
            "Leave out --against."
        )
    held_out = list_held_out(records)
    rows = {d: row for d in held_out if (row := find_row(table, d)) is not None}
    algorithms = dict.fromkeys(c.algorithm for c in cells)
    columns = {a: c for a in algorithms if (c := find_column(drop_label(a))) is not None and c in table.columns}
    rows[AVERAGE] = AVERAGE
    values = {(d, a): table.values[row, column] for d, row in rows.items() for a, column in columns.items()}
    return PaperColumns(table, columns, values, tuple(_write_notes(table, rows, columns, cells, records, select)))


def find_table(benchmark: str, records: Sequence[Record]) -> PaperTable | None:
    """Return the paper's table for the benchmark of this name, or one with the domains of the run."""
    tables, held_out = load_tables(), list_held_out(records)
    for family in _read_content()["domains"]:
        named = benchmark.lower().startswith(family)
        full = family != "ixmas" and all(len(d) > 1 for d in held_out)
        if (named or full) and held_out and all(find_row(tables[family], d) is not None for d in held_out):
            nets = {r.description["net"]["name"] for r in records}
            return tables["pacs-alexnet"] if family == "pacs" and nets == {"alexnet"} else tables[family]
    return None


def list_held_out(records: Sequence[Record]) -> list[str]:
    """Return every domain that a trial of the run's tables holds out, once."""
    return list(dict.fromkeys(domain for r in records if r.is_tabled for domain in r.held_out))


def find_row(table: PaperTable, domain: str) -> str | None:
    """Return the table's name of a domain, under whatever name it goes."""
    family = table.name.partition("-")[0]
    for row, names in _read_content()["domains"][family].items():
        if _simplify(domain) in {_simplify(row), *map(_simplify, names)}:
            return str(row)
    return None


def describe_trials(cells: Sequence[Cell]) -> str:
    """Say how many trials the cells have: `3`, `2 to 3`."""
    trials = sorted({c.trials for c in cells if c.held_out not in (AVERAGE,) and c.trials})
    return " to ".join(str(n) for n in sorted({trials[0], trials[-1]})) if trials else "none"


def _simplify(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum())


def _write_notes(
    table: PaperTable,
    rows: Mapping[str, str],
    columns: Mapping[str, str],
    cells: Sequence[Cell],
    records: Sequence[Record],
    select: str,
) -> list[str]:
    paper = table.protocol
    notes = [f"Published: {table.title} ({table.place} of {cite()}). It gives no standard errors."]
    notes += list_departures(paper, load_settings(table.name), len(table.rows) - 2, records)
    if "trials" not in paper:
        notes.append(f"Trials: the paper does not say how many; here {describe_trials(cells)}.")
    elif (here := describe_trials(cells)) != str(paper["trials"]):
        notes.append(f"Trials: {paper['trials']} in the paper, {here} here.")
    notes.append(f"Selection: the paper does not say how it chose steps and settings; here by {select}.")
    missing = [row for row in table.rows if row not in rows.values()]
    if missing:
        notes.append(f"Average: the paper's is over all its domains; this run did not hold out {', '.join(missing)}.")
    notes += [paper["note"]] if "note" in paper else []
    notes += [text for column, text in _read_content()["notes"].items() if column in columns.values()]
    for column, mean in find_wrong_averages(table).items():
        if column in columns.values():
            average = table.values[AVERAGE, column]
            notes.append(f"The paper prints {average} as the average of {column}; the mean of its rows is {mean:.1f}.")
    others = [c for c in table.columns if c not in columns.values()]
    printed = [c for c in others if c not in table.unprinted]
    if printed:
        notes.append(f"In the paper's table but not in this run: {', '.join(printed)}.")
    for why in dict.fromkeys(table.unprinted.values()):
        hidden = [c for c in others if table.unprinted.get(c) == why]
        if hidden:
            numbers = ", ".join(f"{c} {table.values[AVERAGE, c]:.1f}" for c in hidden)
            notes.append(f"In the source of the paper's table, but {why}, and not in this run (averages): {numbers}.")
    alone = [a for a in dict.fromkeys(c.algorithm for c in cells) if a not in columns]
    if alone:
        notes.append(f"In this run but not in the paper's table: {', '.join(alone)}.")
    return notes
