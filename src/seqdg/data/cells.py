"""Cells of a table: each is a number, a word, a date or a gap. Files, data frames and arrays all follow these rules.

A gap: None, NaN, pandas' NA and NaT, an empty cell; among numbers also the words of GAPS.
A column of a file holds numbers if every cell is a number or a gap, and words otherwise; `column_types` finds dates,
and refuses a column that is almost of numbers.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.data.dates import ORDERS, make_dates, parse_date, to_texts

Column = NDArray[
    Any
]  # (row,) float64 with NaN for a gap, or objects: str, and None for a gap; or datetime64[us] with NaT

# What spreadsheets and statistics programs write for "no number", in lower case.
GAPS = frozenset(
    (
        "", "na", "n/a", "nan", "nat", "null", "nil", "none", "missing", "<na>", "?", "-", "--", "---", "\u2013",
        "\u2014", ".", "..", "#na", "#n/a", "#n/a n/a", "#null!", "#num!", "#value!", "#div/0!", "#ref!",
    )
)  # fmt: skip
TRUTH = {"true": 1.0, "false": 0.0}
CODE = r"\s*[+-]?(0[0-9]+|[0-9]{16,})\s*"  # digits that a float does not give back: 007, and 16 or more of them


def is_missing(value: Any) -> bool:
    """Return whether a cell is a gap: None, NaN, pandas' NA and NaT, or the empty word."""
    if value is None or (isinstance(value, str | bytes) and not value):
        return True
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return type(value).__name__ in ("NAType", "NaTType")


def is_gap_word(word: str) -> bool:
    """Return whether a word stands for a gap where it is found among numbers or dates."""
    return word.strip().lower() in GAPS


def count_present(values: Column) -> int:
    """Count the cells of a column that are no gaps."""
    return int((values != None).sum() if values.dtype == object else (~np.isnan(values)).sum())  # noqa: E711  elementwise


def to_word(value: Any) -> str:
    """Return a cell as a word: `3` for 3 and for 3.0, as a column of whole numbers with a gap is read as floats."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float | np.floating) and (number := float(value)).is_integer() and abs(number) < 2**53:
        return str(int(number))
    return str(value)


def rank_word(word: str) -> tuple[int, float, str]:
    """Sort numbers by size, before words by the alphabet."""
    try:
        return (0, float(word), word)
    except ValueError:
        return (1, 0.0, word)


def to_words(values: Column) -> Column:
    """Return a column as words, with None for a gap."""
    if values.dtype == object:
        return values
    if values.dtype.kind == "M":
        return to_texts(values)
    return np.array([None if np.isnan(v) else to_word(v) for v in values.tolist()], dtype=object)


def parse_number(word: str) -> float:
    """Return the number that a word spells, or NaN for a gap. Raise a ValueError if it is neither."""
    plain = word.strip().lower()
    if is_gap_word(plain):
        return float("nan")
    if "_" in plain:  # Python reads 2019_1 as 20191
        raise ValueError(word)
    return float(plain)


def parse_column(words: Column) -> Column:
    """Return numbers if all words are numbers or gaps; the words themselves otherwise."""
    if words.dtype != object:
        return words
    try:
        return np.array([float("nan") if word is None else parse_number(word) for word in words], dtype=np.float64)
    except ValueError:
        return words


def has_codes(values: Column) -> bool:
    """Return whether words of a column are codes, such as 007: as numbers they would be spelled otherwise, or merge."""
    if values.dtype != object:
        return False
    return any(re.fullmatch(CODE, word) for word in set(values.tolist()) - {None})


def parse_truth(words: Column) -> Column:
    """Return 1 and 0 if all words are true, false or gaps; the column as it is otherwise."""
    if words.dtype != object:
        return words
    numbers = []
    for word in words:
        number = float("nan") if is_missing(word) else TRUTH.get(str(word).strip().lower())
        if number is None:
            return words
        numbers.append(number)
    return np.array(numbers, dtype=np.float64)


def expect_words(values: Column, known: Sequence[str]) -> Column:
    """Return the words of a column that held these in training, even if `true` and `false` now come as 1 and 0."""
    words = to_words(values)
    spelled = {TRUTH.get(word.strip().lower()): word for word in known}
    if None in spelled or not spelled:
        return words
    meant = {to_word(number): word for number, word in spelled.items()}
    meant.update({spelling: spelled[n] for spelling, n in TRUTH.items() if n in spelled})
    return np.array(
        [w if w is None or w in known else meant.get(w.strip().lower(), w) for w in words.tolist()], dtype=object
    )


def expect_numbers(name: str, values: Column, row_numbers: NDArray[np.int64]) -> Column:
    """Return the numbers of a column that held numbers in training, even if it now comes as words.

    row_numbers: (row,) in the user's table, for the error message.
    """
    if values.dtype.kind == "M":
        raise UsageError(f"Column '{name}' held numbers when the model was fitted, but now it holds dates.")
    if values.dtype != object:
        return values
    rows = zip(row_numbers, values.tolist(), strict=True)
    return np.array([_expect(name, row, value) for row, value in rows], dtype=np.float64)


def expect_dates(name: str, values: Column, order: str, row_numbers: NDArray[np.int64]) -> Column:
    """Return the dates of a column that held dates in training, even if it now comes as words in the same order."""
    if values.dtype.kind == "M":
        return values
    words = to_words(values)
    dates = [
        None if v is None or is_gap_word(v) else _expect_date(name, i, v, order)
        for i, v in zip(row_numbers, words, strict=True)
    ]
    return make_dates(dates)


def _expect(name: str, row: int, value: str | None) -> float:
    if value is None:
        return float("nan")
    try:
        return TRUTH[plain] if (plain := value.strip().lower()) in TRUTH else parse_number(plain)
    except ValueError:
        raise UsageError(
            f"Column '{name}' held numbers when the model was fitted, but now row {row} (from 0) holds '{value[:40]}'. "
            f"Mend it, or give --na '{value[:40]}' if that is a gap."
        ) from None


def _expect_date(name: str, row: int, value: str, order: str) -> datetime.datetime:
    plain = f"{value[:4]}-{value[4:6]}-{value[6:]}" if len(value) == 8 and value.isdecimal() else value
    orders = [order] if order else ["ymd", "named"]
    date = next((date for o in orders if (date := parse_date(plain, o)) is not None), None)
    if date is None:
        written = ORDERS[order or "ymd"]
        raise UsageError(
            f"Column '{name}' held dates when the model was fitted, and row {row} (from 0) holds '{value[:40]}', which "
            f"is no date ({written}). Mend it, or give --na '{value[:40]}' if that is a gap."
        )
    return date
