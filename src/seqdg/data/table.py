"""One table with a domain column and a label column: `.csv` or `.parquet`. All other columns are features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base.errors import UsageError, unknown
from seqdg.data.checks import Problem, count, missing_domains, some
from seqdg.data.rows import Matrix, Read, Rows
from seqdg.data.spec import DataSpec

SUFFIXES = (".csv", ".parquet")

Columns = dict[str, NDArray[Any]]


def read_columns(path: Path) -> Columns:
    """Empty cells are NaN in columns of numbers, and '' in columns of text."""
    try:
        import pyarrow as pa
        from pyarrow import csv, parquet
    except ImportError:
        raise UsageError(f"{path}: reading tables needs pyarrow: pip install 'seqdg[tables]'.") from None
    try:
        if path.suffix.lower() == ".parquet":
            table = parquet.read_table(path)
        else:
            table = csv.read_csv(path)
            if _is_data(table.column_names):
                table = csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True))
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as a {path.suffix} table ({error}).") from error
    return {name: _values(pa, column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _values(pa: Any, column: Any) -> NDArray[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.to_numpy())
    return np.array(["" if value is None else str(value) for value in column.to_pylist()], dtype=str)


def _is_data(names: Sequence[str]) -> bool:
    """Whether a first line is numbers already, and not 0, 1, 2, ... as headings."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != list(range(len(numbers)))


def read(path: Path, spec: DataSpec) -> Read:
    columns = read_columns(path)
    for given in (spec.domain_column, spec.label_column, spec.validation_column, *spec.ignore):
        if given and given not in columns:
            raise unknown(f"column of {path.name}", given, columns)
    roles = (spec.domain_column, spec.label_column, spec.validation_column, *spec.ignore)
    problems = _empty_cells(columns, (spec.domain_column, spec.label_column))
    features = {name: values for name, values in columns.items() if name not in roles}
    x = matrix(features, len(columns[spec.label_column]), path.name, problems)
    valid = columns[spec.validation_column] == 1 if spec.validation_column else None
    read = by_domain(x, columns[spec.label_column], columns[spec.domain_column], spec, str(path), valid)
    return Read(read.rows, problems + read.problems, read.notes)


def by_domain(
    x: Matrix,
    y: NDArray[Any],
    domain: NDArray[Any],
    spec: DataSpec,
    place: str,
    valid: NDArray[np.bool_] | None = None,
) -> Read:
    there = {_name(value): value for value in np.unique(domain)}
    rows = {}
    for name in spec.domains or there:
        if name in there:
            mine = domain == there[name]
            rows[name] = Rows(x[mine], y[mine], None if valid is None else valid[mine])
    others = [name for name in there if name not in rows]
    left_out = sum(int((domain == there[name]).sum()) for name in others)
    notes = [f"{count(left_out, 'row')} of other domains left out: {some(others)}."] if others else []
    return Read(rows, missing_domains(spec.domains, there, place), notes)


def matrix(columns: Mapping[str, NDArray[Any]], rows: int, place: str, problems: list[Problem]) -> Matrix:
    """The columns of numbers side by side; those of text are a problem."""
    text = [name for name, values in columns.items() if values.dtype.kind not in "iufb"]
    if text:
        cure = "make numbers of them, or name them in `ignore`"
        problems.append(Problem(f"{place} has columns that are not numbers: {some(text)}; {cure}."))
    numbers = [values.astype(np.float32) for name, values in columns.items() if name not in text]
    if not numbers:
        problems.append(Problem(f"{place} has no column of features."))
        return np.empty((rows, 0), np.float32)
    return np.stack(numbers, axis=1)


def _empty_cells(columns: Columns, names: Sequence[str]) -> list[Problem]:
    problems = []
    for name in names:
        values = columns[name]
        empty = np.isnan(values) if values.dtype.kind == "f" else values == "" if values.dtype.kind == "U" else None
        if empty is not None and empty.any():
            problems.append(
                Problem(f"The column '{name}' has {count(int(empty.sum()), 'empty cell')}: fill in every one.")
            )
    return problems


def _name(value: Any) -> str:
    """`2`, not `2.0`: a column of whole numbers with an empty cell is read as fractions."""
    return str(int(value)) if isinstance(value, np.floating) and value == np.round(value) else str(value)
