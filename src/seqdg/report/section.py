"""The parts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from seqdg.report.charts import Figure


@dataclass(frozen=True)
class Table:
    """Each row has a head and cells; a cell that starts with a star is the best of its column."""

    caption: str
    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Section:
    name: str  # of its anchor in the page
    title: str
    text: Sequence[str] = ()
    points: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    aside: Sequence[Table] = ()  # folded away
    code: Sequence[str] = ()
    findings: Sequence[str] = ()  # in sentences


@dataclass(frozen=True)
class Page:
    """The contents of the HTML page; its figures can also be written as files."""

    title: str
    lead: str
    answers: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    sections: Sequence[Section] = field(default=())

    @property
    def figures(self) -> list[Figure]:
        return [f for s in self.sections for f in s.figures]
