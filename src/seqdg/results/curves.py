"""Thin out a curve, such as the losses of a training, to a few points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

LOSS_POINTS = 200  # of the losses in a record


def thin(curve: Sequence[float], points: int) -> list[float]:
    """Divide a curve into stretches and return their means. Where they cannot be equally long, the first are longer."""
    if len(curve) <= points:
        return list(curve)
    return [_mean(curve[start:stop]) for start, stop in pairwise([0, *list_ends(len(curve), points)])]


def list_ends(length: int, points: int) -> list[int]:
    """List where these stretches of a curve end."""
    size, more = divmod(length, points)
    return [size * i + min(i, more) for i in range(1, points + 1)]


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
