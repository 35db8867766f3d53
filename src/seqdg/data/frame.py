"""A table in memory: named columns of numbers or of words, made from a data frame, a matrix or a file."""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base.errors import UsageError
from seqdg.base.words import list_some
from seqdg.data.cells import Column, is_missing, to_word


class NotAValue(UsageError, TypeError):
    """A cell that is neither a number nor a word."""


@dataclass(frozen=True)
class Frame:
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    named: bool  # whether the names are the user's, and not made up for the columns of an array
    first: int = 0  # number of its first row, where it is one of several batches

    def __post_init__(self) -> None:
        twice = [name for i, name in enumerate(self.names) if name in self.names[:i]]
        if twice:
            raise UsageError(
                f"Several columns have the same name: {list_some(dict.fromkeys(twice))}. Rename or drop them."
            )

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def without(self, names: Iterable[str]) -> Frame:
        dropped = set(names)
        kept = [(n, c) for n, c in zip(self.names, self.columns, strict=True) if n not in dropped]
        return Frame(tuple(n for n, _ in kept), tuple(c for _, c in kept), self.named, self.first)


def is_dataframe(x: Any) -> bool:
    """Whether x is a data frame of pandas, polars or anything else that has named columns."""
    return hasattr(x, "columns") and hasattr(x, "shape") and hasattr(x, "__getitem__")


def make_frame(x: Any, wanted: Collection[str] | None = None) -> Frame:
    """Make a Frame from a data frame, or from a matrix of numbers, words or both.

    wanted: the only columns of a data frame to look at; others may hold anything.
    """
    if is_dataframe(x):
        if wanted is not None and not set(wanted) <= {str(name) for name in x.columns}:
            wanted = None  # one is missing: the error that follows suggests a similar name
        places = {i: str(n) for i, n in enumerate(x.columns) if wanted is None or str(n) in wanted}
        return Frame(
            tuple(places.values()), tuple(make_column(n, _get_values(x, i)) for i, n in places.items()), named=True
        )
    matrix = np.asarray(x)
    if matrix.ndim != 2:
        raise UsageError(f"A table has rows and columns, but the input has shape {list(matrix.shape)}.")
    names = [f"x{i}" for i in range(matrix.shape[1])]
    return Frame(tuple(names), tuple(make_column(n, matrix[:, i]) for i, n in enumerate(names)), named=False)


def _get_values(frame: Any, i: int) -> NDArray[Any]:
    """Column i of a data frame; pandas' categories are words even where they look like numbers."""
    series = frame.iloc[:, i] if hasattr(frame, "iloc") else frame[frame.columns[i]]
    if str(series.dtype) == "category":
        return np.array([None if is_missing(v) else to_word(v) for v in series.tolist()], dtype=object)
    return np.asarray(series.to_numpy())


def make_column(name: str, values: NDArray[Any]) -> Column:
    kind = values.dtype.kind
    if kind in "biuf":
        return values.astype(np.float64)
    if kind == "c":
        raise UsageError(f"Complex data not supported: column '{name}' holds complex numbers.")
    if kind in "mM":
        raise _refuse_dates(name)
    if kind not in "OUST":
        raise NotAValue(f"Column '{name}' is of type {values.dtype}, but every argument must be a string or a number.")
    return _make_mixed(name, values.astype(object).tolist())


def _make_mixed(name: str, values: Sequence[Any]) -> Column:
    """Make a column of numbers if all values are numbers or gaps, else of words."""
    present = [v for v in values if not is_missing(v)]
    strange = next((v for v in present if not isinstance(v, str | bytes | numbers.Number | np.generic)), None)
    if isinstance(strange, datetime.date | datetime.time | datetime.timedelta):
        raise _refuse_dates(name)
    if strange is not None:
        raise NotAValue(
            f"Column '{name}' holds a {type(strange).__name__} ({str(strange)[:40]!r}), "
            "but every argument must be a string or a number."
        )
    if any(isinstance(v, complex | np.complexfloating) for v in present):
        raise UsageError(f"Complex data not supported: column '{name}' holds complex numbers.")
    if not any(isinstance(v, str | bytes) for v in present):
        return np.array([_to_number(name, v) for v in values], dtype=np.float64)
    return np.array([None if is_missing(v) else to_word(v) for v in values], dtype=object)


def _refuse_dates(name: str) -> UsageError:
    return UsageError(
        f"Column '{name}' holds dates or times: turn them into numbers, such as days since some date, or drop it."
    )


def _to_number(name: str, value: Any) -> float:
    try:
        return float("nan") if is_missing(value) else float(value)
    except OverflowError:
        raise UsageError(f"Column '{name}' holds {str(value)[:12]}..., a number too large to compute with.") from None
    except (TypeError, ValueError):
        raise NotAValue(
            f"Column '{name}' holds {str(value)[:40]!r}, but every argument must be a string or a number."
        ) from None
