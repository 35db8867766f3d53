"""Columns of a table: each holds numbers, text or dates. Files, data frames and arrays all follow these rules.

A missing value: None, NaN, pandas' NA and NaT, an empty cell; among numbers also the words of GAPS.
A column of text holds numbers if every cell is a number or missing, and dates if every cell is a date. A column of
which more than half of the cells, but not all, are numbers (or dates) is refused: a stray word would turn a
measurement into categories. The user decides otherwise by the type of the column, or by naming words that mean a
missing value.
A date becomes PARTS: the year, the month (1 to 12), the day (1 to 31), the weekday (Monday is 0) and the hour (with
minutes as a fraction, 0 where no time is written). The clock is taken as it is written, whatever its zone.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, unknown

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


Dates = NDArray[np.datetime64]  # (row,) in microseconds, NaT for a gap

PARTS = ("year", "month", "day", "weekday", "hour")
ORDERS = {  # how a date may be written, by the name of its order
    "ymd": "year-month-day",
    "dmy": "day/month/year",
    "mdy": "month/day/year",
    "named": "with the month's name",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
TIME = (
    r"(?:[T ,]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?: ?([ap])\.?m\.?)?)?(?: ?(?:z|utc|[+-]\d{2}:?\d{2}))?"
)
YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})" + TIME, re.IGNORECASE)
YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})" + TIME, re.IGNORECASE)
DAY_AND_NAME = re.compile(r"(\d{1,2})(?:[- ]|\. ?)([a-z]{3,9})\.?[-, ]+(\d{4})" + TIME, re.IGNORECASE)
NAME_AND_DAY = re.compile(r"([a-z]{3,9})\.? (\d{1,2}),? (\d{4})" + TIME, re.IGNORECASE)


def take_parts(dates: Dates) -> NDArray[np.float64]:
    """Return PARTS of every date (row, part); NaN for a gap."""
    days, months = dates.astype("M8[D]"), dates.astype("M8[M]")
    parts = np.stack(
        [
            dates.astype("M8[Y]").astype(np.int64) + 1970,
            months.astype(np.int64) % 12 + 1,
            (days - months.astype("M8[D]")).astype(np.int64) + 1,
            (days.astype(np.int64) + 3) % 7,  # the first day of 1970 was a Thursday
            (dates - days) / np.timedelta64(1, "h"),
        ],
        axis=1,
    ).astype(np.float64)
    parts[np.isnat(dates)] = np.nan
    return parts


def parse_date(word: str, order: str = "") -> datetime.datetime | None:
    """Return the date that a word spells, or None. order: of ORDERS, or empty where any is allowed."""
    text = word.strip()
    if order in ("", "ymd") and text[4:5] == text[7:8] == "-" and text[8:10].isdecimal():  # the quick way
        with suppress(ValueError):
            return datetime.datetime.fromisoformat(text).replace(tzinfo=None)
    if order in ("", "ymd") and (match := YEAR_FIRST.fullmatch(text)):
        year, _, month, day, *time = match.groups()
        return _make(year, month, day, time)
    if order in ("", "dmy", "mdy") and (match := YEAR_LAST.fullmatch(text)):
        day, _, month, year, *time = match.groups()
        return _make(year, day, month, time) if order == "mdy" else _make(year, month, day, time)
    if order in ("", "named") and (match := DAY_AND_NAME.fullmatch(text)):
        day, name, year, *time = match.groups()
        return _make(year, _number_month(name), day, time)
    if order in ("", "named") and (match := NAME_AND_DAY.fullmatch(text)):
        name, day, year, *time = match.groups()
        return _make(year, _number_month(name), day, time)
    return None


def find_orders(words: Iterable[str]) -> list[str]:
    """List the orders by which most of the words are dates, the best first: two where days cannot be told from months.

    An order is listed only if more than half of the words are dates by it.
    """
    texts = list(words)
    counts = {order: sum(parse_date(text, order) is not None for text in texts) for order in ORDERS}
    most = max(counts.values(), default=0)
    best = [order for order, count in counts.items() if count == most and 2 * count > len(texts)]
    if best == ["dmy", "mdy"] and all(_has_points(text) for text in texts if parse_date(text, "dmy")):
        return ["dmy"]  # with points between them, days come first
    return best


def make_dates(values: Iterable[Any]) -> Dates:
    """Make a column of dates from objects of Python, None for a gap; a time zone is left out, the clock stays."""
    plain = [v.replace(tzinfo=None) if isinstance(v, datetime.datetime) else v for v in values]
    return np.array(["NaT" if v is None else v.isoformat() for v in plain], dtype="M8[us]")


def to_texts(dates: Dates) -> NDArray[Any]:
    """Write dates as words, with None for a gap; without the time where it is midnight in all of them."""
    known = dates[~np.isnat(dates)]
    texts = dates.astype("M8[D]" if (known == known.astype("M8[D]")).all() else "M8[s]").astype(str)
    return np.array([None if text == "NaT" else text for text in texts.tolist()], dtype=object)


def _has_points(text: str) -> bool:
    match = YEAR_LAST.fullmatch(text.strip())
    return match is not None and match[2] == "."


def _number_month(name: str) -> int:
    return MONTHS.index(name[:3].lower()) + 1 if name[:3].lower() in MONTHS else 0


def _make(year: Any, month: Any, day: Any, time: Sequence[str | None]) -> datetime.datetime | None:
    hour, minute, second, fraction, half = time
    clock = int(hour or 0)
    if half is not None:
        if not 1 <= clock <= 12:
            return None
        clock = clock % 12 + (12 if half.lower() == "p" else 0)
    micro = int((fraction or "0").ljust(6, "0")[:6])
    try:
        return datetime.datetime(int(year), int(month), int(day), clock, int(minute or 0), int(second or 0), micro)
    except ValueError:
        return None


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
