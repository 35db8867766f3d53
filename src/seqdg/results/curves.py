"""Curves of few points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


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
