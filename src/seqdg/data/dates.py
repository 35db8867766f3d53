"""Dates and times as a table writes them, and as numbers that a net reads.

A date becomes PARTS: the year, the month (1 to 12), the day (1 to 31), the weekday (Monday is 0) and the hour (with
minutes as a fraction, 0 where no time is written). The clock is taken as it is written, whatever its zone.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
