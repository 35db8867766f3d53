"""Limit and draw the rows of a method that compares every row with every other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError

LIMIT = 10_000  # a matrix of 0.8 GB


def check_most_rows(name: str, most_rows: int) -> None:
    """Refuse more rows than fit into memory, or none."""
    if not 2 <= most_rows <= LIMIT:
        raise UsageError(
            f"{name} compares every row with every other, and most_rows is {most_rows:,}: choose 2 to {LIMIT:,} "
            f"(--set {name}.most_rows=2000); it then learns from so many, drawn alike from every class of every domain."
        )


def choose_rows(y: NDArray[Any], domain: NDArray[Any], most: int, seed: int) -> NDArray[np.intp]:
    """Choose at most so many rows, every class of every domain in proportion, in their order; all where they fit."""
    if len(y) <= most:
        return np.arange(len(y))
    draw = np.random.default_rng(seed)
    place = np.empty(len(y))  # of each row in its class of its domain, from 0 to 1
    for label, source in np.unique(np.stack([y, domain]), axis=1).T:
        rows = np.flatnonzero((y == label) & (domain == source))
        place[rows] = draw.permutation(len(rows)) / len(rows)
    return np.sort(np.lexsort((draw.random(len(y)), place))[:most])


def describe_choice(name: str, rows: int, most: int) -> list[str]:
    """Say where not all rows are learned from."""
    if rows <= most:
        return []
    return [f"{name} compares {most:,} of {rows:,} rows with one another, drawn from every class of every domain."]


def spread(scores: NDArray[np.float64], labels: NDArray[np.intp], classes: int) -> NDArray[np.float64]:
    """Put the columns of the classes that were met (row, class met) where they belong among all classes."""
    everywhere = np.zeros((len(scores), classes))
    everywhere[:, labels] = scores
    return everywhere
