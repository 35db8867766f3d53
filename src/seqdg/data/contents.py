"""What a reader makes of files: `Contents`, with encoded labels, parts of a fixed split and groups.

Rows of features by domain become one matrix (`collect_rows`). Labels, names or numbers from 0 or 1, become class
indices. A split column gives each domain its part of a fixed split; a group column names the groups by which results
are judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base import count_things, list_some
from seqdg.data.checks import Labels, Problem, check_finite, check_widths, find_missing_domains
from seqdg.data.dataset import DataSpec
from seqdg.data.tables.columns import is_missing, to_word

Matrix = NDArray[np.float32]  # (row, feature)
Raw = Mapping[str, NDArray[Any]]  # domain -> (row,) numbers or text

TRAIN, VALIDATION, TEST = PARTS = ("train", "validation", "test")
ID_VALIDATION, ID_TEST = "id_val", "id_test"  # rows of train domains, as WILDS (Koh et al., 2021) calls them
_MEANINGS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "test": TEST, "id_validation": ID_VALIDATION}
_PART_OF = {**{part: part for part in PARTS}, ID_VALIDATION: TRAIN, ID_TEST: TRAIN}


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


def split_by_domain(whole: DomainRows, domain: NDArray[Any], spec: DataSpec, place: str) -> RowsByDomain:
    """Split rows of all domains. domain: (row,) the domain of each."""
    there = {to_word(value): value for value in np.unique(domain)}
    rows = {}
    for name in spec.domains or there:
        if name in there:
            rows[name] = whole.keep(domain == there[name])
    others = [name for name in there if name not in rows]
    left_out = sum(int((domain == there[name]).sum()) for name in others)
    notes = [f"{count_things(left_out, 'row')} of other domains left out: {list_some(others)}."] if others else []
    return RowsByDomain(rows, find_missing_domains(spec.domains, there, place), notes)


def collect_rows(spec: DataSpec, read: RowsByDomain) -> Contents:
    """Make one matrix of all domains: encode the labels, leave out rows of other classes if asked, check the
    features."""
    problems, notes = list(read.problems), list(read.notes)
    rows, parts = _divide_rows(read.rows, problems, notes)
    classes, y = (_read_numbers if spec.is_regression else _encode)(spec, rows, problems, notes)
    x = {domain: r.x for domain, r in rows.items()}
    uneven = check_widths(x)
    problems += uneven + check_finite(x, spec.scale)
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


class Division(NamedTuple):
    """The content of a split column."""

    parts: tuple[str, ...]  # the part of each domain; empty where the column makes no sense
    keep: NDArray[np.bool_]  # (row,) without the `id_test` rows, which serve nothing here
    validation: NDArray[np.bool_] | None  # (row,) the `id_val` rows; None where there are none
    problems: list[Problem]
    notes: list[str]


def divide_rows(split: NDArray[Any], domain: Labels, domains: tuple[str, ...]) -> Division:
    """Give each domain its part: its rows are all `train` (with `id_val`, `id_test`), all `validation` or all `test`.

    split: (row,) the cells of the split column.   domain: (row,) index into domains.
    """
    words = [to_word(value).strip().lower() for value in split]
    meanings = np.array([_MEANINGS.get(word, word) for word in words], dtype=object)
    problems = _find_strange(split, meanings)
    parts = []
    for i, name in enumerate(domains):
        present = dict.fromkeys(_PART_OF.get(m, "") for m in meanings[domain == i])
        several = [part for part in PARTS if part in present]
        if len(several) > 1:
            problems.append(
                Problem(
                    f"The split column puts rows of the domain '{name}' into {' and '.join(several)}, but a domain is "
                    f"in one part of a fixed split: call rows that validate within a train domain {ID_VALIDATION}."
                )
            )
        parts.append(several[0] if several else TRAIN)
    validation, left = meanings == ID_VALIDATION, meanings == ID_TEST
    notes = [f"{count_things(int(left.sum()), 'row')} called {ID_TEST} left out."] if left.any() else []
    return Division(() if problems else tuple(parts), ~left, validation if validation.any() else None, problems, notes)


def _find_strange(split: NDArray[Any], meanings: NDArray[Any]) -> list[Problem]:
    allowed = f"{', '.join(PARTS)} (or val), {ID_VALIDATION} or {ID_TEST}"
    empty = sum(is_missing(value) for value in split)
    problems = [Problem(f"The split column has {count_things(empty, 'empty cell')}: write {allowed}.")] if empty else []
    strange = sorted({m for m, v in zip(meanings, split, strict=True) if m not in _PART_OF and not is_missing(v)})
    if strange:
        problems.append(Problem(f"The split column holds {list_some(strange)}: write {allowed}."))
    return problems


def encode_groups(values: NDArray[Any]) -> tuple[tuple[str, ...], Labels, list[Problem]]:
    """Number the groups that occur, in order; a row without one is a problem.

    values: (row,) the cells of the group column, numbers or words.
    """
    lacking = sum(map(is_missing, values.tolist()))
    if lacking:
        cure = "fill in every one, or leave group_column out"
        problem = Problem(f"The group column has {count_things(lacking, 'empty cell')}: {cure}.")
        return (), np.zeros(len(values), np.int64), [problem]
    kinds, index = np.unique(values if values.dtype.kind in "iufb" else values.astype(str), return_inverse=True)
    return tuple(to_word(kind) for kind in kinds.tolist()), index.reshape(-1).astype(np.int64), []
