"""Columns of values as JSON holds them compactly: equal ones written once, numbers with as many digits as are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for these


def coded(values: Sequence[Any]) -> dict[str, Any]:
    """Distinct values and, for each place, which; where most differ, each of them."""
    texts = [json.dumps(value) for value in values]
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    if 2 * len(place) > len(values) + 2:
        return {"each": list(values)}
    return {"values": [json.loads(text) for text in place], "at": [place[text] for text in texts]}


def decoded(column: dict[str, Any]) -> list[Any]:
    """Equal values are one object: not to be changed."""
    if "each" in column:
        return list(column["each"])
    values = column["values"]
    return [values[i] for i in column["at"]]


def coded_numbers(numbers: Sequence[float], digits: int | None) -> dict[str, Any]:
    """To so many significant digits, or exactly."""
    if digits is None:
        return coded([_plain(x) for x in numbers])
    return {"each": [_plain(float(f"{x:.{digits}g}")) for x in numbers]}


def coded_shares(numbers: Sequence[float]) -> dict[str, Any]:
    """Exactly: shares of so many rows take few values. They are listed in order, so that near ones have near places."""
    known = sorted({x for x in numbers if math.isfinite(x)})
    place = {x: i for i, x in enumerate(known)}
    return {"values": [*known, *_WORDS], "at": [_place(x, place, len(known)) for x in numbers]}


def _place(x: float, place: dict[float, int], after: int) -> int:
    return place[x] if math.isfinite(x) else after + list(_WORDS).index(str(x))


def decoded_numbers(column: dict[str, Any]) -> list[float]:
    return [_WORDS[x] if isinstance(x, str) else x for x in decoded(column)]


def _plain(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)


def thinned(curve: Sequence[float], points: int) -> list[float]:
    """Means over equal stretches, the first ones longer where they cannot be equal."""
    if len(curve) <= points:
        return list(curve)
    size, more = divmod(len(curve), points)
    ends = [size * i + min(i, more) for i in range(points + 1)]
    return [_mean(curve[start:stop]) for start, stop in pairwise(ends)]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
