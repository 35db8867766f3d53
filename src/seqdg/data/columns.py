"""Columns of a table: each holds numbers, text or dates. Files, data frames and arrays all follow these rules.

A missing value: None, NaN, pandas' NA and NaT, an empty cell; among numbers also the text of MISSING.
A column of text holds numbers if every cell is a number or missing, and dates if every cell is a date. A column of
which more than half of the cells, but not all, are numbers (or dates) is refused: a stray word would turn a
measurement into categories. The user decides otherwise by the type of the column, or by naming text that means
missing.
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

from seqdg.base import UsageError, count_things, list_some, unknown

# (row,) float64, NaN where missing; or objects: str, None where missing; or datetime64[us], NaT where missing
Column = NDArray[Any]
Dates = NDArray[np.datetime64]  # (row,) in microseconds, NaT where missing
RowNumbers = NDArray[np.int64]  # (row,) in the user's table, for messages

# What spreadsheets and statistics programs write for "no number", in lower case.
MISSING = frozenset(
    (
        "", "na", "n/a", "nan", "nat", "null", "nil", "none", "missing", "<na>", "?", "-", "--", "---", "\u2013",
        "\u2014", ".", "..", "#na", "#n/a", "#n/a n/a", "#null!", "#num!", "#value!", "#div/0!", "#ref!",
    )
)  # fmt: skip
TRUTH = {"true": 1.0, "false": 0.0}
CODE = r"\s*[+-]?(0[0-9]+|[0-9]{16,})\s*"  # digits that a float does not give back: 007, and 16 or more of them
NUMBERS, WORDS, DATES = "numbers", "words", "dates"
TYPES = ("number", "category", "date", "date:dmy", "date:mdy", "ignore")  # as the user names them
SPELLINGS = {"numbers": "number", "categories": "category", "words": "category", "text": "category", "dates": "date"}
SAMPLE = 1000  # different texts by which the order of days and months is told
MANY_TEXTS = 20  # different ones, above which numbers with a unit are measurements and no names of doses
WITH_UNIT = re.compile(r"\s*[-+]?\d[\d.,]*\s*(%|‰|°[CF]?|[€$£]|[^\W\d_]{1,4}[²³]?(?:/[^\W\d_]{1,4}[²³]?)?)\s*")

PARTS = ("year", "month", "day", "weekday", "hour")
ORDERS = {  # how a date may be written, by the name of its order
    "ymd": "year-month-day",
    "dmy": "day/month/year",
    "mdy": "month/day/year",
    "named": "with the month's name",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY, _MONTH, _YEAR, _MARK = r"(?P<day>\d{1,2})", r"(?P<month>\d{1,2})", r"(?P<year>\d{4})", r"(?P<mark>[-/.])"
_TIME = (
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?)?(?: ?(?:z|utc|[+-]\d{2}:?\d{2}))?"
)
_PATTERNS = [
    (order, re.compile(pattern + _TIME, re.IGNORECASE))
    for order, pattern in (
        ("ymd", f"{_YEAR}{_MARK}{_MONTH}(?P=mark){_DAY}"),
        ("dmy", f"{_DAY}{_MARK}{_MONTH}(?P=mark){_YEAR}"),
        ("mdy", f"{_MONTH}{_MARK}{_DAY}(?P=mark){_YEAR}"),
        ("named", rf"{_DAY}(?:[- ]|\. ?)(?P<month>[a-z]{{3,9}})\.?[-, ]+{_YEAR}"),
        ("named", rf"(?P<month>[a-z]{{3,9}})\.? {_DAY},? {_YEAR}"),
    )
]

# How the user says what a column holds: by options on the command line, by pandas in Python.
COMMAND_LINE = {
    "text": "--types '{name}=category'",
    "date": "--types '{name}=date:dmy' or --types '{name}=date:mdy'",
    "missing": "--na '{cell}'",
}
PANDAS = {
    "text": "X['{name}'].astype('category')",
    "date": "pd.to_datetime(X['{name}'], dayfirst=True or False)",
    "missing": "X['{name}'].replace('{cell}', None)",
}


class WrongRows(UsageError):
    """A mistake in rows of a table: told by the numbers of the rows or, where the file is one of text, by its lines."""

    ONE, SEVERAL = "\0row\0", "\0rows\0"  # what stands for them in a sentence

    def __init__(self, sentence: str, rows: Iterable[int] = ()) -> None:
        """sentence: with ONE for a row, or SEVERAL in brackets after their count; with neither, as it is unpickled."""
        self.template, self.rows = sentence, [int(row) for row in rows]
        super().__init__(self._name(f"row {next(iter(self.rows), 0)} (from 0)", f"from 0: {list_some(self.rows)}"))

    def _name(self, one: str, several: str) -> str:
        return self.template.replace(self.ONE, one).replace(self.SEVERAL, several)

    def name_lines(self, lines: Sequence[int]) -> UsageError:
        """Return the error with the lines of the file in which its rows begin."""
        what = "line" if len(lines) == 1 else "lines"
        return UsageError(self._name(f"line {lines[0]}", f"{what} {list_some(lines)}"))


def is_missing(value: Any) -> bool:
    """Return whether a cell is missing: None, NaN, pandas' NA and NaT, or the empty text."""
    if value is None or (isinstance(value, str | bytes) and not value):
        return True
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return type(value).__name__ in ("NAType", "NaTType")


def means_missing(text: str) -> bool:
    """Return whether a text means missing where it stands among numbers or dates."""
    return text.strip().lower() in MISSING


def count_present(values: Column) -> int:
    """Count the cells of a column that are not missing."""
    return int((values != None).sum() if values.dtype == object else (~np.isnan(values)).sum())  # noqa: E711  elementwise


def to_word(value: Any) -> str:
    """Return a cell as text: `3` for 3 and for 3.0, as a column of whole numbers with one missing is read as floats."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float | np.floating) and (number := float(value)).is_integer() and abs(number) < 2**53:
        return str(int(number))
    return str(value)


def rank_word(word: str) -> tuple[int, float, str]:
    """Sort numbers by size, before text by the alphabet."""
    try:
        return (0, float(word), word)
    except ValueError:
        return (1, 0.0, word)


def to_words(values: Column) -> Column:
    """Return a column as text, with None where a cell is missing; of dates, without the time if all are midnight."""
    if values.dtype == object:
        return values
    if values.dtype.kind == "M":
        known = values[~np.isnat(values)]
        texts = values.astype("M8[D]" if (known == known.astype("M8[D]")).all() else "M8[s]").astype(str)
        return np.array([None if text == "NaT" else text for text in texts.tolist()], dtype=object)
    return np.array([None if np.isnan(v) else to_word(v) for v in values.tolist()], dtype=object)


def list_different(values: Column) -> list[str]:
    """List the different texts of a column, in order of appearance."""
    different = dict.fromkeys(values.tolist())
    different.pop(None, None)
    return list(different)


def _translate(values: Column, meaning: Mapping[str, float | None]) -> Column:
    """Return the number that each text of a column means, NaN where it means none or the cell is missing."""
    numbers = [meaning.get(v) for v in values.tolist()]
    return np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)


def read_number(text: str) -> float | None:
    """Return the number that a text spells, NaN if it means missing, None if it does neither."""
    plain = text.strip().lower()
    if plain in MISSING:
        return float("nan")
    if "_" in plain:  # Python reads 2019_1 as 20191
        return None
    try:
        return float(plain)
    except ValueError:
        return None


def parse_column(words: Column) -> Column:
    """Return numbers if every text is a number or means missing; the column as it is otherwise."""
    return _parse(words, read_number)


def parse_truth(words: Column) -> Column:
    """Return 1 and 0 if every text is true or false; the column as it is otherwise."""
    return _parse(words, lambda text: TRUTH.get(text.strip().lower()))


def _parse(words: Column, read: Callable[[str], float | None]) -> Column:
    if words.dtype != object:
        return words
    meaning = {}
    for text in list_different(words):
        meaning[text] = read(text)
        if meaning[text] is None:  # the texts after it need not be read
            return words
    return _translate(words, meaning)


def has_codes(values: Column) -> bool:
    """Return whether a column of text holds codes, such as 007: as numbers they would be spelled otherwise, or
    merge."""
    return values.dtype == object and any(re.fullmatch(CODE, text) for text in list_different(values))


def expect_words(values: Column, known: Sequence[str]) -> Column:
    """Return the text of a column that held these categories in training, even if `true` and `false` now come as 1 and
    0."""
    words = to_words(values)
    spelled = {TRUTH.get(word.strip().lower()): word for word in known}
    if None in spelled or not spelled:
        return words
    meant = {to_word(number): word for number, word in spelled.items()}
    meant.update({spelling: spelled[n] for spelling, n in TRUTH.items() if n in spelled})
    return np.array(
        [w if w is None or w in known else meant.get(w.strip().lower(), w) for w in words.tolist()], dtype=object
    )


def expect_numbers(name: str, values: Column, row_numbers: RowNumbers) -> Column:
    """Return the numbers of a column that held numbers in training, even if it now comes as text."""
    if values.dtype.kind == "M":
        raise UsageError(f"Column '{name}' held numbers when the model was fitted, but now it holds dates.")
    if values.dtype != object:
        return values
    meaning = {text: TRUTH.get(text.strip().lower(), read_number(text)) for text in list_different(values)}
    _check_known(name, NUMBERS, values, meaning, row_numbers)
    return _translate(values, meaning)


def expect_dates(name: str, values: Column, order: str, row_numbers: RowNumbers) -> Column:
    """Return the dates of a column that held dates in training, even if it now comes as text in the same order."""
    if values.dtype.kind == "M":
        return values
    words = to_words(values)
    orders = [order] if order else ["ymd", "named"]
    meaning = {
        text: next((date for o in orders if (date := parse_date(_add_dashes(text), o)) is not None), None)
        for text in list_different(words)
        if not means_missing(text)
    }
    _check_known(name, f"{DATES} ({ORDERS[order or 'ymd']})", words, meaning, row_numbers)
    return make_dates(meaning.get(v) for v in words.tolist())


def _check_known(name: str, kind: str, words: Column, meaning: Mapping[str, Any], row_numbers: RowNumbers) -> None:
    """Raise a UsageError where a text of a new table has no meaning (None) as what the column held in training."""
    for text, value in meaning.items():
        if value is None:
            raise WrongRows(
                f"Column '{name}' held {kind} when the model was fitted, but now {WrongRows.ONE} holds '{text[:40]}'. "
                f"Fix it, or give --na '{text[:40]}' if that means missing.",
                row_numbers[words == text][:1],
            )


def take_parts(dates: Dates) -> NDArray[np.float64]:
    """Return PARTS of every date (row, part); NaN where it is missing."""
    import pandas

    index, hours = pandas.DatetimeIndex(dates), (dates - dates.astype("M8[D]")) / np.timedelta64(1, "h")
    parts = np.stack([index.year, index.month, index.day, index.day_of_week, hours], axis=1).astype(np.float64)
    parts[np.isnat(dates)] = np.nan
    return parts


def parse_date(word: str, order: str = "") -> datetime.datetime | None:
    """Return the date that a text spells, or None. order: of ORDERS, or empty where any is allowed."""
    text = word.strip()
    if order in ("", "ymd") and text[4:5] == text[7:8] == "-" and text[8:10].isdecimal():  # the quick way
        with suppress(ValueError):
            return datetime.datetime.fromisoformat(text).replace(tzinfo=None)
    matches = (pattern.fullmatch(text) for name, pattern in _PATTERNS if order in ("", name))
    match = next((match for match in matches if match), None)
    return None if match is None else _make_date(match.groupdict())


def _make_date(part: Mapping[str, str | None]) -> datetime.datetime | None:
    hour, half, month = int(part["hour"] or 0), (part["half"] or "").lower(), str(part["month"])
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + 12 * (half == "p") if half else hour
    try:
        return datetime.datetime(
            int(part["year"] or 0),
            int(month) if month.isdecimal() else MONTHS.index(month[:3].lower()) + 1,
            int(part["day"] or 0),
            hour,
            int(part["minute"] or 0),
            int(part["second"] or 0),
            int((part["fraction"] or "0").ljust(6, "0")[:6]),
        )
    except ValueError:
        return None


def _add_dashes(text: str) -> str:
    """Return 20200131 as 2020-01-31, and other text as it is."""
    return f"{text[:4]}-{text[4:6]}-{text[6:]}" if len(text) == 8 and text.isdecimal() else text


def find_orders(words: Iterable[str]) -> list[str]:
    """List the orders by which most of the texts are dates, the best first: two where days cannot be told from months.

    An order is listed only if more than half of the texts are dates by it.
    """
    texts = list(words)
    counts = {order: sum(parse_date(text, order) is not None for text in texts) for order in ORDERS}
    most = max(counts.values())
    best = [order for order, count in counts.items() if count == most and 2 * count > len(texts)]
    if best == ["dmy", "mdy"] and all(re.match(r"\d+\.", text.strip()) for text in texts if parse_date(text, "dmy")):
        return ["dmy"]  # with points between them, days come first
    return best


def make_dates(values: Iterable[Any]) -> Dates:
    """Make a column of dates from objects of Python, None where missing; a time zone is left out, the clock stays."""
    plain = [v.replace(tzinfo=None) if isinstance(v, datetime.datetime) else v for v in values]
    return np.array(["NaT" if v is None else v.isoformat() for v in plain], dtype="M8[us]")


@dataclass(frozen=True)
class ColumnType:
    """The decision about a column."""

    name: str
    kind: str  # NUMBERS, WORDS or DATES
    missing: int = 0  # cells
    different: int = 0  # texts that occur
    signs: tuple[str, ...] = ()  # text that was taken for missing, or among categories may mean it
    order: str = ""  # of day, month and year, where the dates were text

    def describe(self) -> str:
        """Say it in some words: `numbers, 3 missing ('?')`."""
        signs = ", ".join(repr(text) for text in self.signs[:3])
        missing = f", {self.missing} missing" if self.missing else ""
        if self.kind == WORDS:
            among = f", among them {signs} (missing? then name it with --na)" if signs else ""
            return f"{self.different} {'category' if self.different == 1 else 'categories'}{missing}{among}"
        written = f" ({ORDERS[self.order]})" if self.order else ""
        parts = f"{written} -> {', '.join(PARTS)}" if self.kind == DATES else ""
        return f"{self.kind}{parts}{missing}" + (f" ({signs})" if signs else "")


def describe_columns(types: Sequence[ColumnType], most: int = 12) -> str:
    """Say in one line what was decided about all columns; those of numbers without missing values together, if there
    are many."""
    plain = [t.name for t in types if t.kind == NUMBERS and not t.missing]
    together = len(types) > most and len(plain) > 1
    parts = [f"{len(plain)} columns of numbers without missing values"] if together else []
    parts += [f"{t.name}: {t.describe()}" for t in types if not (together and t.name in plain)]
    more = len(parts) - most
    return "; ".join(parts[:most]) + (f"; and {more} more" if more > 0 else "")


def parse_types(texts: Sequence[str]) -> dict[str, str]:
    """Parse texts such as `age=number` into types by column."""
    types = {}
    for text in texts:
        name, sign, kind = text.rpartition("=")
        kind = SPELLINGS.get(kind.strip(), kind.strip())
        if not sign:
            raise UsageError(f"--types has '{text}', but it must be COLUMN=TYPE, such as age=number or ward=category.")
        if kind not in TYPES:
            raise unknown("type of a column", kind, TYPES)
        types[name.strip()] = kind
    return types


def find_missing_numbers(na: Sequence[str]) -> list[float]:
    """Return the numbers among the texts that mean missing."""
    return [number for text in na if (number := read_number(text)) is not None and not np.isnan(number)]


def drop_missing(values: Column, na: Sequence[str]) -> Column:
    """Return the column without the cells that mean missing: the texts `na`, and the numbers that they spell."""
    if not na or values.dtype.kind == "M":
        return values
    numbers = find_missing_numbers(na)
    if values.dtype == object:
        named = {text.strip() for text in na}
        missing = {v for v in list_different(values) if v.strip() in named or read_number(v) in numbers}
        return np.array([None if v in missing else v for v in values.tolist()], dtype=object)
    return np.where(np.isin(values, numbers), np.nan, values)


def decide_column(
    name: str, values: Column, asked: str, is_text: bool, row_numbers: RowNumbers
) -> tuple[Column, ColumnType]:
    """Return the values as what they are, and the decision.

    asked: of TYPES, or empty.   is_text: whether numbers come as text too, as in a file of text; else a column of
    text that is all numbers is what its owner made it: text.
    """
    is_settled = values.dtype != object and not (asked.startswith("date") and values.dtype.kind == "f")
    if is_settled and asked != "category":
        kind = DATES if values.dtype.kind == "M" else NUMBERS
        return values, ColumnType(name, kind, len(values) - count_present(values))
    words = to_words(values)
    counts = Counter(words.tolist())
    missing = counts.pop(None, 0)
    real = {text: count for text, count in counts.items() if not means_missing(text)}
    numeric, total = sum(count for text, count in real.items() if read_number(text) is not None), sum(real.values())
    is_numeric = 2 * numeric > total and (is_text or numeric < sum(counts.values()))
    order, meaning = "", dict[str, Any]()
    if asked == "number" or (is_numeric and not asked):
        kind, meaning = NUMBERS, {text: read_number(text) for text in real}
    elif asked != "category" and (asked or (real and find_orders(list(real)[:SAMPLE]))):
        kind, order = DATES, _decide_order(name, list(real), asked, is_text)
        meaning = {text: parse_date(_add_dashes(text), order) for text in real}
    else:
        if not asked:
            _refuse_units(name, list(real), is_text)
        doubtful = tuple(sorted(text.strip() for text in counts if text not in real))
        return words, ColumnType(name, WORDS, missing, len(counts), doubtful)
    stray = np.array([text in real and meaning[text] is None for text in words.tolist()], dtype=bool)
    if stray.any():
        raise _refuse_stray(name, kind, asked, is_text, words[stray], row_numbers[stray][0])
    decided = _translate(words, meaning) if kind == NUMBERS else make_dates(meaning.get(v) for v in words.tolist())
    signs = tuple(dict.fromkeys(text.strip() for text in counts if text not in real and text.strip()))
    return decided, ColumnType(name, kind, len(decided) - count_present(decided), signs=signs, order=order)


def _decide_order(name: str, texts: Sequence[str], asked: str, is_text: bool) -> str:
    """Return the order of day, month and year, as it was asked for or as all texts tell it."""
    if ":" in asked:
        return asked.partition(":")[2]
    dates = [_add_dashes(text) for text in texts]
    orders = find_orders(dates[:SAMPLE])
    if len(orders) == 2:
        orders = find_orders(dates)  # a later one may tell days from months
    if len(orders) == 2:
        raise UsageError(
            f"Column '{name}' holds dates such as '{dates[0]}', and nothing tells days from months. Say which come "
            f"first: {_say(is_text, 'date', name)}."
        )
    return orders[0] if orders else ""


def _say(is_text: bool, what: str, name: str, cell: str = "") -> str:
    return (COMMAND_LINE if is_text else PANDAS)[what].format(name=name, cell=cell[:40])


def _refuse_stray(name: str, kind: str, asked: str, is_text: bool, cells: Column, row: int) -> UsageError:
    """Make the error for cells of a column that mean nothing, of which the first is in this row."""
    more = f", and {count_things(len(cells) - 1, 'other cell')} like it" if len(cells) > 1 else ""
    held = f"Column '{name}' should hold {kind}" if asked else f"Column '{name}' holds mostly {kind}"
    words = "" if asked else f", or {_say(is_text, 'text', name)} to take the whole column as categories"
    return WrongRows(
        f"{held}, but {WrongRows.ONE} holds '{cells[0][:40]}'{more}. Fix it, or give "
        f"{_say(is_text, 'missing', name, cells[0])} if that means missing{words}.",
        [row],
    )


def _refuse_units(name: str, texts: Sequence[str], is_text: bool) -> None:
    """Raise a UsageError where most texts of a column are numbers with one unit, as in `51.3 kg`: as categories, no
    two would have anything to do with each other."""
    units = Counter(match[1] for text in texts if (match := WITH_UNIT.fullmatch(text)))
    unit, count = next(iter(units.most_common(1)), ("", 0))
    if len(texts) > MANY_TEXTS and 2 * count > len(texts):
        example = next(text for text in texts if (match := WITH_UNIT.fullmatch(text)) and match[1] == unit)
        raise UsageError(
            f"Column '{name}' holds {len(texts)} different texts such as '{example.strip()[:40]}': numbers with the "
            f"unit {unit}? Then write the numbers alone. Or give {_say(is_text, 'text', name)} to take them as "
            "categories."
        )
