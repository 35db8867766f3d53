"""Decide what a column of a table holds: numbers, words or dates; and say what was decided.

A column of words is numbers if every word is a number or stands for a gap, and dates if every word is a date. A column
of which more than half of the words, but not all, are numbers (or dates) is refused: a stray word would turn a
measurement into words. The user decides otherwise by the type of the column, or by naming words that are gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, unknown
from seqdg.data.cells import Column, count_present, is_gap_word, parse_number, to_words
from seqdg.data.dates import ORDERS, PARTS, find_orders, make_dates, parse_date

NUMBERS, WORDS, DATES = "numbers", "words", "dates"
TYPES = ("number", "words", "date", "date:dmy", "date:mdy", "ignore")  # as the user names them
SHORT = 10  # rows in which numbers may well run upwards by chance
SAMPLE = 1000  # different words by which the order of days and months is told
RowNumbers = NDArray[np.int64]  # (row,) in the user's table, for messages


@dataclass(frozen=True)
class ColumnType:
    """The decision about a column."""

    name: str
    kind: str  # NUMBERS, WORDS or DATES
    gaps: int = 0
    different: int = 0  # words that occur
    gap_words: tuple[str, ...] = ()  # words that were taken for gaps, or among words may stand for one
    order: str = ""  # of day, month and year, where the dates were words

    def describe(self) -> str:
        """Say it in some words: `numbers, 3 gaps ('?')`."""
        signs = ", ".join(repr(word) for word in self.gap_words[:3])
        gaps = f", {count_things(self.gaps, 'gap')}" if self.gaps else ""
        if self.kind == NUMBERS:
            return f"numbers{gaps}" + (f" ({signs})" if signs else "")
        if self.kind == DATES:
            written = f" ({ORDERS[self.order]})" if self.order else ""
            return f"dates{written} -> {', '.join(PARTS)}{gaps}" + (f" ({signs})" if signs else "")
        among = f", among them {signs} (a gap? then name it with --na)" if signs else ""
        return count_things(self.different, "word") + gaps + among


@dataclass(frozen=True)
class WaysOut:
    """The ways to say what a column holds: by options on the command line, by pandas in Python."""

    words: Callable[[str], str]  # from the name of a column
    date: Callable[[str], str]
    gap: Callable[[str, str], str]  # from the name of a column and a word


COMMAND_LINE = WaysOut(
    words=lambda name: f"--types '{name}=words'",
    date=lambda name: f"--types '{name}=date:dmy' or --types '{name}=date:mdy'",
    gap=lambda name, word: f"--na '{word}'",
)
PANDAS = WaysOut(
    words=lambda name: f"X['{name}'].astype('category')",
    date=lambda name: f"pd.to_datetime(X['{name}'], dayfirst=True or False)",
    gap=lambda name, word: f"X['{name}'].replace('{word}', None)",
)


def parse_types(texts: Sequence[str]) -> dict[str, str]:
    """Parse texts such as `age=number` into types by column."""
    types = {}
    for text in texts:
        name, sign, kind = text.rpartition("=")
        kind = {"numbers": "number", "word": "words", "dates": "date"}.get(kind.strip(), kind.strip())
        if not sign:
            raise UsageError(f"--types has '{text}', but it must be COLUMN=TYPE, such as age=number or ward=words.")
        if kind not in TYPES:
            raise unknown("type of a column", kind, TYPES)
        types[name.strip()] = kind
    return types


def find_gap_numbers(na: Sequence[str]) -> list[float]:
    """Return the numbers among the words that stand for a gap."""
    return [number for word in na if (number := _read_number(word)) is not None]


def drop_gap_words(values: Column, na: Sequence[str]) -> Column:
    """Return the column with gaps for the words `na`, and for the numbers that they spell."""
    if not na or values.dtype.kind == "M":
        return values
    numbers = find_gap_numbers(na)
    if values.dtype == object:
        named = {word.strip() for word in na}
        gaps = {v for v in set(values.tolist()) - {None} if v.strip() in named or _read_number(v) in numbers}
        return np.array([None if v in gaps else v for v in values.tolist()], dtype=object)
    return np.where(np.isin(values, numbers), np.nan, values)


def decide_column(
    name: str, values: Column, asked: str, is_text: bool, ways: WaysOut, row_numbers: RowNumbers
) -> tuple[Column, ColumnType]:
    """Return the values as what they are, and the decision.

    asked: of TYPES, or empty.   is_text: whether numbers come as words too, as in a file of text; else a column of
    words that are all numbers is what its owner made it: words.   row_numbers: in the user's table.
    """
    if asked == "words":
        words = to_words(values)
        return words, _describe_words(name, words)
    if values.dtype.kind == "M":
        return values, ColumnType(name, DATES, len(values) - count_present(values))
    if values.dtype != object:
        if asked.startswith("date"):
            return _decide_dates(name, to_words(values), Counter(to_words(values).tolist()), asked, ways, row_numbers)
        return values, ColumnType(name, NUMBERS, len(values) - count_present(values))
    counts = Counter(values.tolist())
    counts.pop(None, None)
    real = {word: count for word, count in counts.items() if not is_gap_word(word)}
    numeric = sum(count for word, count in real.items() if _read_number(word) is not None)
    total = sum(real.values())
    if asked == "number" or (2 * numeric > total and (is_text or numeric < sum(counts.values()))):
        return _decide_numbers(name, values, counts, asked, ways, row_numbers)
    if asked.startswith("date") or (real and find_orders(list(real)[:SAMPLE])):
        return _decide_dates(name, values, Counter(real), asked, ways, row_numbers)
    return values, _describe_words(name, values)


def _decide_numbers(
    name: str, values: Column, counts: Counter[Any], asked: str, ways: WaysOut, row_numbers: RowNumbers
) -> tuple[Column, ColumnType]:
    meaning = {word: float("nan") if is_gap_word(word) else _read_number(word) for word in counts}
    stray = {word for word, number in meaning.items() if number is None}
    if stray:
        raise _refuse_stray(name, "numbers" if asked else "mostly numbers", values, stray, asked, ways, row_numbers)
    numbers = np.array([np.nan if v is None else meaning[v] for v in values.tolist()], dtype=np.float64)
    gap_words = tuple(dict.fromkeys(word.strip() for word in counts if is_gap_word(word) and word.strip()))
    return numbers, ColumnType(name, NUMBERS, int(np.isnan(numbers).sum()), gap_words=gap_words)


def _decide_dates(
    name: str, values: Column, counts: Counter[Any], asked: str, ways: WaysOut, row_numbers: RowNumbers
) -> tuple[Column, ColumnType]:
    real = [word for word in counts if word is not None]
    if real and all(len(word) == 8 and word.isdecimal() for word in real):  # 20200131
        values = np.array(
            [v if v is None or len(v) != 8 else f"{v[:4]}-{v[4:6]}-{v[6:]}" for v in values], dtype=object
        )
        real = [f"{word[:4]}-{word[4:6]}-{word[6:]}" for word in real]
    orders = [asked.partition(":")[2]] if ":" in asked else find_orders(real[:SAMPLE])
    if len(orders) == 2:
        orders = find_orders(real)  # a later one may tell days from months
    if len(orders) == 2:
        raise UsageError(
            f"Column '{name}' holds dates such as '{real[0]}', and nothing tells days from months. Say which come "
            f"first: {ways.date(name)}."
        )
    order = orders[0] if orders else ""
    meaning = {word: parse_date(word, order) for word in real}
    stray = {word for word, date in meaning.items() if date is None}
    if stray:
        raise _refuse_stray(name, "dates" if asked else "mostly dates", values, stray, asked, ways, row_numbers)
    dates = make_dates(meaning.get(v) for v in values.tolist())
    gap_words = tuple(dict.fromkeys(v.strip() for v in values.tolist() if v is not None and v not in meaning))
    return dates, ColumnType(name, DATES, int(np.isnat(dates).sum()), gap_words=gap_words, order=order)


def _describe_words(name: str, values: Column) -> ColumnType:
    different = {v for v in values.tolist() if v is not None}
    doubtful = tuple(sorted(word.strip() for word in different if is_gap_word(word)))
    return ColumnType(name, WORDS, len(values) - count_present(values), len(different), gap_words=doubtful)


def _refuse_stray(
    name: str, what: str, values: Column, stray: set[str], asked: str, ways: WaysOut, row_numbers: RowNumbers
) -> UsageError:
    row, word = next((i, v) for i, v in zip(row_numbers, values.tolist(), strict=True) if v in stray)
    count = sum(v in stray for v in values.tolist())
    more = f", and {count_things(count - 1, 'other cell')} like it" if count > 1 else ""
    held = f"Column '{name}' should hold {what}" if asked else f"Column '{name}' holds {what}"
    words = "" if asked else f", or {ways.words(name)} to take the whole column as words"
    return UsageError(
        f"{held}, but row {row} (from 0) holds '{word[:40]}'{more}. Mend it, or give {ways.gap(name, word[:40])} if "
        f"that is a gap{words}."
    )


def _read_number(word: str) -> float | None:
    """Return the number that a word spells, or None; a gap is none."""
    try:
        number = parse_number(word)
    except ValueError:
        return None
    return None if np.isnan(number) else number


def describe_columns(types: Sequence[ColumnType], most: int = 12) -> str:
    """Say in one line what was decided about all columns; those of numbers without gaps together, if there are many."""
    plain = [t.name for t in types if t.kind == NUMBERS and not t.gaps]
    together = len(types) > most and len(plain) > 1
    parts = [f"{len(plain)} columns of numbers without gaps"] if together else []
    parts += [f"{t.name}: {t.describe()}" for t in types if not (together and t.name in plain)]
    more = len(parts) - most
    return "; ".join(parts[:most]) + (f"; and {more} more" if more > 0 else "")


def list_types(types: Sequence[ColumnType]) -> dict[str, str]:
    """Return the decisions by column, in words."""
    return {t.name: t.describe() for t in types}


def find_counters(columns: Mapping[str, Column]) -> list[str]:
    """List the columns that number the rows: whole numbers, each one more than the one before."""
    return [
        name
        for name, values in columns.items()
        if values.dtype.kind == "f" and len(values) > SHORT and bool((np.diff(values) == 1).all())
    ]
