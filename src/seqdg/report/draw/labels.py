"""Places words inside a plot where they cover as little as possible."""

from __future__ import annotations

from collections.abc import Sequence

from seqdg.report.draw.marks import Line, Mark, Text, text_width

GRAIN = 16  # points along each piece of a curve that count where a word covers them


def find_emptiest(spots: Sequence[Text], marks: Sequence[Mark]) -> Text:
    """The first of the spots that cover the least of the curves, rules and words that are there already."""
    curves = [p for m in marks if isinstance(m, Line) and (m.data or m.color == "rule") for p in _list_points(m)]
    boxes = [_box(m) for m in marks if isinstance(m, Text) and not m.turned]
    return min(spots, key=lambda spot: _count_covered(_box(spot), curves, boxes))


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _box(text: Text) -> Box:
    width = text_width(text.text, text.size)
    left = text.x - {"start": 0.0, "middle": width / 2, "end": width}[text.anchor]
    return left, text.y - text.size, left + width, text.y + 0.25 * text.size


def _list_points(line: Line) -> list[tuple[float, float]]:
    points = []
    for (x0, y0), (x1, y1) in zip(line.points, line.points[1:], strict=False):
        points += [(x0 + (x1 - x0) * i / GRAIN, y0 + (y1 - y0) * i / GRAIN) for i in range(GRAIN + 1)]
    return points


def _count_covered(box: Box, curves: Sequence[tuple[float, float]], boxes: Sequence[Box]) -> int:
    left, top, right, bottom = box
    words = sum(a < right and left < c and b < bottom and top < d for a, b, c, d in boxes)
    return 100 * words + sum(left < x < right and top < y < bottom for x, y in curves)
