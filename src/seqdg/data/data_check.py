"""Check a data set: collect everything that is wrong with it, and write what `seqdg check` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.data import checks
from seqdg.data.contents import Contents
from seqdg.data.parts import TRAIN
from seqdg.data.spec import DataSpec


@dataclass(frozen=True)
class DataCheck:
    """The outcome of a check: what there is, and what is wrong with it."""

    name: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one input
    counts: Mapping[str, int]
    published: Mapping[str, int]
    validation: Mapping[str, int]  # rows of the official validation set
    fingerprint: str  # of what there is; empty where it could not be read
    known: str  # the fingerprint of the known copy, where there is one
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    is_regression: bool = False  # numbers are predicted, and no classes

    @property
    def ok(self) -> bool:
        return not self.problems

    def format_problems(self) -> str:
        """Return the one problem; list several below a line that counts them."""
        if len(self.problems) == 1:
            return self.problems[0]
        return "\n".join((f"{self.name}: {len(self.problems)} things are wrong with the data.", *self._list_problems()))

    def format(self) -> str:
        inputs = " x ".join(map(str, self.shape)) or "unknown"
        what = "a number to predict" if self.is_regression else f"{len(self.classes)} classes"
        lines = [f"{self.name}: {len(self.domains)} domains, {what}, inputs {inputs}"]
        if self.classes:
            lines.append(f"classes: {', '.join(self.classes)}")
        rows = [["domain", "rows", "published", "train", "validation"]]
        for domain in self.domains:
            count, valid = self.counts.get(domain, 0), self.validation.get(domain)
            split = ["-", "-"] if valid is None else [str(count - valid), str(valid)]
            rows.append([domain, str(count), str(self.published.get(domain, "-")), *split])
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for row in rows:
            numbers = "  ".join(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
            lines.append(f"  {row[0].ljust(widths[0])}  {numbers}")
        lines += [f"note: {note}" for note in self.notes]
        wrong = len(self.problems)
        lines.append(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong:" if wrong else "Nothing is wrong.")
        if not wrong:
            lines += self._compare_copies()
        return "\n".join((*lines, *self._list_problems()))

    def _compare_copies(self) -> list[str]:
        """Say whether this is the known copy, or else whether the counts are as published."""
        if self.known:
            same = "the known copy" if self.fingerprint == self.known else "not the known copy"
            return [f"This is {same} (fingerprint {self.fingerprint[:16]})."]
        if not self.published:
            return []
        agree = all(self.counts.get(domain) == count for domain, count in self.published.items())
        return [f"Counts are {'as published' if agree else 'not as published'}. There is no known copy to compare."]

    def _list_problems(self) -> tuple[str, ...]:
        return tuple(f"- {problem}" for problem in self.problems)


def check_contents(
    spec: DataSpec, contents: Contents, allow_partial: bool, held_out: Sequence[str] | None
) -> DataCheck:
    """List everything that is wrong. held_out: the domains that will be held out in turn, None for every one."""
    labels = contents.split(contents.y)
    held = contents.domains if held_out is None else held_out
    held = () if contents.parts else held  # a fixed split holds none out in turn
    problems, notes = list(contents.problems), list(contents.notes)
    validation: dict[str, NDArray[Any]] = {}
    if contents.validation is not None:
        validation = {d: np.flatnonzero(v) for d, v in contents.split(contents.validation).items()}
        problems += checks.check_counts(validation, spec.validation_counts, "validation row")
        trained = {d: v for d, v in validation.items() if contents.find_part(d) == TRAIN}
        problems += checks.check_split(labels, trained, may_lack=bool(contents.parts))
    problems += checks.find_empty_domains(labels)
    if len(contents.y):
        problems += checks.check_counts(labels, spec.counts)
        problems += checks.check_number_of_domains(contents.domains, held)
        if not spec.is_regression:
            wrong, remarks = checks.check_class_coverage(labels, contents.classes, held)
            problems, notes = problems + wrong, notes + remarks
    if spec.class_count is not None and len(contents.y):
        problems += checks.check_class_count(len(contents.classes), spec.class_count)
    fingerprint = contents.hash() if contents.content else ""
    if spec.fingerprint and fingerprint and fingerprint != spec.fingerprint:
        notes.append(
            f"This is another copy than the known one: its fingerprint is {fingerprint[:16]}, not "
            f"{spec.fingerprint[:16]}."
        )
    excused = [p for p in problems if p.partial and allow_partial]
    return DataCheck(
        name=spec.name,
        domains=contents.domains,
        classes=contents.classes,
        shape=() if contents.x is None else tuple(contents.x.shape[1:]),
        counts={d: len(y) for d, y in labels.items()},
        published=spec.counts,
        validation={d: len(v) for d, v in validation.items()},
        fingerprint=fingerprint,
        known=spec.fingerprint,
        problems=tuple(dict.fromkeys(p.text for p in problems if p not in excused)),
        notes=tuple(dict.fromkeys(notes + [f"Partial data: {p.text}" for p in excused])),
        is_regression=spec.is_regression,
    )
