"""The paper's published numbers, beside ours, and where the protocols differ."""

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
class Published:
    """One table of the paper; `values` by (row, column) as printed, in percent."""

    name: str
    place: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: Mapping[tuple[str, str], float]
    protocol: Mapping[str, Any]  # what the paper says of its net, inputs, split and trials


@dataclass(frozen=True)
class Beside:
    """A run beside a table of the paper."""

    table: Published
    columns: Mapping[str, str]  # by algorithm, the paper's name for it
    values: Mapping[tuple[str, str], float]  # by (held-out, algorithm), in our names
    notes: tuple[str, ...]  # what to know before comparing


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((files("seqdg") / "report" / "paper.toml").read_text(encoding="utf-8"))
    return content


def source() -> str:
    return str(_content()["source"])


@cache
def published() -> dict[str, Published]:
    """The tables of accuracy by name: ixmas, vlcs, pacs, pacs-alexnet."""
    found = {}
    for name, table in _content()["tables"].items():
        rest = {k: v for k, v in table.items() if k not in ("place", "title", "columns", "rows")}
        columns = tuple(table["columns"])
        values = {(r, c): v for r, line in table["rows"].items() for c, v in zip(columns, line, strict=True)}
        found[name] = Published(name, table["place"], table["title"], columns, tuple(table["rows"]), values, rest)
    return found


def inconsistent(table: Published) -> dict[str, float]:
    """Columns whose printed average is not the mean of their rows, even to rounding; and that mean."""
    found = {}
    for column in table.columns:
        mean = fmean(table.values[row, column] for row in table.rows if row != AVERAGE)
        if abs(mean - table.values[AVERAGE, column]) > 0.0501:
            found[column] = mean
    return found


def cost() -> dict[str, float]:
    """Minutes of training by column, of the cost table."""
    return {str(name): float(minutes) for name, minutes in _content()["cost"]["minutes"].items()}


def column_of(algorithm: str) -> str | None:
    """The paper's name for one of our algorithms."""
    for column, ours in _content()["columns"].items():
        if algorithm in ours:
            return str(column)
    return None


def beside(cells: Sequence[Cell], records: Sequence[Record], benchmark: str, select: str = "source-val") -> Beside:
    """The table of the paper that a run can be set beside; a UsageError where there is none."""
    table = table_for(benchmark, records)
    if table is None:
        raise UsageError(
            f"The paper has no table for '{benchmark}': it has IXMAS, VLCS and PACS (with ResNet-18 and with AlexNet). "
            "Leave out --against."
        )
    held_out = _held_out(records)
    rows = {d: row for d in held_out if (row := _row(table, d)) is not None}
    algorithms = dict.fromkeys(c.algorithm for c in cells)
    columns = {a: c for a in algorithms if (c := column_of(a)) is not None and c in table.columns}
    rows[AVERAGE] = AVERAGE
    values = {(d, a): table.values[row, column] for d, row in rows.items() for a, column in columns.items()}
    return Beside(table, columns, values, tuple(_notes(table, rows, columns, cells, records, select)))


def table_for(benchmark: str, records: Sequence[Record]) -> Published | None:
    """The paper's table for the benchmark of this name, or one whose domains are the run's."""
    tables, held_out = published(), _held_out(records)
    for family in _content()["domains"]:
        named = benchmark.lower().startswith(family)
        full = family != "ixmas" and all(len(d) > 1 for d in held_out)
        if (named or full) and held_out and all(_row(tables[family], d) is not None for d in held_out):
            nets = {r.description["net"]["name"] for r in records}
            return tables["pacs-alexnet"] if family == "pacs" and nets == {"alexnet"} else tables[family]
    return None


def _held_out(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(r.held_out[0] for r in records if len(r.held_out) == 1))


def _row(table: Published, domain: str) -> str | None:
    family = table.name.partition("-")[0]
    for row, names in _content()["domains"][family].items():
        if _plain(domain) in {_plain(row), *map(_plain, names)}:
            return str(row)
    return None


def _plain(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum())


def _notes(
    table: Published,
    rows: Mapping[str, str],
    columns: Mapping[str, str],
    cells: Sequence[Cell],
    records: Sequence[Record],
    select: str,
) -> list[str]:
    paper = table.protocol
    notes = [f"Published: {table.title} ({table.place} of {source()}). It gives no standard errors."]
    notes += [note for note in (_net(paper, records), _inputs(paper, records), _split(paper, records)) if note]
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
    notes += [text for column, text in _content()["notes"].items() if column in columns.values()]
    for column, mean in inconsistent(table).items():
        if column in columns.values():
            given = table.values[AVERAGE, column]
            notes.append(f"The paper prints {given} as the average of {column}; the mean of its rows is {mean:.1f}.")
    others = [c for c in table.columns if c not in columns.values()]
    if others:
        notes.append(f"In the paper's table but not in this run: {', '.join(others)}.")
    alone = [a for a in dict.fromkeys(c.algorithm for c in cells) if a not in columns]
    if alone:
        notes.append(f"In this run but not in the paper's table: {', '.join(alone)}.")
    return notes


def _net(paper: Mapping[str, Any], records: Sequence[Record]) -> str | None:
    nets = dict.fromkeys(_net_text(r.description["net"]) for r in records)
    wanted = _net_text(
        {"name": paper["net"], "hidden": paper.get("hidden", ()), "weights": "yes" if paper["pretrained"] else None}
    )
    others = [text for text in nets if text != wanted]
    return f"Net: {wanted} in the paper, {' and '.join(others)} here." if others else None


def _net_text(net: Mapping[str, Any]) -> str:
    name = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "alexnet": "AlexNet"}.get(net["name"], net["name"])
    layers = "-".join(str(width) for width in net.get("hidden", ()))
    start = " from ImageNet weights" if net.get("weights") else ""
    return f"{name} {layers}".strip() + (start if net["name"] != "mlp" else "")


def _inputs(paper: Mapping[str, Any], records: Sequence[Record]) -> str | None:
    on_features = any(r.description["net"]["name"] == "mlp" for r in records)
    if paper["kind"] == "images":
        return f"Inputs: {paper['inputs']} in the paper, precomputed features here." if on_features else None
    return f"Inputs: {paper['inputs']} in the paper; that this run's are the same cannot be seen from its records."


def _split(paper: Mapping[str, Any], records: Sequence[Record]) -> str | None:
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
