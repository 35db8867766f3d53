"""From the columns of a table to what enters a net, with constants learned from the training rows.

A column of numbers: what is missing becomes the median, then (value - mean) / deviation, at most LIMIT deviations away.
A column that never varies says nothing and becomes 0. A column of words: one input per word, 1 for the word that is
there; a missing word, or one never seen in training, is 0 in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base.errors import UsageError, unknown
from seqdg.base.words import count_things, list_some
from seqdg.data import Frame
from seqdg.data.cells import Column, expect_numbers, to_words

Matrix = NDArray[np.float64]  # (row, input)
Vector = NDArray[np.float64]  # (column of numbers,)

LIMIT = 1000.0
MOST_WORDS = 1000  # of one column; more is an identifier
MANY_WORDS = 20  # above which a column may be one where most rows have a word of their own


@dataclass(frozen=True)
class Preprocessing:
    names: tuple[str, ...]  # of all columns, as they were in training
    named: bool  # whether the user gave them
    numeric: tuple[str, ...]
    vocabulary: Mapping[str, tuple[str, ...]]  # the words of each other column
    fill: Vector
    mean: Vector
    factor: Vector  # 1 / deviation; 0 where the column never varies

    @property
    def width(self) -> int:
        """How many inputs the net has."""
        return len(self.numeric) + sum(len(known) for known in self.vocabulary.values())

    def apply(self, frame: Frame) -> tuple[Matrix, list[str]]:
        """The net's inputs, and notes on what was not as in training."""
        with_gaps, notes = self.standardized(frame)
        numbers = with_gaps[:, : len(self.numeric)]
        filled = (self.fill - self.mean) * self.factor
        np.copyto(numbers, filled, where=np.isnan(numbers))
        return with_gaps.clip(-LIMIT, LIMIT, out=with_gaps), notes

    def standardized(self, frame: Frame) -> tuple[Matrix, list[str]]:
        """The same with NaN where a number is missing, and without the limit."""
        raw, codes, notes = self.encoded(frame)
        out = np.zeros((len(frame), self.width))
        k = len(self.numeric)
        with np.errstate(over="ignore", invalid="ignore"):
            out[:, :k] = np.where((self.factor == 0) & ~np.isnan(raw), 0.0, (raw - self.mean) * self.factor)
        for place, known in zip(codes.T, self.vocabulary.values(), strict=True):
            seen = np.flatnonzero(place >= 0)
            out[seen, k + place[seen]] = 1.0
            k += len(known)
        return out, notes

    def encoded(self, frame: Frame) -> tuple[Matrix, NDArray[np.int64], list[str]]:
        """Raw numbers (row, column of numbers) and the places of words in their vocabularies, -1 where in none."""
        given = dict(zip(self._names_of(frame), frame.columns, strict=True))
        for name in self.names:
            if name not in given:
                raise _missing_columns([n for n in self.names if n not in given], given)
        raw = np.empty((len(frame), len(self.numeric)))
        for i, name in enumerate(self.numeric):
            raw[:, i] = finite(name, expect_numbers(name, given[name], frame.first))
        codes = np.empty((len(frame), len(self.vocabulary)), dtype=np.int64)
        notes = []
        for i, (name, known) in enumerate(self.vocabulary.items()):
            codes[:, i], strange = _codes(to_words(given[name]), known)
            if strange:
                notes.append(f"Column '{name}' has words that were not in the training data: {list_some(strange)}.")
        return raw, codes, notes

    def _names_of(self, frame: Frame) -> Sequence[str]:
        """By name where both have names, else by position."""
        if self.named and frame.named:
            return frame.names
        if len(frame.names) != len(self.names):
            raise UsageError(
                f"The input has {len(frame.names)} columns where the model was fitted on {len(self.names)}."
            )
        return self.names


def learn(frame: Frame) -> Preprocessing:
    """The constants of these rows."""
    numeric = [(n, c) for n, c in zip(frame.names, frame.columns, strict=True) if c.dtype != object]
    vocabulary = {n: _vocabulary(n, c) for n, c in zip(frame.names, frame.columns, strict=True) if c.dtype == object}
    constants = [_constants(finite(name, values)) for name, values in numeric]
    fill, mean, factor = np.array(constants, dtype=np.float64).reshape(-1, 3).T.copy()
    return Preprocessing(frame.names, frame.named, tuple(n for n, _ in numeric), vocabulary, fill, mean, factor)


def identifiers(preprocessing: Preprocessing, rows: int) -> list[str]:
    """Notes on columns of words that are different in most rows: a new row's word will hardly be among them."""
    return [
        f"Column '{name}' has {len(known)} different words in {rows} rows: is it an identifier? Then leave it out."
        for name, known in preprocessing.vocabulary.items()
        if len(known) > max(MANY_WORDS, rows // 2)
    ]


def _constants(values: Column) -> tuple[float, float, float]:
    """Median of what is there (the lower one of two); mean and 1 / deviation once that has filled the gaps."""
    gaps = np.isnan(values)
    present = values[~gaps]
    if not len(present) or present.min() == present.max():
        return (float(present[0]) if len(present) else 0.0), 0.0, 0.0
    size = float(np.abs(present).max())  # divided by, so that squares of huge numbers do not overflow
    scaled = present / size
    middle = (len(scaled) - 1) // 2
    median = float(np.partition(scaled, middle)[middle])
    filled = np.where(gaps, median, values / size)
    with np.errstate(over="ignore", divide="ignore"):
        factor = float(1 / np.float64(filled.std() * size))
    return median * size, float(filled.mean() * size), factor if np.isfinite(factor) else 0.0


def _vocabulary(name: str, values: Column) -> tuple[str, ...]:
    known = sorted({v for v in values.tolist() if v is not None})
    if len(known) > MOST_WORDS:
        raise UsageError(
            f"Column '{name}' has {len(known)} different words in {len(values)} rows, and at most {MOST_WORDS} are "
            "told apart: is it an identifier? Drop it, or merge its rare words."
        )
    return tuple(known)


def _codes(values: Column, known: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    index = {word: i for i, word in enumerate(known)}
    given = values.tolist()
    codes = np.array([index.get(word, -1) for word in given], dtype=np.int64)
    strange = dict.fromkeys(given[i] for i in np.flatnonzero(codes < 0) if given[i] is not None)
    return codes, list(strange)


def finite(name: str, values: Column) -> Column:
    wrong = np.flatnonzero(np.isinf(values))
    if len(wrong):
        raise UsageError(
            f"Input X contains infinity: column '{name}' in {count_things(len(wrong), 'row')} (from 0: "
            f"{list_some(wrong)}). Leave such cells empty, or give a number."
        )
    return values


def _missing_columns(missing: Sequence[str], given: Mapping[str, Any]) -> UsageError:
    if len(missing) == 1:
        return unknown("column of the input", missing[0], given)
    return UsageError(
        f"The input lacks {len(missing)} columns that the model was fitted on: {list_some(missing)}. "
        f"It has: {list_some(given)}."
    )
