"""Rows of features, as feature files and tables give them, to one matrix."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base.words import count_things, list_some
from seqdg.data import checks
from seqdg.data.checks import Problem
from seqdg.data.found import Found
from seqdg.data.labels import encode
from seqdg.data.spec import DataSpec

Matrix = NDArray[np.float32]  # (row, feature)


class Rows(NamedTuple):
    """One domain, as its file gives it."""

    x: Matrix
    y: NDArray[Any]  # (row,) numbers or text
    validation: NDArray[np.bool_] | None = None  # (row,)


class Read(NamedTuple):
    """What a reader made of the files."""

    rows: dict[str, Rows]
    problems: list[Problem]
    notes: list[str]


def collect(spec: DataSpec, read: Read) -> Found:
    """Labels made indices, rows of other classes left out where that was asked, and the features checked."""
    encoded = encode({d: r.y for d, r in read.rows.items()}, spec.classes, spec.label_base, not spec.drop_other_labels)
    problems, notes = read.problems + encoded.problems, list(read.notes)
    rows, y = dict(read.rows), dict(encoded.y)
    for domain, labels in encoded.y.items() if spec.drop_other_labels else ():
        keep = labels >= 0
        if not keep.all():
            notes.append(f"{domain}: {count_things(int((~keep).sum()), 'row')} of other classes left out.")
        valid = rows[domain].validation
        rows[domain] = Rows(rows[domain].x[keep], rows[domain].y[keep], None if valid is None else valid[keep])
        y[domain] = labels[keep]
    x = {domain: r.x for domain, r in rows.items()}
    uneven = checks.same_width(x)
    problems += uneven + checks.finite(x)
    found = Found(
        domains=tuple(rows),
        classes=encoded.classes,
        y=np.concatenate([*y.values(), np.empty(0, np.int64)]),
        domain=np.repeat(np.arange(len(rows)), [len(labels) for labels in y.values()]),
        validation=_validation(rows, problems),
        problems=problems,
        notes=notes,
    )
    if rows and not uneven:
        found.x = normalized(np.concatenate(list(x.values())), spec.normalize)
        found.content = hashlib.sha256(repr(found.x.shape).encode() + found.x.tobytes()).hexdigest()
    return found


def _validation(rows: dict[str, Rows], problems: list[Problem]) -> NDArray[np.bool_] | None:
    given = [domain for domain, r in rows.items() if r.validation is not None]
    if given and len(given) < len(rows):
        missing = [domain for domain in rows if domain not in given]
        text = f"Only {list_some(given)} have an official split: give {list_some(missing)} one, or none at all."
        problems.append(Problem(text))
        return None
    splits = [r.validation for r in rows.values() if r.validation is not None]
    return np.concatenate(splits) if splits else None


def normalized(x: Matrix, how: str) -> Matrix:
    """Each row by itself, so that no domain's statistics are used: not even the held-out one's.

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
