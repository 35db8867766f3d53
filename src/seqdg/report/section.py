"""The parts of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seqdg.report.charts import Figure
from seqdg.report.theme import Looks


@dataclass(frozen=True)
class Table:
    """Each row has a head and cells; a cell that starts with a star is the best of its column."""

    caption: str
    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    tips: Mapping[tuple[str, int], str] = field(default_factory=dict)  # by row and cell, what more there is to say


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
class Parts:
    """The parts of the page that depend on the rule, the criterion and the baseline."""

    lead: str
    answers: Sequence[tuple[str, str]]
    sections: Sequence[Section]


@dataclass(frozen=True)
class Page:
    """The contents of the HTML page; its figures can also be written as files.

    choices: by rule, criterion and baseline, what the page shows when that is chosen; `chosen` is shown at first.
    names: the algorithms that can be followed.
    """

    title: str
    lead: str
    answers: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    sections: Sequence[Section] = field(default=())
    names: Looks = field(default_factory=dict)
    chosen: tuple[str, str, str] = ("", "", "")
    choices: Mapping[tuple[str, str, str], Parts] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        return [f for s in self.sections for f in s.figures]
