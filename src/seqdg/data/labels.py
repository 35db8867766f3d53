"""Encode labels as files give them (names, or numbers from 0 or 1) as class indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import count_things, list_some
from seqdg.data.checks import Labels, Problem

Raw = Mapping[str, NDArray[Any]]  # domain -> (row,) numbers or text


@dataclass(frozen=True)
class EncodedLabels:
    classes: tuple[str, ...]
    y: dict[str, Labels]  # -1 where the label is no class
    problems: list[Problem] = field(default_factory=list)


def encode_labels(raw: Raw, classes: Sequence[str], base: int | None, other_is_wrong: bool = True) -> EncodedLabels:
    """Encode the labels of every domain. Without `classes`, the values that occur are the classes, in order."""
    text = [d for d, y in raw.items() if len(y) and y.dtype.kind not in "iufb"]
    if text and len(text) < sum(len(y) > 0 for y in raw.values()):
        problem = Problem(f"The labels of {list_some(text)} are text, those of other domains numbers: use one kind.")
        return EncodedLabels(tuple(classes), {d: np.full(len(y), -1) for d, y in raw.items()}, [problem])
    if text:
        return _encode_words({d: y.astype(str) for d, y in raw.items()}, classes, other_is_wrong)
    problems = [p for d, y in raw.items() for p in _find_fractions(d, y)]
    numbers = {
        d: np.round(np.nan_to_num(y.astype(float), posinf=-1, neginf=-1)).astype(np.int64) for d, y in raw.items()
    }
    encoded = _encode_numbers(numbers, classes, base, other_is_wrong) if classes else _encode_values(numbers, base)
    return EncodedLabels(encoded.classes, encoded.y, problems or encoded.problems)


def _encode_words(raw: Raw, classes: Sequence[str], other_is_wrong: bool) -> EncodedLabels:
    known = tuple(classes) or tuple(sorted({str(v) for y in raw.values() for v in np.unique(y)}))
    index = {name: i for i, name in enumerate(known)}
    problems = []
    for domain, y in raw.items():
        other = sorted({str(v) for v in np.unique(y)} - set(known))
        if other and other_is_wrong:
            problems.append(Problem(f"{domain} has labels that are none of the classes: {list_some(other)}."))
    return EncodedLabels(
        known, {d: np.array([index.get(str(v), -1) for v in y], dtype=np.int64) for d, y in raw.items()}, problems
    )


def _find_fractions(domain: str, y: NDArray[Any]) -> list[Problem]:
    numbers = y.astype(float)
    wrong = numbers[~np.isfinite(numbers) | (numbers != np.round(numbers))]
    if not len(wrong):
        return []
    return [
        Problem(f"{domain} has {count_things(len(wrong), 'label')} not a whole number: {list_some(np.unique(wrong))}.")
    ]


def _encode_values(raw: Mapping[str, Labels], base: int | None) -> EncodedLabels:
    values = np.unique(np.concatenate([*raw.values(), np.empty(0, np.int64)]))
    problems = []
    if base is not None and len(values) and values[0] < base:
        problems.append(Problem(f"A label is {values[0]}, but label_base = {base}: set label_base to the first label."))
    y = {d: np.searchsorted(values, labels).astype(np.int64) for d, labels in raw.items()}
    return EncodedLabels(tuple(str(v) for v in values), y, problems)


def _encode_numbers(
    raw: Mapping[str, Labels], classes: Sequence[str], base: int | None, other_is_wrong: bool
) -> EncodedLabels:
    """Encode whole numbers as classes: label `base` is the first class."""
    every = np.concatenate([*raw.values(), np.empty(0, np.int64)])
    n = len(classes)
    low, high = (int(every.min()), int(every.max())) if len(every) else (0, n - 1)
    problems: list[Problem] = []
    if base is None:
        base, problems = _guess_base(low, high, n)
    elif other_is_wrong and (low, high) == (1 - base, n - base):
        said = f"label_base = {base} allows {base} to {base + n - 1}: set label_base = {1 - base}."
        problems = [Problem(f"The labels run from {low} to {high}, but {said}")]
        base = 1 - base  # what is meant, so that nothing else looks wrong because of it
    y = {d: np.where((labels >= base) & (labels < base + n), labels - base, -1) for d, labels in raw.items()}
    if other_is_wrong and not problems:
        for domain, labels in raw.items():
            out = labels[y[domain] < 0]
            if len(out):
                allowed = f"{n} classes with label_base = {base} allow {base} to {base + n - 1}"
                many = f"{count_things(len(out), 'label')} out of range ({list_some(np.unique(out))})"
                problems.append(Problem(f"{domain} has {many}: {allowed}."))
    return EncodedLabels(tuple(classes), y, problems)


def _guess_base(low: int, high: int, n: int) -> tuple[int, list[Problem]]:
    if low <= 0:
        return 0, []
    if high >= n:
        return 1, []
    text = f"The labels run from {low} to {high} for {n} classes, which does not tell whether the first class is 0 or 1"
    return 0, [Problem(f"{text}: set label_base.")]
