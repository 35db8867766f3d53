"""Columns of values as compact JSON: equal values are written once, numbers with the digits that are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for these


def encode(values: Sequence[Any]) -> dict[str, Any]:
    """Write the distinct values and, for each place, which one it is; or all values where most differ."""
    texts = [json.dumps(value) for value in values]
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    if 2 * len(place) > len(values) + 2:
        return {"each": list(values)}
    return {"values": [json.loads(text) for text in place], "at": [place[text] for text in texts]}


def decode(column: dict[str, Any]) -> list[Any]:
    """Return the values. Equal ones are one object, so do not change them."""
    if "each" in column:
        return list(column["each"])
    values = column["values"]
    return [values[i] for i in column["at"]]


def encode_numbers(numbers: Sequence[float], digits: int | None) -> dict[str, Any]:
    """Write numbers to this many significant digits, or exactly."""
    if digits is None:
        return encode([_encode_number(x) for x in numbers])
    return {"each": [_encode_number(float(f"{x:.{digits}g}")) for x in numbers]}


def encode_shares(numbers: Sequence[float]) -> dict[str, Any]:
    """Write numbers exactly. Shares of a number of rows take few values; sorted, near values have near places."""
    known = sorted({x for x in numbers if math.isfinite(x)})
    place = {x: i for i, x in enumerate(known)}
    return {"values": [*known, *_WORDS], "at": [_find_place(x, place, len(known)) for x in numbers]}


def _find_place(x: float, place: dict[float, int], after: int) -> int:
    return place[x] if math.isfinite(x) else after + list(_WORDS).index(str(x))


def decode_numbers(column: dict[str, Any]) -> list[float]:
    return [_WORDS[x] if isinstance(x, str) else x for x in decode(column)]


def _encode_number(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)


def thin(curve: Sequence[float], points: int) -> list[float]:
    """Return the means over equal stretches; the first ones are longer where they cannot be equal."""
    if len(curve) <= points:
        return list(curve)
    size, more = divmod(len(curve), points)
    ends = [size * i + min(i, more) for i in range(points + 1)]
    return [_mean(curve[start:stop]) for start, stop in pairwise(ends)]


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
