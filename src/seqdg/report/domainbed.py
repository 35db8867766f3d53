"""Numbers that papers of the DomainBed suite publish, to set beside those of a run, and how the protocols differ."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from seqdg.base import UsageError
from seqdg.report.departures import describe_net, describe_split, join_values, read_values
from seqdg.report.published import PaperColumns, PaperTable, describe_trials, find_row, list_held_out
from seqdg.results import AVERAGE, Cell, Record, count_candidates, drop_label

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Fields of the protocol or net that are compared as they are: where they stand, and how they are called.
_COMPARED = {
    "steps": ("protocol", "Steps"), "batch": ("protocol", "Rows of each domain in a minibatch, before a search"),
    "evaluations": ("protocol", "Evaluations"), "optimizer": ("protocol", "Optimizer"),
    "lr": ("protocol", "Learning rate, before a search"), "weight_decay": ("protocol", "Weight decay, before a search"),
    "precision": ("protocol", "Precision"), "batchnorm_policy": ("net", "BatchNorm"),
}  # fmt: skip


@cache
def _read_content() -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((files("seqdg") / "report" / "domainbed.toml").read_text(encoding="utf-8"))
    return content


@cache
def load_suite() -> PaperTable:
    """Return the table of PACS; a column may have its average alone."""
    content, rows = _read_content(), tuple(_read_content()["rows"])
    values: dict[tuple[str, str], float] = {}
    for column, entry in content["columns"].items():
        numbers = dict(zip(rows, entry["values"], strict=True)) if "values" in entry else {AVERAGE: entry["average"]}
        values |= {(row, column): number for row, number in numbers.items()}
    return PaperTable(
        "pacs-domainbed", "the table of PACS", content["title"], tuple(content["columns"]), rows, values,
        content["protocol"], {},
    )  # fmt: skip


def set_beside_suite(cells: Sequence[Cell], records: Sequence[Record], select: str = "source-val") -> PaperColumns:
    """Return the suite's numbers to set beside those of a run on PACS; a UsageError where there are none."""
    table, held_out = load_suite(), list_held_out(records)
    rows = {d: row for d in held_out if (row := find_row(table, d)) is not None}
    if not held_out or len(rows) < len(held_out):
        raise UsageError(
            "The published numbers of DomainBed's suite that we have are of PACS, and this run holds out "
            f"{', '.join(held_out) or 'nothing'}. Leave out --against."
        )
    rows[AVERAGE] = AVERAGE
    ours = {entry["ours"]: column for column, entry in _read_content()["columns"].items()}
    algorithms = dict.fromkeys(c.algorithm for c in cells)
    columns = {a: ours[drop_label(a)] for a in algorithms if drop_label(a) in ours}
    values = {
        (d, a): table.values[row, c] for d, row in rows.items() for a, c in columns.items() if (row, c) in table.values
    }
    notes = _write_notes(table, rows, columns, cells, records, select)
    return PaperColumns(table, columns, values, tuple(notes), "DomainBed")


def _write_notes(
    table: PaperTable,
    rows: Mapping[str, str],
    columns: Mapping[str, str],
    cells: Sequence[Cell],
    records: Sequence[Record],
    select: str,
) -> list[str]:
    there, single = table.protocol, [r for r in records if r.is_tabled]
    entries = _read_content()["columns"]
    notes = [f"Published: {table.title} ({_read_content()['source']})."]
    notes += [f"{c}: {entries[c]['source']}." for c in columns.values() if "source" in entries[c]]
    notes += _list_differences(there, single)
    if (trials := describe_trials(cells)) != str(there["trials"]):
        notes.append(f"Trials: {there['trials']} there, {trials} here.")
    tried = " or ".join(str(n) for n in sorted({n for _, n in count_candidates(records).values()}))
    notes.append(
        f"Search: {there['draws']} draws of each algorithm's settings for every held-out domain there, thrice; "
        f"settings tried here: {tried}."
    )
    if select != "source-val":
        notes.append(f"Selection: there by training-domain validation, here by {select}.")
    missing = [row for row in table.rows if row not in rows.values()]
    if missing:
        notes.append(f"Average: theirs is over all domains; this run did not hold out {', '.join(missing)}.")
    others = [c for c in table.columns if c not in columns.values()]
    if others:
        averages = ", ".join(f"{c} {table.values[AVERAGE, c]:.1f}" for c in others)
        notes.append(f"Published and not in this run (averages): {averages}.")
    return notes


def _list_differences(there: Mapping[str, Any], records: Sequence[Record]) -> list[str]:
    """Return a sentence for every field in which the run differs."""
    notes = []
    wanted = describe_net({**there, "name": there["net"], "weights": "yes"})
    nets = [text for text in dict.fromkeys(describe_net(r.description["net"]) for r in records) if text != wanted]
    notes += [f"Net: {wanted} there, {' and '.join(nets)} here."] if nets else []
    splits = sorted({describe_split(r.description["protocol"]) for r in records})
    notes += [f"Split: {there['split']}; here {' and '.join(splits)}."] if splits != [there["split"]] else []
    augments = list(dict.fromkeys(r.description.get("augment", "") or "none" for r in records))
    if augments != [there["augment"]]:
        notes.append(f"Augmentation: that of DomainBed there; here {join_values(augments)}.")
    for name, (part, title) in _COMPARED.items():
        here = read_values(records, part, name)
        if here and here != [there[name]]:
            notes.append(f"{title}: {there[name]} there, {join_values(here)} here.")
    return notes
