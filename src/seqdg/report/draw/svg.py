"""Pictures as SVG: inside a page, with the colors of the page, or as a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from seqdg.report.draw.marks import Dot, Figure, Line, Mark, Picture, Text, text_width
from seqdg.report.draw.theme import LIGHT, Style

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
GAP, LEGEND = 16.0, 20.0


def inline(picture: Picture) -> str:
    """For a page: colors are the page's variables --c0, --text, ..."""
    colors = {role: f"var(--{role})" for role in LIGHT}
    body = "".join(_mark(mark, colors) for mark in picture.marks)
    size = f"{_n(picture.width)} {_n(picture.height)}"
    return f'<svg viewBox="0 0 {size}" role="img" aria-label="{escape(picture.title)}">{body}</svg>'


def legend_key(style: Style, line: bool) -> str:
    """A small sample of a style, for a legend in a page."""
    colors = {role: f"var(--{role})" for role in LIGHT}
    mark: Mark = Line(((0, 7), (22, 7)), style.color, 2.2, style.dash) if line else Dot(11, 7, style.color, style.shape)
    return f'<svg class="key" viewBox="0 0 22 14" aria-hidden="true">{_mark(mark, colors)}</svg>'


def format_figure(figure: Figure, columns: int = 3) -> str:
    """Return a whole figure with its panels side by side, on white."""
    placed, width, height = layout(figure, columns)
    groups = [f'<g transform="translate({_n(x)} {_n(y)})">{"".join(_mark(m, LIGHT) for m in marks)}</g>'
             for x, y, marks in placed]  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" font-family="{FONT}"><title>{escape(figure.title)}</title>'
        f'<rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>{"".join(groups)}</svg>\n'
    )


def layout(figure: Figure, columns: int = 3) -> tuple[list[tuple[float, float, Sequence[Mark]]], float, float]:
    """Return where every panel and the legend go, and the size of the whole."""
    placed: list[tuple[float, float, Sequence[Mark]]] = []
    top, width = GAP, 0.0
    for i in range(0, len(figure.pictures), columns):
        left, row = GAP, figure.pictures[i : i + columns]
        for picture in row:
            placed.append((left, top, picture.marks))
            left += picture.width + GAP
        width = max(width, left)
        top += max(p.height for p in row) + GAP
    keys: list[Mark] = []
    left, line = 0.0, 0
    for name, style in figure.legend:
        room = 44 + text_width(name, 12)
        if left and left + room > width - 2 * GAP:
            left, line = 0.0, line + 1
        y = 10 + LEGEND * line
        sample = Line(((left, y), (left + 20, y)), style.color, 2, style.dash)
        keys += [sample if figure.lines else Dot(left + 10, y, style.color, style.shape), Text(left + 26, y + 4, name)]
        left += room
    if keys:
        placed.append((GAP, top, keys))
        top += LEGEND * (line + 1) + GAP
    return placed, width, top


def _mark(mark: Mark, colors: Mapping[str, str]) -> str:
    if isinstance(mark, Line):
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in mark.points)
        kind = ' class="mark"' if mark.data else ""
        dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ""
        look = f'style="stroke:{colors[mark.color]}" stroke-width="{_n(mark.width)}"'
        return f'<polyline{kind} points="{points}" fill="none" {look}{dash}>{_title(mark.title)}</polyline>'
    if isinstance(mark, Dot):
        path, filled = _shape(mark), mark.shape != "cross"
        color = colors[mark.color]
        look = f"fill:{color}" if filled else f"fill:none;stroke:{color};stroke-width:1.8"
        return f'<path class="mark" d="{path}" style="{look}">{_title(mark.title)}</path>'
    bold = ' font-weight="600"' if mark.bold else ""
    anchor = f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
    turn = f' transform="rotate(-90 {_n(mark.x)} {_n(mark.y)})"' if mark.turned else ""
    look = f'style="fill:{colors[mark.color]}" font-size="{_n(mark.size)}"'
    place = f'x="{_n(mark.x)}" y="{_n(mark.y)}"'
    return f"<text {place} {look}{anchor}{bold}{turn}>{_title(mark.title)}{escape(mark.text)}</text>"


def _shape(dot: Dot) -> str:
    x, y, r = dot.x, dot.y, dot.size
    if dot.shape == "circle":
        return f"M{_n(x - r)} {_n(y)}a{_n(r)} {_n(r)} 0 1 0 {_n(2 * r)} 0a{_n(r)} {_n(r)} 0 1 0 {_n(-2 * r)} 0z"
    if dot.shape == "cross":
        return f"M{_n(x - r)} {_n(y - r)}l{_n(2 * r)} {_n(2 * r)}m0 {_n(-2 * r)}l{_n(-2 * r)} {_n(2 * r)}"
    return "M" + "L".join(f"{_n(px)} {_n(py)}" for px, py in list_corners(dot)) + "z"


def list_corners(dot: Dot) -> list[tuple[float, float]]:
    """Return the corners of a square, triangle or diamond of about the area of the circle."""
    corners, start, reach = {"square": (4, 45, 1.25), "triangle": (3, -90, 1.35), "diamond": (4, 0, 1.25)}[dot.shape]
    angles = [math.radians(start + 360 * i / corners) for i in range(corners)]
    return [(dot.x + reach * dot.size * math.cos(a), dot.y + reach * dot.size * math.sin(a)) for a in angles]


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
