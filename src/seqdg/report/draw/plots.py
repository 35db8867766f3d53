"""The kinds of plots that reports have: rows with error bars, curves, clouds of points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqdg.report.draw.axes import SMALL, WIDTH, Axes, format_number, pad_range
from seqdg.report.draw.marks import Dot, Line, Picture, Text, fit_text, text_width
from seqdg.report.draw.theme import Style

ROW = 22.0


@dataclass(frozen=True)
class Row:
    """A value with its error bar, or a word in its place."""

    label: str
    style: Style
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""  # stands at the right, or in place of a missing value
    title: str = ""


def plot_rows(
    rows: Sequence[Row], label: str, heading: str = "", zero: bool = False, log: bool = False, title: str = ""
) -> Picture:
    """Horizontal: a name, a dot and its error bar in each row. `zero`: a rule at 0, which is always in view."""
    known = [v for r in rows for v in (r.value, r.low, r.high) if v is not None]
    low, high = pad_range([*known, 0.0] if zero else known)
    if log and known:
        low, high = min(known) / 1.25, max(known) * 1.25
    gutter = min(150.0, max([text_width(r.label, 12) for r in rows] + [30.0]) + 10)
    notes = max([text_width(r.note, SMALL) for r in rows if r.value is not None] + [0.0])
    top, bottom = (28.0 if heading else 8.0), 36.0
    frame = Axes((low, high), (0, 1), WIDTH, top + ROW * len(rows) + bottom, gutter, 12 + notes, top, bottom, log)
    if known:
        frame.x_axis(label)
    if heading:
        name = fit_text(heading, WIDTH, 13)
        frame.marks.append(Text(0, 14, name, size=13, bold=True, title=heading))
    if zero:
        frame.upright(0.0)
    for i, row in enumerate(rows):
        _row(frame, row, top + ROW * (i + 0.5))
    return frame.picture(title or _in_words(heading, label, rows))


def _row(frame: Axes, row: Row, y: float) -> None:
    shown = fit_text(row.label, frame.left - 8, 12)
    frame.marks.append(Text(frame.left - 8, y + 4, shown, "end", title=row.label if shown != row.label else ""))
    if row.value is None:
        frame.marks.append(Text(frame.left + 6, y + 4, row.note or "no value", size=SMALL, color="muted"))
        return
    if row.low is not None and row.high is not None:
        left, right = frame.px(row.low), frame.px(row.high)
        if right - left > 0.1:
            frame.marks.append(Line(((left, y), (right, y)), row.style.color, 2.0, data=True))
    frame.marks.append(Dot(frame.px(row.value), y, row.style.color, row.style.shape, 4.5, row.title))
    if row.note:
        frame.marks.append(Text(frame.width, y + 4, row.note, "end", SMALL, "muted"))


def _in_words(heading: str, label: str, rows: Sequence[Row]) -> str:
    values = [f"{r.label} {format_number(r.value) if r.value is not None else r.note or 'no value'}" for r in rows]
    return f"{heading + ': ' if heading else ''}{label}. {', '.join(values)}."


@dataclass(frozen=True)
class Series:
    name: str
    style: Style
    xs: Sequence[float]
    ys: Sequence[float]


def plot_lines(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    heading: str,
    upright: tuple[float, str] | None = None,
    level: tuple[float, str] | None = None,
    y: tuple[float, float] | None = None,
) -> Picture:
    """`upright` is a marked place on the x axis, `level` one on the y axis, each with a word."""
    xs = [x for s in series for x in s.xs]
    ys = [v for s in series for v in s.ys if math.isfinite(v)] + ([level[0]] if level else [])
    frame = Axes((min(xs, default=0.0), max(xs, default=1.0)), y or pad_range(ys))
    frame.y_axis(y_label)
    frame.x_axis(x_label)
    frame.heading(heading)
    for s in series:
        frame.line(s.xs, s.ys, s.style.color, s.style.dash, s.name)
    if level:
        frame.level(*level)
    if upright:
        frame.upright(*upright)
    last = [f"{s.name} ends at {format_number(s.ys[-1])}" for s in series if len(s.ys) and math.isfinite(s.ys[-1])]
    return frame.picture(f"{heading}: {y_label} over {x_label}. {', '.join(last)}.")


def plot_points(
    points: Sequence[tuple[float, float]],
    groups: Sequence[str],
    looks: Mapping[str, Style],
    heading: str,
    below: str = "",
    size: float = 220.0,
) -> Picture:
    """A cloud of points without axes, as t-SNE's axes mean nothing."""
    frame = Axes(
        pad_range([p[0] for p in points], 0.04), pad_range([p[1] for p in points], 0.04),
        size, size + 24, 4, 4, 24, 22 if below else 4,
    )  # fmt: skip
    base = frame.height - frame.bottom
    corners = ((4, 24), (size - 4, 24), (size - 4, base), (4, base), (4, 24))
    frame.marks.append(Line(corners, "grid"))
    frame.marks.append(Text(4, 15, fit_text(heading, size - 8, 13), size=13, bold=True, title=heading))
    for (x, y), group in zip(points, groups, strict=True):
        frame.marks.append(Dot(frame.px(x), frame.py(y), looks[group].color, looks[group].shape, 2.0))
    if below:
        frame.marks.append(Text(size / 2, frame.height - 6, below, "middle", SMALL, "muted"))
    return frame.picture(f"{heading}: {len(points)} points in {len(set(groups))} classes. {below}".strip())


@dataclass(frozen=True)
class Point:
    name: str
    style: Style
    x: float
    y: float
    low: float | None = None
    high: float | None = None


def plot_scatter(points: Sequence[Point], x_label: str, y_label: str, heading: str, log_x: bool = False) -> Picture:
    """Named points with error bars upwards and downwards."""
    xs = [p.x for p in points]
    x = (min(xs) / 1.2, max(xs) * 1.2) if log_x and xs and min(xs) > 0 else pad_range(xs)
    ys = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    frame = Axes(x, pad_range(ys, 0.1), WIDTH, 260.0, log_x=log_x)
    frame.y_axis(y_label)
    frame.x_axis(x_label)
    frame.heading(heading)
    for p in points:
        at = frame.px(p.x)
        if p.low is not None and p.high is not None and frame.py(p.low) - frame.py(p.high) > 0.1:
            frame.marks.append(Line(((at, frame.py(p.low)), (at, frame.py(p.high))), p.style.color, 1.6, data=True))
        title = f"{p.name}: {format_number(p.x)}, {format_number(p.y)}"
        frame.marks.append(Dot(at, frame.py(p.y), p.style.color, p.style.shape, 5, title))
    words = ", ".join(f"{p.name} {format_number(p.x)} and {format_number(p.y)}" for p in points)
    return frame.picture(f"{heading}: {y_label} against {x_label}. {words}.")
