"""A data set from one table: a column for the domain, one for the label, and numbers in all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base.errors import unknown
from seqdg.base.words import count_things, list_some
from seqdg.data.cells import Column, parse_truth, to_word
from seqdg.data.checks import Problem, find_missing_domains
from seqdg.data.contents import Contents, DomainRows, Matrix, RowsByDomain, collect_rows
from seqdg.data.readers import ProgressCallback
from seqdg.data.spec import DataSpec
from seqdg.data.tables import is_table, open_table

EXACT = 2.0**53  # above it, whole numbers of a column can no longer be told apart

Columns = dict[str, NDArray[Any]]


def recognizes(path: Path) -> bool:
    return path.is_file() and is_table(path)


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    named = (spec.domain_column, spec.label_column, spec.validation_column, spec.group_column, spec.split_column)
    roles = list(dict.fromkeys(name for name in named if name))
    columns = read_columns(path, roles, spec.ignore)
    problems = _find_empty_cells(columns, (spec.domain_column, spec.label_column))
    exact = [name for name in (spec.domain_column, spec.label_column, spec.group_column) if name]
    problems += _find_inexact(columns, exact)
    features = {name: values for name, values in columns.items() if name not in roles}
    x = stack_columns(features, len(columns[spec.label_column]), path.name, problems)
    whole = DomainRows(
        x,
        columns[spec.label_column],
        columns[spec.validation_column] == 1 if spec.validation_column else None,
        columns[spec.group_column] if spec.group_column else None,
        columns[spec.split_column] if spec.split_column else None,
    )
    rows = split_by_domain(whole, columns[spec.domain_column], spec, str(path))
    return collect_rows(spec, RowsByDomain(rows.rows, problems + rows.problems, rows.notes))


def read_columns(path: Path, roles: Sequence[str] = (), ignore: Sequence[str] = ()) -> Columns:
    """The columns of a table that may lack a header. A gap is NaN among numbers and '' among words; true is 1.

    roles: columns that must be there and are no features, so that they may hold dates.   ignore: columns to leave out.
    """
    table = open_table(path, may_lack_header=True)
    for name in (*roles, *ignore):
        if name not in table.names:
            raise unknown(f"column of {path.name}", name, table.names)
    frame = table.read(but=set(ignore) - set(roles), dates_as_words=roles)
    return {name: _to_plain(parse_truth(values)) for name, values in zip(frame.names, frame.columns, strict=True)}


def _to_plain(values: Column) -> NDArray[Any]:
    return values if values.dtype != object else np.array(["" if v is None else v for v in values], dtype=str)


def split_by_domain(whole: DomainRows, domain: NDArray[Any], spec: DataSpec, place: str) -> RowsByDomain:
    """Split rows of all domains. domain: (row,) the domain of each."""
    there = {to_word(value): value for value in np.unique(domain)}
    rows = {}
    for name in spec.domains or there:
        if name in there:
            rows[name] = whole.keep(domain == there[name])
    others = [name for name in there if name not in rows]
    left_out = sum(int((domain == there[name]).sum()) for name in others)
    notes = [f"{count_things(left_out, 'row')} of other domains left out: {list_some(others)}."] if others else []
    return RowsByDomain(rows, find_missing_domains(spec.domains, there, place), notes)


def stack_columns(columns: Mapping[str, NDArray[Any]], rows: int, place: str, problems: list[Problem]) -> Matrix:
    """The columns of numbers side by side; columns of words are added to the problems."""
    text = [name for name, values in columns.items() if values.dtype.kind not in "iufb"]
    if text:
        cure = "make numbers of them, or name them in `ignore`"
        problems.append(Problem(f"{place} has columns that are not numbers: {list_some(text)}; {cure}."))
    numbers = [values.astype(np.float32) for name, values in columns.items() if name not in text]
    if not numbers:
        problems.append(Problem(f"{place} has no column of features."))
        return np.empty((rows, 0), np.float32)
    return np.stack(numbers, axis=1)


def _find_empty_cells(columns: Columns, names: Sequence[str]) -> list[Problem]:
    problems = []
    for name in names:
        empty = np.isnan(columns[name]) if columns[name].dtype.kind == "f" else columns[name] == ""
        if empty.any():
            problems.append(
                Problem(f"The column '{name}' has {count_things(int(empty.sum()), 'empty cell')}: fill in every one.")
            )
    return problems


def _find_inexact(columns: Columns, names: Sequence[str]) -> list[Problem]:
    return [
        Problem(
            f"The column '{name}' has numbers of more than 15 digits, which cannot be told apart: make words of them."
        )
        for name in names
        if columns[name].dtype.kind == "f" and (np.abs(columns[name]) >= EXACT).any()
    ]
