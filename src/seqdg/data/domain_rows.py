"""What a reader makes of files: `Contents`, with encoded labels, a fixed split, groups, and all that is wrong
(`check_contents`).

Rows of features by domain become one matrix (`collect_rows`). Labels, names or numbers from 0 or 1, become class
indices. A split column gives each domain its part of a fixed split; a group column names the groups by which results
are judged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, align_columns, count_things, list_some, unknown
from seqdg.data.columns import is_missing, to_word
from seqdg.data.dataset import DataSpec

Matrix = NDArray[np.float32]  # (row, feature)
Labels = NDArray[np.int64]  # (row,) index into the classes

TRAIN, VALIDATION, TEST = PARTS = ("train", "validation", "test")
ID_VALIDATION, ID_TEST = "id_val", "id_test"  # rows of train domains, as WILDS (Koh et al., 2021) calls them
_MEANINGS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "test": TEST, "id_validation": ID_VALIDATION}
_PART_OF = {**{part: part for part in PARTS}, ID_VALIDATION: TRAIN, ID_TEST: TRAIN}
MOST_NOTES = 8  # on single classes; of more there is one note for all


class Problem(NamedTuple):
    """Something wrong. partial: the copy is incomplete, and --allow-partial turns this into a note."""

    text: str
    partial: bool = False


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
    files: tuple[str, ...] = ()  # of each row, where rows are pictures
    numbers: int | None = None  # of rows that every trial scales by itself, how many of the first inputs are numbers
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def split(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the values (row, ...) of each domain."""
        return {name: values[self.domain == i] for i, name in enumerate(self.domains)}

    def set_labels(self, y: NDArray[Any], base: int | None, other_is_wrong: bool = True) -> bool:
        """Encode the labels as indices into the classes, -1 where one is none of them; return whether all are right.

        y: (row,) text, or numbers of which `base` is the first class; None: told from the labels. Where no classes are
        named, they are the labels that occur.
        """
        problems: list[Problem] = []
        classes, allowed = self.classes, ""
        if y.dtype.kind not in "iufb":
            y = y.astype(str)
            values: Sequence[Any] = [str(name) for name in classes or np.unique(y)]
        else:
            numbers = y.astype(float)
            wrong = ~np.isfinite(numbers) | (numbers != np.round(numbers))
            for i, name in enumerate(self.domains):
                if (some := numbers[wrong & (self.domain == i)]).size:
                    many = count_things(len(some), "label")
                    problems.append(Problem(f"{name} has {many} not a whole number: {list_some(np.unique(some))}."))
            y = np.round(np.nan_to_num(numbers, posinf=-1, neginf=-1)).astype(np.int64)
            values = np.unique(y).tolist()
            if classes:
                if not problems:
                    base, problems = _find_base(y, base, len(classes), other_is_wrong)
                first, last = base or 0, (base or 0) + len(classes) - 1
                values = range(first, last + 1)
                allowed = f": {len(classes)} classes with label_base = {base} allow {first} to {last}"
            elif base is not None and len(y) and values[0] < base:
                text = f"A label is {values[0]}, but label_base = {base}: set label_base to the first label."
                problems.append(Problem(text))
        index = {value: i for i, value in enumerate(values)}
        self.classes = tuple(map(str, classes or values))
        self.y = np.array([index.get(v, -1) for v in y.tolist()], dtype=np.int64)
        for i, name in enumerate(self.domains) if other_is_wrong and not problems else ():
            other = y[(self.y < 0) & (self.domain == i)]
            if len(other):
                some = list_some(np.unique(other))
                said = f"{count_things(len(other), 'label')} out of range ({some}){allowed}"
                said = said if allowed else f"labels that are none of the classes: {some}"
                problems.append(Problem(f"{name} has {said}."))
        self.problems += problems
        return not problems

    def set_groups(self, values: NDArray[Any]) -> None:
        """Number the groups that occur, in order; a row without one is a problem.

        values: (row,) the cells of the group column, numbers or text.
        """
        lacking = sum(map(is_missing, values.tolist()))
        if lacking:
            cure = "fill in every one, or leave group_column out"
            self.problems.append(Problem(f"The group column has {count_things(lacking, 'empty cell')}: {cure}."))
        kinds, index = np.unique(values if values.dtype.kind in "iufb" else values.astype(str), return_inverse=True)
        self.groups, self.group = tuple(to_word(kind) for kind in kinds.tolist()), index.reshape(-1).astype(np.int64)

    def divide(self, split: NDArray[Any]) -> NDArray[np.bool_]:
        """Give each domain its part: all its rows are `train` (with `id_val`, `id_test`), `validation` or `test`.

        split: (row,) the cells of the split column. Return which rows to keep: `id_test` rows serve nothing here. Where
        the column makes no sense, that is a problem, and no domain has a part.
        """
        words = [to_word(value).strip().lower() for value in split]
        meanings = np.array([_MEANINGS.get(word, word) for word in words], dtype=object)
        empty = np.array([is_missing(value) for value in split], dtype=bool)
        strange = sorted(set(meanings[~empty]) - set(_PART_OF))
        allowed = f"write {', '.join(PARTS)} (or val), {ID_VALIDATION} or {ID_TEST}"
        wrong = [f"has {count_things(int(empty.sum()), 'empty cell')}: {allowed}"] if empty.any() else []
        wrong += [f"holds {list_some(strange)}: {allowed}"] if strange else []
        parts = []
        for name, rows in self.split(meanings).items():
            present = {_PART_OF.get(meaning, "") for meaning in rows}
            several = [part for part in PARTS if part in present]
            if len(several) > 1:
                wrong.append(
                    f"puts rows of the domain '{name}' into {' and '.join(several)}, but a domain is in one part of a "
                    f"fixed split: call rows that validate within a train domain {ID_VALIDATION}"
                )
            parts.append(several[0] if several else TRAIN)
        self.problems += [Problem(f"The split column {what}.") for what in wrong]
        self.parts = () if wrong else tuple(parts)
        validation, left = meanings == ID_VALIDATION, meanings == ID_TEST
        self.validation = validation if validation.any() else None
        self.notes += [f"{count_things(int(left.sum()), 'row')} called {ID_TEST} left out."] if left.any() else []
        return np.asarray(~left)

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
    split: NDArray[Any] | None = None  # (row,) the cells of a split column: train, validation, test, id_val, id_test

    def keep(self, rows: NDArray[Any]) -> DomainRows:
        """Return these rows alone."""
        return DomainRows(*(None if values is None else values[rows] for values in self))  # type: ignore[arg-type]


def find_missing_domains(wanted: Sequence[str], present: Iterable[str], owner: str) -> list[Problem]:
    there = sorted(set(present))
    return [Problem(str(unknown("domain", domain, there, owner=owner))) for domain in wanted if domain not in there]


def check_class_coverage(
    labels: Mapping[str, Labels], classes: Sequence[str], held_out: Sequence[str]
) -> tuple[list[Problem], list[str]]:
    """Return problems, classes that nothing can be learned about, and notes, classes that only some domains have."""
    filled = {d: np.bincount(y[y >= 0], minlength=len(classes)) > 0 for d, y in labels.items() if len(y)}
    problems: list[Problem] = []
    notes: list[tuple[str, str]] = []
    for c, name in enumerate(classes):
        having = [d for d, has in filled.items() if has[c]]
        lacking = [d for d in filled if d not in having]
        alone = [d for d in held_out if having == [d] and len(filled) > 1]
        if not having:
            problems.append(Problem(f"No domain has the class '{name}'."))
        elif alone:
            text = f"Only {alone[0]} has the class '{name}': with {alone[0]} held out, no source domain has it."
            problems.append(Problem(text))
        elif lacking:
            notes.append((name, f"The class '{name}' is missing from {list_some(lacking)}."))
    if len(notes) > MOST_NOTES:
        some = list_some(name for name, _ in notes)
        return problems, [f"{len(notes)} of {len(classes)} classes are missing from some domains: {some}."]
    return problems, [note for _, note in notes]


def split_by_domain(
    whole: DomainRows, domain: NDArray[Any], spec: DataSpec, owner: str
) -> tuple[dict[str, DomainRows], list[Problem], list[str]]:
    """Return the rows of each domain that is wanted, problems and notes. domain: (row,) the domain of each."""
    there = {to_word(value): value for value in np.unique(domain)}
    rows = {name: whole.keep(domain == there[name]) for name in spec.domains or there if name in there}
    others = [name for name in there if name not in rows]
    left_out = sum(int((domain == there[name]).sum()) for name in others)
    notes = [f"{count_things(left_out, 'row')} of other domains left out: {list_some(others)}."] if others else []
    return rows, find_missing_domains(spec.domains, there, owner), notes


def collect_rows(
    spec: DataSpec,
    rows: Mapping[str, DomainRows],
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
    numbers: int | None = None,
) -> Contents:
    """Join the rows of all domains: divide them by a fixed split, encode the labels, check the features.

    problems, notes: met while reading.   numbers: how many of the first features are numbers, and neither categories
    nor text; None: all.
    """
    none = DomainRows(np.empty((0, 0), np.float32), np.empty(0, np.int64))
    domain = np.repeat(np.arange(len(rows)), [len(r.y) for r in rows.values()])
    contents = Contents(tuple(rows), spec.classes, none.y, domain, problems=list(problems), notes=list(notes))
    whole = _join(rows, contents.problems) if rows else none
    if whole.split is not None:
        keep = contents.divide(whole.split)
        whole = whole._replace(validation=contents.validation).keep(keep)
        contents.domain = domain[keep]
    keep = (_set_numbers if spec.is_regression else _set_labels)(contents, spec, whole.y)
    whole = whole.keep(keep)
    contents.y, contents.domain, contents.validation = contents.y[keep], contents.domain[keep], whole.validation
    if whole.group is not None:
        contents.set_groups(whole.group)
    if rows and whole.x is not None:
        contents.problems += check_finite(contents.split(whole.x), spec.scale)
        contents.x = normalize_rows(whole.x, spec.normalize)
        contents.content = hashlib.sha256(repr(contents.x.shape).encode() + contents.x.tobytes()).hexdigest()
        if spec.scale:
            contents.numbers = contents.x.shape[1] if numbers is None else numbers
            contents.content += f" scaled {contents.numbers}"
    return contents


def _join(rows: Mapping[str, DomainRows], problems: list[Problem]) -> DomainRows:
    """Join the rows of all domains. What differs between domains is a problem, and None."""
    widths = {domain: r.x.shape[1] for domain, r in rows.items()}
    if len(set(widths.values())) > 1:
        each = ", ".join(f"{domain} {width}" for domain, width in widths.items())
        problems.append(
            Problem(f"The domains have different numbers of features ({each}): they must have the same ones.")
        )
    text = [d for d, r in rows.items() if len(r.y) and r.y.dtype.kind not in "iufb"]
    if text and len(text) < sum(len(r.y) > 0 for r in rows.values()):
        problems.append(
            Problem(f"The labels of {list_some(text)} are text, those of other domains numbers: use one kind.")
        )
    without = [domain for domain, r in rows.items() if r.validation is None]
    if 0 < len(without) < len(rows):
        some = list_some(domain for domain in rows if domain not in without)
        problems.append(Problem(f"Only {some} have an official split: give {list_some(without)} one, or none at all."))
    filled = [r for r in rows.values() if len(r.y)] or list(rows.values())
    columns = list(zip(*filled, strict=True))
    joined = [None if any(v is None for v in values) else np.concatenate(values) for values in columns[1:]]
    return DomainRows(np.concatenate(columns[0]) if len(set(widths.values())) == 1 else None, *joined)  # type: ignore[arg-type]


def _set_labels(contents: Contents, spec: DataSpec, y: NDArray[Any]) -> NDArray[np.bool_]:
    """Encode the labels, and return which rows are kept: those of other classes are left out if asked."""
    contents.set_labels(y, spec.label_base, not spec.drop_other_labels)
    keep: NDArray[np.bool_] = (contents.y >= 0) | (not spec.drop_other_labels)
    for domain, kept in contents.split(keep).items():
        if not kept.all():
            contents.notes.append(f"{domain}: {count_things(int((~kept).sum()), 'row')} of other classes left out.")
    return keep


def _set_numbers(contents: Contents, spec: DataSpec, y: NDArray[Any]) -> NDArray[np.bool_]:
    """Set the targets, and return which rows are kept: those without one are left out if asked."""
    contents.classes, contents.y = (), np.zeros(len(y))
    if y.dtype.kind not in "iufb":
        contents.problems.append(Problem("The labels are text, and target = 'number' wants numbers."))
        return np.ones(len(y), bool)
    contents.y = y.astype(np.float64)
    known = np.isfinite(contents.y)
    for domain, there in contents.split(known).items():
        if there.all():
            continue
        lacking = count_things(int((~there).sum()), "row")
        if spec.drop_other_labels:
            contents.notes.append(f"{domain}: {lacking} without a number left out.")
        else:
            indices = list_some(np.flatnonzero(~there))
            contents.problems.append(
                Problem(
                    f"{domain} has no target in {lacking} (from 0: {indices}): fill it in, or leave these rows out."
                )
            )
    return np.asarray(known | (not spec.drop_other_labels))


def check_finite(x: Mapping[str, NDArray[Any]], may_be_missing: bool = False) -> list[Problem]:
    problems = []
    for domain, rows in x.items():
        wrong = np.flatnonzero((np.isinf(rows) if may_be_missing else ~np.isfinite(rows)).any(axis=1))
        if len(wrong):
            kind = "infinite" if may_be_missing else "NaN or infinite"
            what = f"{len(wrong)} of {len(rows)} rows with {kind} features (counted from 0: {list_some(wrong)})"
            fill = "" if may_be_missing or np.isinf(rows).any() else "; `scale = true` fills missing values"
            problems.append(Problem(f"{domain} has {what}: fill them in or leave these rows out{fill}."))
    return problems


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


def _find_base(y: Labels, base: int | None, n: int, other_is_wrong: bool) -> tuple[int, list[Problem]]:
    """Return the number of the first of n classes, and a problem where the labels contradict it or do not tell."""
    low, high = (int(y.min()), int(y.max())) if len(y) else (0, n - 1)
    run = f"The labels run from {low} to {high}"
    if base is not None:
        if not other_is_wrong or (low, high) != (1 - base, n - base):
            return base, []
        said = f"label_base = {base} allows {base} to {base + n - 1}: set label_base = {1 - base}."
        return 1 - base, [Problem(f"{run}, but {said}")]  # what is meant, so that nothing else looks wrong
    if low <= 0 or high >= n:
        return int(low > 0), []
    return 0, [
        Problem(f"{run} for {n} classes, which does not tell whether the first class is 0 or 1: set label_base.")
    ]


@dataclass(frozen=True)
class DataCheck:
    """The outcome of a check: what there is, and what is wrong with it."""

    spec: DataSpec
    contents: Contents
    counts: Mapping[str, int]  # rows of each domain
    validation: Mapping[str, int]  # rows of the official validation set
    fingerprint: str  # of what there is; empty where it could not be read
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def make_error(self) -> UsageError:
        """Return the error of the one problem, or of several, in a list below a sentence that counts them."""
        if len(self.problems) == 1:
            return UsageError(self.problems[0])
        return UsageError(f"{self.spec.name}: {len(self.problems)} things are wrong with the data.", self.problems)

    def format(self) -> str:
        x, domains, classes = self.contents.x, self.contents.domains, self.contents.classes
        inputs = "unknown" if x is None else " x ".join(map(str, x.shape[1:]))
        what = "a regression target" if self.spec.is_regression else f"{len(classes)} classes"
        lines = [f"{self.spec.name}: {len(domains)} domains, {what}, inputs {inputs}"]
        if classes:
            lines.append(f"classes: {', '.join(classes)}")
        rows = [["domain", "rows", "published", "train", "validation"]]
        for domain in domains:
            count, valid = self.counts.get(domain, 0), self.validation.get(domain)
            split = ["-", "-"] if valid is None else [str(count - valid), str(valid)]
            rows.append([domain, str(count), str(self.spec.counts.get(domain, "-")), *split])
        lines += [f"  {line}" for line in align_columns(rows)]
        lines += [f"note: {note}" for note in self.notes]
        wrong = len(self.problems)
        lines.append(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong:" if wrong else "Nothing is wrong.")
        if not wrong:
            lines += self._compare_copies()
        return "\n".join((*lines, *(f"- {problem}" for problem in self.problems)))

    def _compare_copies(self) -> list[str]:
        """Say whether this is the known copy, or else whether the counts are as published."""
        if self.spec.fingerprint:
            same = "the known copy" if self.fingerprint == self.spec.fingerprint else "not the known copy"
            return [f"This is {same} (fingerprint {self.fingerprint[:16]})."]
        if not self.spec.counts:
            return []
        agree = all(self.counts.get(domain) == count for domain, count in self.spec.counts.items())
        return [f"Counts are {'as published' if agree else 'not as published'}. There is no known copy to compare."]


def check_contents(
    spec: DataSpec, contents: Contents, allow_partial: bool, held_out: Sequence[str] | None
) -> DataCheck:
    """List everything that is wrong. held_out: the domains that will be held out in turn, None for every one."""
    labels = contents.split(contents.y)
    counts = {domain: len(y) for domain, y in labels.items()}
    problems, notes = list(contents.problems), list(contents.notes)
    validation: dict[str, int] = {}
    if contents.validation is not None:
        validation = {d: int(v.sum()) for d, v in contents.split(contents.validation).items()}
        problems += _compare_counts(validation, spec.validation_counts, "validation row")
        for i, (domain, count) in enumerate(validation.items()):
            if counts[domain] and (not contents.parts or contents.parts[i] == TRAIN):
                what = "train on" if count == counts[domain] else "validate on"
                if count == counts[domain] or not (count or contents.parts):
                    problems.append(Problem(f"The official split leaves {domain} no rows to {what}."))
    problems += [
        Problem(f"The domain '{d}' is empty: fill it or leave it out.") for d, count in counts.items() if not count
    ]
    for name in (*contents.domains, *contents.classes):
        if any("\ud800" <= ch <= "\udfff" for ch in name):  # of a file or folder; records are text
            problems.append(Problem(f"The name {name!r} is not in UTF-8: rename the file or folder."))
    if len(contents.y):
        problems += _compare_counts(counts, spec.counts, "row")
        held = contents.domains if held_out is None else held_out
        held = () if contents.parts else held  # a fixed split holds none out
        if len(counts) == 1 and held:
            text = f"There is only the domain '{contents.domains[0]}': to hold it out, at least one other is needed."
            problems.append(Problem(text))
        if not spec.is_regression:
            wrong, missing = check_class_coverage(labels, contents.classes, held)
            problems, notes = problems + wrong, notes + missing
        if spec.class_count not in (None, len(contents.classes)):
            text = f"The number of classes is {len(contents.classes)} where {spec.class_count} are published."
            problems.append(Problem(text, partial=True))
    fingerprint = contents.hash() if contents.content else ""
    if spec.fingerprint and fingerprint and fingerprint != spec.fingerprint:
        notes.append(
            f"This is another copy than the known one: its fingerprint is {fingerprint[:16]}, not "
            f"{spec.fingerprint[:16]}."
        )
    excused = [p for p in problems if p.partial and allow_partial]
    texts = tuple(dict.fromkeys(p.text for p in problems if p not in excused))
    remarks = tuple(dict.fromkeys(notes + [f"Partial data: {p.text}" for p in excused]))
    return DataCheck(spec, contents, counts, validation, fingerprint, texts, remarks)


def _compare_counts(counts: Mapping[str, int], published: Mapping[str, int], what: str) -> list[Problem]:
    return [
        Problem(f"{domain} has {count_things(counts[domain], what)} where {right} are published.", partial=True)
        for domain, right in published.items()
        if counts.get(domain, right) != right
    ]
