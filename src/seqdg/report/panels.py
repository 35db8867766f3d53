"""The figures of a report as data: rows with error bars, curves, clouds and points; `charts.py` draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]


def format_number(value: float) -> str:
    """Return the number with as many digits as a reader needs."""
    return f"{value:.4g}"


@dataclass(frozen=True)
class Row:
    """A value with its error bar, or a word in its place."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""  # stands at the right, or in place of a missing value
    look: str = ""  # whose style it has; the label's where empty


@dataclass(frozen=True)
class Rows:
    """A name, a dot and its error bar in each row. `zero`: a rule at 0, which is always in view."""

    rows: Sequence[Row]
    label: str
    heading: str = ""
    zero: bool = False
    log: bool = False

    def list_names(self) -> list[str]:
        return [row.look or row.label for row in self.rows]

    def list_values(self) -> list[Values]:
        """Return what a chart draws, a dictionary for each mark; `look` is whose style it has."""
        return [{**vars(row), "look": row.look or row.label} for row in self.rows]

    def say(self) -> str:
        """Say what it shows to readers who cannot see it."""
        values = [f"{r.label} {r.note or 'no value' if r.value is None else format_number(r.value)}" for r in self.rows]
        return f"{self.heading + ': ' if self.heading else ''}{self.label}. {', '.join(values)}."


@dataclass(frozen=True)
class Series:
    """A curve. It is broken where a value is not finite."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Lines:
    """Curves. `upright` is a marked place on the x axis, `level` one on the y axis, each with a word."""

    series: Sequence[Series]
    x_label: str
    y_label: str
    heading: str
    upright: tuple[float, str] | None = None
    level: tuple[float, str] | None = None
    y: tuple[float, float] | None = None

    def list_names(self) -> list[str]:
        return [s.name for s in self.series]

    def list_values(self) -> list[Values]:
        finite = {s.name: [False, *map(math.isfinite, s.ys), False] for s in self.series}
        return [
            {"i": i, "look": s.name, "x": x, "y": y, "alone": not (finite[s.name][i] or finite[s.name][i + 2])}
            for s in self.series for i, (x, y) in enumerate(zip(s.xs, s.ys, strict=True))
        ]  # fmt: skip

    def say(self) -> str:
        ends = [(s.name, s.ys[-1]) for s in self.series if len(s.ys) and math.isfinite(s.ys[-1])]
        last = ", ".join(f"{name} ends at {format_number(y)}" for name, y in ends)
        return f"{self.heading}: {self.y_label} over {self.x_label}. {last}."


@dataclass(frozen=True)
class Cloud:
    """Points without axes, as t-SNE's axes mean nothing; `groups` has the class of each."""

    points: Sequence[tuple[float, float]]
    groups: Sequence[str]
    heading: str
    below: str = ""

    def list_names(self) -> list[str]:
        return list(self.groups)

    def list_values(self) -> list[Values]:
        return [{"look": group, "x": x, "y": y} for (x, y), group in zip(self.points, self.groups, strict=True)]

    def say(self) -> str:
        return f"{self.heading}: {len(self.points)} points in {len(set(self.groups))} classes. {self.below}".strip()


@dataclass(frozen=True)
class Point:
    """A named point, with an error bar upwards and downwards."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    look: str = ""  # whose style it has; the name's where empty


@dataclass(frozen=True)
class Points:
    points: Sequence[Point]
    x_label: str
    y_label: str
    heading: str
    log: bool = False  # of the x axis

    def list_names(self) -> list[str]:
        return [p.look or p.name for p in self.points]

    def list_values(self) -> list[Values]:
        return [{**vars(point), "look": point.look or point.name} for point in self.points]

    def say(self) -> str:
        words = ", ".join(f"{p.name} {format_number(p.x)} and {format_number(p.y)}" for p in self.points)
        return f"{self.heading}: {self.y_label} against {self.x_label}. {words}."


Panel = Rows | Lines | Cloud | Points
