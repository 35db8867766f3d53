"""The paper's published numbers, to set beside those of a run, and how the protocols differ."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from seqdg.base.errors import UsageError
from seqdg.results.record import Record
from seqdg.results.summary import AVERAGE, Cell

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
    protocol: Mapping[str, Any]  # what the paper says about its net, inputs, split and trials


@dataclass(frozen=True)
class PaperColumns:
    """The columns of the paper's table that belong to the algorithms of a run."""

    table: PaperTable
    columns: Mapping[str, str]  # the paper's name of each algorithm
    values: Mapping[tuple[str, str], float]  # by (held-out, algorithm), in our names
    notes: tuple[str, ...]  # what to know before comparing


@cache
def _read_content() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((files("seqdg") / "report" / "paper.toml").read_text(encoding="utf-8"))
    return content


def cite() -> str:
    """Return the reference of the paper."""
    return str(_read_content()["source"])


@cache
def load_tables() -> dict[str, PaperTable]:
    """Return the tables of accuracy by name: ixmas, vlcs, pacs, pacs-alexnet."""
    tables = {}
    for name, table in _read_content()["tables"].items():
        rest = {k: v for k, v in table.items() if k not in ("place", "title", "columns", "rows")}
        columns = tuple(table["columns"])
        values = {(r, c): v for r, line in table["rows"].items() for c, v in zip(columns, line, strict=True)}
        tables[name] = PaperTable(name, table["place"], table["title"], columns, tuple(table["rows"]), values, rest)
    return tables


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
    held_out = _list_held_out(records)
    rows = {d: row for d in held_out if (row := _find_row(table, d)) is not None}
    algorithms = dict.fromkeys(c.algorithm for c in cells)
    columns = {a: c for a in algorithms if (c := find_column(a)) is not None and c in table.columns}
    rows[AVERAGE] = AVERAGE
    values = {(d, a): table.values[row, column] for d, row in rows.items() for a, column in columns.items()}
    return PaperColumns(table, columns, values, tuple(_write_notes(table, rows, columns, cells, records, select)))


def find_table(benchmark: str, records: Sequence[Record]) -> PaperTable | None:
    """Return the paper's table for the benchmark of this name, or one with the domains of the run."""
    tables, held_out = load_tables(), _list_held_out(records)
    for family in _read_content()["domains"]:
        named = benchmark.lower().startswith(family)
        full = family != "ixmas" and all(len(d) > 1 for d in held_out)
        if (named or full) and held_out and all(_find_row(tables[family], d) is not None for d in held_out):
            nets = {r.description["net"]["name"] for r in records}
            return tables["pacs-alexnet"] if family == "pacs" and nets == {"alexnet"} else tables[family]
    return None


def _list_held_out(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(r.held_out[0] for r in records if len(r.held_out) == 1))


def _find_row(table: PaperTable, domain: str) -> str | None:
    family = table.name.partition("-")[0]
    for row, names in _read_content()["domains"][family].items():
        if _simplify(domain) in {_simplify(row), *map(_simplify, names)}:
            return str(row)
    return None


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
    differences = (compare(paper, records) for compare in (_compare_nets, _compare_inputs, _compare_splits))
    notes += [note for note in differences if note]
    trials = sorted({c.trials for c in cells if c.held_out not in (AVERAGE,) and c.trials})
    here = " to ".join(str(n) for n in sorted({trials[0], trials[-1]})) if trials else "none"
    if "trials" not in paper:
        notes.append(f"Trials: the paper does not say how many; here {here}.")
    elif trials != [paper["trials"]]:
        notes.append(f"Trials: {paper['trials']} in the paper, {here} here.")
    notes.append(f"Selection: the paper does not say how it chose steps and settings; here by {select}.")
    missing = [row for row in table.rows if row not in rows.values()]
    if missing:
        notes.append(f"Average: the paper's is over all its domains; this run did not hold out {', '.join(missing)}.")
    notes += [text for column, text in _read_content()["notes"].items() if column in columns.values()]
    for column, mean in find_wrong_averages(table).items():
        if column in columns.values():
            average = table.values[AVERAGE, column]
            notes.append(f"The paper prints {average} as the average of {column}; the mean of its rows is {mean:.1f}.")
    others = [c for c in table.columns if c not in columns.values()]
    if others:
        notes.append(f"In the paper's table but not in this run: {', '.join(others)}.")
    alone = [a for a in dict.fromkeys(c.algorithm for c in cells) if a not in columns]
    if alone:
        notes.append(f"In this run but not in the paper's table: {', '.join(alone)}.")
    return notes


def _compare_nets(paper: Mapping[str, Any], records: Sequence[Record]) -> str | None:
    nets = dict.fromkeys(_describe_net(r.description["net"]) for r in records)
    wanted = _describe_net(
        {"name": paper["net"], "hidden": paper.get("hidden", ()), "weights": "yes" if paper["pretrained"] else None}
    )
    others = [text for text in nets if text != wanted]
    return f"Net: {wanted} in the paper, {' and '.join(others)} here." if others else None


def _describe_net(net: Mapping[str, Any]) -> str:
    name = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "alexnet": "AlexNet"}.get(net["name"], net["name"])
    layers = "-".join(str(width) for width in net.get("hidden", ()))
    start = " from ImageNet weights" if net.get("weights") else ""
    return f"{name} {layers}".strip() + (start if net["name"] != "mlp" else "")


def _compare_inputs(paper: Mapping[str, Any], records: Sequence[Record]) -> str | None:
    on_features = any(r.description["net"]["name"] == "mlp" for r in records)
    if paper["kind"] == "images":
        return f"Inputs: {paper['inputs']} in the paper, precomputed features here." if on_features else None
    return f"Inputs: {paper['inputs']} in the paper; that this run's are the same cannot be seen from its records."


def _compare_splits(paper: Mapping[str, Any], records: Sequence[Record]) -> str | None:
    protocols = [r.description["protocol"] for r in records]
    here = {
        "official"
        if p.get("split") == "official"
        else f"random, {100 * (1 - p.get('validation', 0)):.0f} % to train on and "
        + ("the whole held-out domain" if p.get("test") == "whole" else f"{100 * p.get('validation', 0):.0f} %")
        + " to test on"
        for p in protocols
    }
    if here == {paper["split"]}:
        return None
    return f"Split: {paper['split']} in the paper; here {' and '.join(sorted(here))}."
