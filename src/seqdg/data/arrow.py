"""Cells that pyarrow has read, as columns of numpy."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.data.cells import CODE, Column, parse_column
from seqdg.data.frame import make_column

DATES = (datetime.date, datetime.time, datetime.timedelta)


def require_pyarrow() -> None:
    """Raise an error that says how to get it, where it is not there."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError("Reading and writing tables needs pyarrow: pip install 'seqdg[tables]'.") from None


def join_parts(
    name: str, parts: Sequence[Any], dates_as_words: bool, text: bool, parse: bool, codes: bool = False
) -> Column:
    """Join one column of all batches: numbers if all its cells are plain numbers, or, with `parse`, numbers or gaps.

    text: its cells stay words.   codes: they do where floats would not give them back, as of 007 or 20 digits.
    """
    import pyarrow as pa

    array = pa.chunked_array(parts)
    text = text or (codes and _has_codes(array))
    if text and pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        with suppress(pa.ArrowInvalid):  # the quick way, where all cells are plain numbers
            if not text:
                return np.asarray(array.cast(pa.float64()).to_numpy())
        words = np.array(array.to_numpy(), dtype=object)
        words[words == ""] = None
        return parse_column(words) if parse and not text else words
    values = np.concatenate([to_numpy(part) for part in parts])
    if dates_as_words and values.dtype == object:
        values = np.array([str(v) if isinstance(v, DATES) else v for v in values], dtype=object)
    column = make_column(name, values)
    return parse_column(column) if parse and not text else column


def _has_codes(array: Any) -> bool:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return False
    return bool(compute.any(compute.match_substring_regex(array, f"^{CODE}$")).as_py())


def to_numpy(array: Any, numeric: bool = False, text: bool = False) -> NDArray[Any]:
    """Return numbers as float64, dates and all else as objects.

    numeric: make numbers of words, where all are plain numbers.   text: make words of whole numbers.
    """
    import pyarrow as pa

    if text and pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    kind = array.type
    if pa.types.is_string(kind):
        if numeric:
            with suppress(pa.ArrowInvalid):  # not all are plain numbers: they are read one by one later
                array = array.cast(pa.float64())
    elif pa.types.is_dictionary(kind):
        words = array.cast(kind.value_type).cast(pa.string())
        return np.asarray(words.to_numpy(zero_copy_only=False), dtype=object)
    elif pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    elif pa.types.is_temporal(kind):
        return np.array([*array.to_pylist(), None], dtype=object)[:-1]
    elif pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    values = np.asarray(array.to_numpy(zero_copy_only=False))
    return values.astype(np.float64) if values.dtype.kind in "iuf" else values


def null_words(array: Any, na: Sequence[str]) -> Any:
    """Return the array with nulls for the words `na`."""
    import pyarrow as pa
    from pyarrow import compute

    if not na or not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return array
    return compute.if_else(compute.is_in(array, pa.array(na, array.type)), pa.scalar(None, array.type), array)
