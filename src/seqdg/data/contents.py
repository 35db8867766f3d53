"""The `Contents` that a reader finds in files, and how rows of features by domain become one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base import count_things, list_some
from seqdg.data import checks
from seqdg.data.checks import Labels, Problem
from seqdg.data.labels import encode_labels
from seqdg.data.parts import TRAIN, divide_rows, encode_groups
from seqdg.data.spec import DataSpec

Matrix = NDArray[np.float32]  # (row, feature)


@dataclass
class Contents:
    """All rows of all domains, and the problems met while reading them."""

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    y: NDArray[Any]  # (row,) index into classes; the numbers themselves, as float64, where there are none
    domain: Labels  # (row,)
    validation: NDArray[np.bool_] | None = None  # (row,)
    group: Labels | None = None  # (row,) index into groups
    groups: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # of each domain, where a split column fixes it
    x: Any = None  # (row, *input); None where it could not be made
    content: str = ""  # hash of x
    numbers: int | None = None  # of rows that every trial scales by itself, how many of the first inputs are numbers
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def split(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the values (row, ...) of each domain."""
        return {name: values[self.domain == i] for i, name in enumerate(self.domains)}

    def find_part(self, domain: str) -> str:
        """Return the part of a domain in a fixed split; every domain is trained on where there is none."""
        return self.parts[self.domains.index(domain)] if self.parts else TRAIN

    def hash(self) -> str:
        """Return the fingerprint of a data set: the same data give the same one."""
        digest = hashlib.sha256(repr((self.content, self.domains, self.classes)).encode())
        for values in (self.y, self.domain, self.validation):
            digest.update(b"-" if values is None else np.ascontiguousarray(values).tobytes())
        if self.group is not None:  # no part of the hash where there are none, as before there were groups
            digest.update(repr(self.groups).encode() + np.ascontiguousarray(self.group).tobytes())
        return digest.hexdigest()


class DomainRows(NamedTuple):
    """The rows of one domain, as its file gives them."""

    x: Matrix
    y: NDArray[Any]  # (row,) numbers or text
    validation: NDArray[np.bool_] | None = None  # (row,)
    group: NDArray[Any] | None = None  # (row,) numbers or text
    split: NDArray[Any] | None = None  # (row,) the words of a split column: train, validation, test, id_val, id_test

    def keep(self, rows: NDArray[np.bool_]) -> DomainRows:
        """Return these rows alone."""
        others = (self.validation, self.group, self.split)
        return DomainRows(self.x[rows], self.y[rows], *(None if values is None else values[rows] for values in others))


class RowsByDomain(NamedTuple):
    """The rows of every domain that could be read, and the problems met."""

    rows: dict[str, DomainRows]
    problems: list[Problem]
    notes: list[str]
    numbers: int | None = None  # how many of the first features are numbers, and not words or text; None: all


def collect_rows(spec: DataSpec, read: RowsByDomain) -> Contents:
    """Make one matrix of all domains: encode the labels, leave out rows of other classes if asked, check the
    features."""
    problems, notes = list(read.problems), list(read.notes)
    rows, parts = _divide_rows(read.rows, problems, notes)
    classes, y = (_read_numbers if spec.is_regression else _encode)(spec, rows, problems, notes)
    x = {domain: r.x for domain, r in rows.items()}
    uneven = checks.check_widths(x)
    problems += uneven + checks.check_finite(x, spec.scale)
    contents = Contents(
        domains=tuple(rows),
        classes=classes,
        y=np.concatenate([*y.values(), np.empty(0, np.float64 if spec.is_regression else np.int64)]),
        domain=np.repeat(np.arange(len(rows)), [len(labels) for labels in y.values()]),
        validation=_join_validation(rows, problems),
        parts=parts,
        problems=problems,
        notes=notes,
    )
    groups = [r.group for r in rows.values() if r.group is not None]
    if groups:
        contents.groups, contents.group, lacking = encode_groups(np.concatenate(groups))
        problems += lacking
    if rows and not uneven:
        contents.x = normalize_rows(np.concatenate(list(x.values())), spec.normalize)
        contents.content = hashlib.sha256(repr(contents.x.shape).encode() + contents.x.tobytes()).hexdigest()
        if spec.scale:
            contents.numbers = contents.x.shape[1] if read.numbers is None else read.numbers
            contents.content += f" scaled {contents.numbers}"
    return contents


def _encode(
    spec: DataSpec, rows: dict[str, DomainRows], problems: list[Problem], notes: list[str]
) -> tuple[tuple[str, ...], dict[str, NDArray[Any]]]:
    """Return the classes and the labels of every domain; leave out rows of other classes if asked."""
    encoded = encode_labels(
        {d: r.y for d, r in rows.items()}, spec.classes, spec.label_base, not spec.drop_other_labels
    )
    problems += encoded.problems
    y: dict[str, NDArray[Any]] = dict(encoded.y)
    for domain, labels in encoded.y.items() if spec.drop_other_labels else ():
        keep = labels >= 0
        if not keep.all():
            notes.append(f"{domain}: {count_things(int((~keep).sum()), 'row')} of other classes left out.")
        rows[domain] = rows[domain].keep(keep)
        y[domain] = labels[keep]
    return encoded.classes, y


def _read_numbers(
    spec: DataSpec, rows: dict[str, DomainRows], problems: list[Problem], notes: list[str]
) -> tuple[tuple[str, ...], dict[str, NDArray[Any]]]:
    """Return no classes, and the numbers of every domain; leave out rows without one if asked."""
    y: dict[str, NDArray[Any]] = {}
    for domain, r in rows.items():
        if r.y.dtype.kind not in "iufb":
            problems.append(Problem(f"The labels of {domain} are words, and target = 'number' wants numbers."))
            y[domain] = np.zeros(len(r.y))
            continue
        y[domain] = r.y.astype(np.float64)
        wrong = ~np.isfinite(y[domain])
        if wrong.any() and spec.drop_other_labels:
            notes.append(f"{domain}: {count_things(int(wrong.sum()), 'row')} without a number left out.")
            rows[domain], y[domain] = r.keep(~wrong), y[domain][~wrong]
        elif wrong.any():
            problems.append(
                Problem(
                    f"{domain} has no number to predict in {count_things(int(wrong.sum()), 'row')} (from 0: "
                    f"{list_some(np.flatnonzero(wrong))}): fill it in, or leave these rows out."
                )
            )
    return (), y


def _divide_rows(
    rows: dict[str, DomainRows], problems: list[Problem], notes: list[str]
) -> tuple[dict[str, DomainRows], tuple[str, ...]]:
    """Give each domain its part where there is a split column. Its `id_val` rows are the official validation set."""
    splits = [r.split for r in rows.values() if r.split is not None]
    if not splits:
        return dict(rows), ()
    counts = [len(r.y) for r in rows.values()]
    division = divide_rows(np.concatenate(splits), np.repeat(np.arange(len(rows)), counts), tuple(rows))
    problems += division.problems
    notes += division.notes
    ends = np.cumsum(counts)[:-1]
    validates = [None] * len(rows) if division.validation is None else np.split(division.validation, ends)
    kept = {
        domain: (r._replace(validation=valid) if valid is not None else r).keep(keep)
        for (domain, r), keep, valid in zip(rows.items(), np.split(division.keep, ends), validates, strict=True)
    }
    return kept, division.parts


def _join_validation(rows: dict[str, DomainRows], problems: list[Problem]) -> NDArray[np.bool_] | None:
    with_split = [domain for domain, r in rows.items() if r.validation is not None]
    if with_split and len(with_split) < len(rows):
        missing = [domain for domain in rows if domain not in with_split]
        text = f"Only {list_some(with_split)} have an official split: give {list_some(missing)} one, or none at all."
        problems.append(Problem(text))
        return None
    splits = [r.validation for r in rows.values() if r.validation is not None]
    return np.concatenate(splits) if splits else None


def normalize_rows(x: Matrix, how: str) -> Matrix:
    """Normalize each row by itself, so that no domain's statistics are used: not even the held-out one's.

    l1: sum of absolute values 1.   l2: length 1.   zscore: mean 0, deviation 1.   A row of equal values becomes 0.
    """
    if how == "none":
        return x
    wide = x.astype(np.float64)
    if how == "zscore":
        wide -= wide.mean(axis=1, keepdims=True)
        scale = wide.std(axis=1, keepdims=True)
    else:
        scale = np.linalg.norm(wide, ord=1 if how == "l1" else 2, axis=1, keepdims=True)
    result: Matrix = np.divide(wide, scale, out=np.zeros_like(wide), where=scale > 0).astype(np.float32)
    return result
