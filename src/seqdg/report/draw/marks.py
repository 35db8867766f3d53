"""The marks of a picture. Coordinates are in pixels, y downwards; colors are roles of the theme."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from seqdg.report.draw.theme import Style


@dataclass(frozen=True)
class Line:
    points: tuple[tuple[float, float], ...]
    color: str = "grid"
    width: float = 1.0
    dash: str = ""
    data: bool = False  # whether it shows data, or is a part of the frame
    title: str = ""  # shown when pointed at


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    color: str
    shape: str = "circle"
    size: float = 4.0  # half its height
    title: str = ""


@dataclass(frozen=True)
class Text:
    x: float
    y: float  # of the baseline
    text: str
    anchor: str = "start"  # or middle, end
    size: float = 12.0
    color: str = "text"
    bold: bool = False
    turned: bool = False  # a quarter to the left
    title: str = ""  # the whole of what is shortened


Mark = Line | Dot | Text


@dataclass(frozen=True)
class Picture:
    """One panel. `title` describes it in words for readers who cannot see it."""

    width: float
    height: float
    marks: tuple[Mark, ...]
    title: str

    @property
    def data_marks(self) -> int:
        return sum(isinstance(m, Dot) or (isinstance(m, Line) and m.data) for m in self.marks)


@dataclass(frozen=True)
class Figure:
    """One or more panels with what they share."""

    name: str  # of its file
    title: str
    pictures: Sequence[Picture]
    caption: str = ""
    legend: Sequence[tuple[str, Style]] = field(default=())
    lines: bool = False  # whether the legend shows lines, or dots


def text_width(text: str, size: float) -> float:
    """Return a little more than the width in a sans-serif font."""
    units = 0.0
    for ch in text:
        if unicodedata.east_asian_width(ch) in "WF":
            units += 1.0
        else:
            units += (
                0.34 if ch in "iljtfrI.,:;'|!()[] -" else 0.87 if ch in "mwMW@%" else 0.68 if ch.isupper() else 0.58
            )
    return units * size


def fit_text(text: str, width: float, size: float) -> str:
    """Return the text, or as much of it as fits, with an ellipsis."""
    text = " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…"
