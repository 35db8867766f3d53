"""What the files say (`Found`), and whether that will do (`Report`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.data import checks
from seqdg.data.checks import Labels, Problem
from seqdg.data.spec import DataSpec


@dataclass
class Found:
    """All rows of all domains, and the problems met while reading them."""

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    y: Labels  # (row,)
    domain: Labels  # (row,)
    validation: NDArray[np.bool_] | None = None  # (row,)
    x: Any = None  # (row, *input); None where it could not be made
    content: str = ""  # hash of x
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def by_domain(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {name: values[self.domain == i] for i, name in enumerate(self.domains)}

    def fingerprint(self) -> str:
        digest = hashlib.sha256(repr((self.content, self.domains, self.classes)).encode())
        for values in (self.y, self.domain, self.validation):
            digest.update(b"-" if values is None else np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Report:
    """What `seqdg check` prints."""

    name: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one input
    counts: Mapping[str, int]
    published: Mapping[str, int]
    validation: Mapping[str, int]  # rows of the official validation set
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def complaint(self) -> str:
        """One problem is the message; several are listed below a line that counts them."""
        if len(self.problems) == 1:
            return self.problems[0]
        return "\n".join((f"{self.name}: {len(self.problems)} things are wrong with the data.", *self._list()))

    def text(self) -> str:
        inputs = " x ".join(map(str, self.shape)) or "unknown"
        lines = [f"{self.name}: {len(self.domains)} domains, {len(self.classes)} classes, inputs {inputs}"]
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
        return "\n".join((*lines, *self._list()))

    def _list(self) -> tuple[str, ...]:
        return tuple(f"- {problem}" for problem in self.problems)


def judge(spec: DataSpec, found: Found, allow_partial: bool, held_out: Sequence[str] | None) -> Report:
    """All that is wrong. `held_out`: the domains that will be held out in turn, None for every one."""
    labels = found.by_domain(found.y)
    held = found.domains if held_out is None else held_out
    problems, notes = list(found.problems), list(found.notes)
    validation: dict[str, NDArray[Any]] = {}
    if found.validation is not None:
        validation = {d: np.flatnonzero(v) for d, v in found.by_domain(found.validation).items()}
        problems += checks.published_counts(validation, spec.validation_counts, "validation row")
        problems += checks.usable_split(labels, validation)
    problems += checks.empty_domains(labels)
    if len(found.y):
        problems += checks.published_counts(labels, spec.counts)
        problems += checks.too_few_domains(found.domains, held)
        wrong, remarks = checks.class_coverage(labels, found.classes, held)
        problems, notes = problems + wrong, notes + remarks
    excused = [p for p in problems if p.partial and allow_partial]
    return Report(
        name=spec.name,
        domains=found.domains,
        classes=found.classes,
        shape=() if found.x is None else tuple(found.x.shape[1:]),
        counts={d: len(y) for d, y in labels.items()},
        published=spec.counts,
        validation={d: len(v) for d, v in validation.items()},
        problems=tuple(dict.fromkeys(p.text for p in problems if p not in excused)),
        notes=tuple(dict.fromkeys(notes + [f"Partial data: {p.text}" for p in excused])),
    )
