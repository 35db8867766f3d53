"""A table in memory: named columns of numbers, text or dates, made from a data frame, a matrix or a file.

`note_columns` notes what is probably not meant as a feature: identifiers, counters, names of domains, empty columns.
"""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, list_some
from seqdg.data.columns import (
    Column,
    ColumnType,
    count_present,
    decide_column,
    drop_missing,
    is_missing,
    list_different,
    make_dates,
    to_word,
)

SHORT = 10  # rows in which numbers may well run upwards by chance
MANY_WORDS = 20  # above which a column may be an identifier, where most rows have a word of their own
SURPRISE = 10.0  # equal pairs of whole numbers that chance would give at least; where there are none, it was not chance
NAMES = frozenset(("id", "ids", "identifier", "uid", "nr", "mrn", "patient", "subject", "customer", "serial", "key"))


class NotAValue(UsageError, TypeError):
    """A cell that is neither a number nor text."""


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """What made the columns of features in a table: a frozen backbone, of pictures or of columns of text.

    about: the backbone's name, the sha256 of its weights and how inputs were prepared, as JSON holds them.
    names: the columns of features.   text: the columns of text that they were made of; none: they are of pictures.
    backbone: a `FrozenBackbone` that makes them of others; None: it is not at hand, or none is needed.
    """

    about: Mapping[str, Any]
    names: tuple[str, ...]
    text: tuple[str, ...] = ()
    backbone: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return str(self.about["backbone"])


@dataclass(frozen=True)
class Frame:
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    named: bool  # whether the names are the user's, and not made up for the columns of an array
    from_rows: NDArray[np.int64] | None = None  # numbers of its rows in the user's table; None: 0, 1, 2, ...
    raw: Mapping[str, Any] = field(default_factory=dict)  # columns that come along unread, as pyarrow's arrays
    fixed: frozenset[str] = frozenset()  # columns of categories, whatever they look like: their owner says so
    types: tuple[ColumnType, ...] | None = None  # what `decide_types` decided
    na: tuple[str, ...] = ()  # text and numbers that mean missing, besides the usual ones
    source: FeatureSource | None = None  # what made columns of it, where some are features of pictures or text

    def __post_init__(self) -> None:
        twice = [name for i, name in enumerate(self.names) if name in self.names[:i]]
        if twice:
            raise UsageError(
                f"Several columns have the same name: {list_some(dict.fromkeys(twice))}. Rename or drop them."
            )

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """The number of each row in the user's table, for messages."""
        return np.arange(len(self)) if self.from_rows is None else self.from_rows

    def take(self, rows: Any) -> Frame:
        """Return the rows at these indices."""
        return replace(self, columns=tuple(column[rows] for column in self.columns), from_rows=self.row_numbers[rows])

    def without(self, names: Iterable[str]) -> Frame:
        dropped = set(names)
        kept = [(n, c) for n, c in zip(self.names, self.columns, strict=True) if n not in dropped]
        types = None if self.types is None else tuple(t for t in self.types if t.name not in dropped)
        return replace(self, names=tuple(n for n, _ in kept), columns=tuple(c for _, c in kept), types=types)

    def decide_types(
        self, asked: Mapping[str, str] | None = None, na: Sequence[str] = (), is_text: bool = False
    ) -> Frame:
        """Decide which columns hold numbers, categories and dates; raise a UsageError where that is in doubt.

        asked: types by column, of `columns.TYPES`.   na: text and numbers that mean missing, besides the usual ones.
        is_text: the columns are as a file of text gives them, where numbers are text too.
        """
        asked = asked or {}
        kept = self.without(name for name, kind in asked.items() if kind == "ignore")
        decided = [
            decide_column(
                name,
                drop_missing(values, na),
                asked.get(name, "category" if name in self.fixed else ""),
                is_text,
                kept.row_numbers,
            )
            for name, values in zip(kept.names, kept.columns, strict=True)
        ]
        columns, types = (tuple(part) for part in zip(*decided, strict=True)) if decided else ((), ())
        return replace(kept, columns=columns, types=types, na=tuple(na))


def is_dataframe(x: Any) -> bool:
    """Return whether x is a data frame of pandas, polars or anything else that has named columns."""
    return hasattr(x, "columns") and hasattr(x, "shape") and hasattr(x, "__getitem__")


def make_frame(x: Any, wanted: Collection[str] | None = None) -> Frame:
    """Make a Frame from a data frame, or from a matrix of numbers, text or both.

    wanted: the only columns of a data frame to look at; others may hold anything.
    """
    if is_dataframe(x):
        if wanted is not None and not set(wanted) <= {str(name) for name in x.columns}:
            wanted = None  # one is missing: the error that follows suggests a similar name
        columns = {i: str(n) for i, n in enumerate(x.columns) if wanted is None or str(n) in wanted}
        series = {n: x.iloc[:, i] if hasattr(x, "iloc") else x[x.columns[i]] for i, n in columns.items()}
        return Frame(
            tuple(columns.values()),
            tuple(make_column(n, get_values(s)) for n, s in series.items()),
            named=True,
            fixed=frozenset(n for n, s in series.items() if _is_category(s)),
        )
    matrix = np.asarray(x)
    if matrix.ndim != 2:
        raise UsageError(f"A table has rows and columns, but the input has shape {list(matrix.shape)}.")
    names = [f"x{i}" for i in range(matrix.shape[1])]
    return Frame(tuple(names), tuple(make_column(n, matrix[:, i]) for i, n in enumerate(names)), named=False)


def _is_category(series: Any) -> bool:
    """Return whether a column holds categories, which stay so even where they look like numbers."""
    return str(series.dtype).lower().startswith(("category", "categorical", "enum"))


def get_values(series: Any) -> NDArray[Any]:
    """Return the values of a data frame's column; categories are text, and dates have the clock of their own zone."""
    if _is_category(series):
        values = series.tolist() if hasattr(series, "tolist") else series.to_list()
        return np.array([None if is_missing(v) else to_word(v) for v in values], dtype=object)
    if getattr(series.dtype, "tz", None) is not None and hasattr(series, "dt"):
        series = series.dt.tz_localize(None)
    return np.asarray(series.to_numpy())


def make_column(name: str, values: NDArray[Any]) -> Column:
    """Make a column of numbers if all values are numbers or missing, of dates if all are dates, else of text."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind == "M":
        return values.astype("M8[us]")
    values = values.astype("m8[us]") if values.dtype.kind == "m" else values  # finer ones would become numbers
    cells = [None if is_missing(v) else v for v in values.astype(object).tolist()]
    examples = {type(v): v for v in reversed(cells) if v is not None}  # the first of each type
    others = [v for v in examples.values() if not isinstance(v, datetime.date)]
    if len(others) < len(examples):
        if others:
            raise NotAValue(
                f"Column '{name}' holds dates and other things, such as {str(others[-1])[:40]!r}: make them alike."
            )
        return make_dates(cells)
    for kind, value in examples.items():
        if issubclass(kind, datetime.time | datetime.timedelta):
            raise UsageError(
                f"Column '{name}' holds times of day or durations: turn them into numbers, such as hours, or drop it."
            )
        if issubclass(kind, complex | np.complexfloating):
            raise UsageError(f"Complex data not supported: column '{name}' holds complex numbers.")
        if not issubclass(kind, str | bytes | numbers.Number | np.generic):
            raise _refuse_value(name, value)
    if any(issubclass(kind, str | bytes) for kind in examples):
        return np.array([None if v is None else to_word(v) for v in cells], dtype=object)
    return np.array([np.nan if v is None else _to_number(name, v) for v in cells], dtype=np.float64)


def _to_number(name: str, value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"Column '{name}' holds {str(value)[:12]}..., a number too large to compute with.") from None
    except (TypeError, ValueError):
        raise _refuse_value(name, value) from None


def _refuse_value(name: str, value: Any) -> NotAValue:
    said = f"a {type(value).__name__} ({str(value)[:40]!r})"
    return NotAValue(f"Column '{name}' holds {said}, but every argument must be a string or a number.")


def note_columns(frame: Frame, domains: NDArray[Any] | None = None) -> list[str]:
    """Return a note on every column from which a model learns nothing that holds for new rows.

    domains: (row,) where each row is from; None: not known.
    """
    rows = [] if domains is None else [np.flatnonzero(domains == d) for d in np.unique(domains)]
    notes = []
    for name, values in zip(frame.names, frame.columns, strict=True):
        leave_out = f"is it an identifier? Then leave it out, on the command line by --id {name}"
        different = len(list_different(values)) if values.dtype == object else 0
        if different > max(MANY_WORDS, len(frame) // 2):
            notes.append(
                f"Column '{name}' has {different} different categories in {len(frame)} rows: {leave_out}, "
                "which writes it beside the predictions."
            )
        if values.dtype.kind == "f" and len(values) > SHORT and bool((np.diff(values) == 1).all()):
            notes.append(f"Column '{name}' numbers the rows: {leave_out}.")
        elif (where := _find_identifier(name, values, rows)) is not None:
            notes.append(
                f"Column '{name}' has another whole number in every row{where}: {leave_out}, which writes it beside "
                "the predictions."
            )
        if _names_domains(values, rows):
            notes.append(
                f"Column '{name}' has one value in each domain, and another in every one: it names the domain. From so "
                f"few values little is learned for a new one; leave it out, on the command line by --ignore {name}, "
                "unless you know better."
            )
        if not count_present(values):
            notes.append(f"Column '{name}' is empty, in all {len(frame)} rows: the model learns nothing of it.")
    return notes


def _find_identifier(name: str, values: Column, rows: Sequence[NDArray[np.int64]]) -> str | None:
    """Say where no whole number of a column recurs though it should, in the table ("") or in each domain; else None.

    Of n draws from R numbers, n (n - 1) / 2R pairs are equal on average, if all are equally likely, and more if not:
    a measurement has some. Where R is so large that it may have none, the column's name decides.
    rows: numbers of the rows of each domain.
    """
    if values.dtype.kind != "f" or len(values) <= SHORT or not np.isfinite(values).all():
        return None
    if (values != np.floor(values)).any():
        return None
    if _differ(values) and (_count_equal(values) >= SURPRISE or _is_name_of_identifier(name)):
        return ""
    if len(rows) < 2 or not all(_differ(values[indices]) for indices in rows):
        return None
    return " of a domain" if sum(_count_equal(values[indices]) for indices in rows) >= SURPRISE else None


def _differ(numbers: Column) -> bool:
    """Return whether no number recurs."""
    return bool(np.ptp(numbers) >= len(numbers) - 1) and len(np.unique(numbers)) == len(numbers)


def _count_equal(numbers: Column) -> float:
    """Return how many pairs would be equal on average among as many draws from the whole numbers in between."""
    return len(numbers) * (len(numbers) - 1) / 2 / float(np.ptp(numbers) + 1)


def _is_name_of_identifier(name: str) -> bool:
    """Return whether a part of a column's name says so: `patient_id`, `patientID`, `Subject`."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return any(part.lower() in NAMES for part in parts)


def _names_domains(values: Column, rows: Sequence[NDArray[np.int64]]) -> bool:
    """Return whether each domain has one value of its own. rows: numbers of the rows of each domain."""
    met = set()
    for indices in rows:
        first = values[indices[0]]
        if len(indices) < 2 or first is None or not bool((values[indices] == first).all()):
            return False
        met.add(first)
    return len(rows) > 1 and len(met) == len(rows)
