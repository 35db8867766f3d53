"""Checks of a data set. Each returns all the problems it meets, one sentence for each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, join_names, list_some
from seqdg.data.tables.columns import is_missing, means_missing

MOST_NOTES = 8  # on single classes; of more there is one note for all
MANY_DOMAINS = 10  # from which on most of them may not have a single row
MANY_CLASSES = 10  # from which on they need two rows each, on average

Labels = NDArray[np.int64]  # (row,) index into the classes


class Problem(NamedTuple):
    """Something wrong. partial: the copy is incomplete, and --allow-partial turns this into a note."""

    text: str
    partial: bool = False


def find_missing_domains(wanted: Sequence[str], present: Iterable[str], place: str) -> list[Problem]:
    there = sorted(set(present))
    problems = []
    for domain in wanted:
        if domain in there:
            continue
        near = difflib.get_close_matches(domain, there, n=1, cutoff=0.5)
        hint = (
            f" Is it '{near[0]}'?" if near else f" It holds: {list_some(there)}." if there else " It holds no domain."
        )
        problems.append(Problem(f"{place} has no domain '{domain}'.{hint}"))
    return problems


def find_empty_domains(labels: Mapping[str, NDArray[Any]]) -> list[Problem]:
    return [Problem(f"The domain '{d}' is empty: fill it or leave it out.") for d, y in labels.items() if len(y) == 0]


def check_number_of_domains(domains: Sequence[str], held_out: Sequence[str]) -> list[Problem]:
    """Check that at least one domain is left to learn from where one is held out."""
    if len(domains) >= 2 or not (domains and held_out):
        return []
    return [Problem(f"There is only the domain '{domains[0]}': to hold it out, at least one other is needed.")]


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


def note_spellings(what: str, names: Iterable[str]) -> list[str]:
    """Return a note where names differ by case, spaces or leading zeros alone. what: they name, `class` or `domain`."""
    alike: dict[str, list[str]] = {}
    for name in names:
        plain = "".join(str(name).casefold().split())
        alike.setdefault(plain.lstrip("0") or plain, []).append(str(name))
    groups = [" and ".join(repr(name) for name in group) for group in alike.values() if len(group) > 1]
    if not groups:
        return []
    each = f"Is each a {what} of its own?"
    return [f"Names that differ by case, spaces or leading zeros alone: {list_some(groups)}. {each} If not, mend them."]


def note_gap_labels(y: NDArray[Any]) -> list[str]:
    """Return a note where labels that elsewhere stand for a gap, such as NA, are classes among others."""
    names = sorted(map(str, set(y.tolist()))) if y.dtype.kind in "OU" else []
    gaps = [name for name in names if means_missing(name)]
    if not gaps or len(names) == len(gaps):
        return []
    said = join_names([repr(name) for name in gaps])
    what = f"The label {said} counts as a class" if len(gaps) == 1 else f"The labels {said} count as classes"
    return [
        f"{what}. Where that means that there is no label, leave these rows out, on the command line by --na "
        f"'{','.join(name.strip() for name in gaps)}' --drop-unlabeled."
    ]


def check_counts(labels: Mapping[str, NDArray[Any]], published: Mapping[str, int], what: str = "row") -> list[Problem]:
    return [
        Problem(f"{domain} has {count_things(len(labels[domain]), what)} where {right} are published.", partial=True)
        for domain, right in published.items()
        if domain in labels and len(labels[domain]) != right
    ]


def check_class_count(count: int, published: int) -> list[Problem]:
    if count == published:
        return []
    return [Problem(f"The number of classes is {count} where {published} are published.", partial=True)]


def check_split(
    labels: Mapping[str, NDArray[Any]], validation: Mapping[str, NDArray[Any]], may_lack: bool = False
) -> list[Problem]:
    """Check that every domain has rows to learn from and rows to choose by.

    may_lack: some domains may have none to choose by.
    """
    problems = []
    for domain, rows in validation.items():
        if len(labels[domain]) and len(rows) in ((len(labels[domain]),) if may_lack else (0, len(labels[domain]))):
            what = "no rows to validate on" if len(rows) == 0 else "no rows to train on"
            problems.append(Problem(f"The official split leaves {domain} {what}."))
    return problems


def check_finite(x: Mapping[str, NDArray[Any]], may_have_gaps: bool = False) -> list[Problem]:
    problems = []
    for domain, rows in x.items():
        wrong = np.flatnonzero((np.isinf(rows) if may_have_gaps else ~np.isfinite(rows)).any(axis=1))
        if len(wrong):
            kind = "infinite" if may_have_gaps else "NaN or infinite"
            what = f"{len(wrong)} of {len(rows)} rows with {kind} features (counted from 0: {list_some(wrong)})"
            cure = "fill them in or leave these rows out"
            fill = "" if may_have_gaps or np.isinf(rows).any() else "; `scale = true` fills gaps"
            problems.append(Problem(f"{domain} has {what}: {cure}{fill}."))
    return problems


def check_widths(x: Mapping[str, NDArray[Any]]) -> list[Problem]:
    widths = {domain: rows.shape[1] for domain, rows in x.items()}
    if len(set(widths.values())) < 2:
        return []
    each = ", ".join(f"{domain} {width}" for domain, width in widths.items())
    return [Problem(f"The domains have different numbers of features ({each}): they must have the same ones.")]


def check_domains(domains: Sequence[Any], row_numbers: Iterable[int] | None = None) -> None:
    """Raise a UsageError unless every row has a domain. row_numbers: in the user's table; None: 0, 1, 2, ..."""
    numbered = zip(range(len(domains)) if row_numbers is None else row_numbers, domains, strict=True)
    lacking = [number for number, value in numbered if is_missing(value)]
    if lacking:
        raise UsageError(
            f"There is no domain for {count_things(len(lacking), 'row')} (from 0: {list_some(lacking)}): "
            "name it for every row."
        )


def check_domain_sizes(what: str, domains: int, rows: int) -> None:
    """Raise a UsageError where most domains have one row, of which nothing can be learned. what: names them."""
    if domains >= MANY_DOMAINS and rows < 2 * domains:
        raise UsageError(
            f"{what} has {domains} different domains in {rows} rows, so that most have one row: is it an identifier of "
            "rows? A domain is where many rows are from, such as the hospital, the device or the year."
        )


def check_class_sizes(what: str, y: NDArray[Any], cure: str) -> None:
    """Raise a UsageError where labels look like identifiers: many classes, with fewer than two rows each on average.

    what: holds the labels, at the start of the sentence.   cure: what to do about it, at its end.
    """
    _, rows = np.unique(y, return_counts=True)
    if len(rows) >= MANY_CLASSES and len(y) < 2 * len(rows):
        single = "each of them" if (rows == 1).all() else f"{int((rows == 1).sum())} of them"
        raise UsageError(
            f"{what} has {len(rows)} different labels in {len(y)} rows, {single} in a single row: nothing can be "
            f"learned about such classes. Is it an identifier of rows? {cure}"
        )


def check_labels(y: Sequence[Any], remedy: str = "leave them out") -> None:
    """Raise a UsageError unless every row has a label."""
    lacking = [i for i, value in enumerate(y) if is_missing(value)]
    if lacking:
        raise UsageError(
            f"Input y contains NaN: {count_things(len(lacking), 'row')} without a label (from 0: "
            f"{list_some(lacking)}). Label them or {remedy}."
        )
