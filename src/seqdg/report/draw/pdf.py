"""Figures as PDF, drawn mark by mark with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqdg.base.errors import UsageError
from seqdg.report.draw.marks import Dot, Figure, Line, Mark
from seqdg.report.draw.svg import layout
from seqdg.report.draw.theme import LIGHT

POINTS = 0.75  # of a pixel


def write_pdf(figure: Figure, path: Path, columns: int = 3) -> None:
    """The same picture as the SVG file."""
    try:
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise UsageError("PDF figures need matplotlib: `pip install seqdg[report]`, or write SVG alone.") from None
    placed, width, height = layout(figure, columns)
    canvas = Canvas(figsize=(width * POINTS / 72, height * POINTS / 72))
    FigureCanvasPdf(canvas)
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    for left, top, marks in placed:
        for mark in marks:
            _draw(axes, mark, left, top)
    # No dates and no random names: the same run gives the same file.
    canvas.savefig(path, metadata={"CreationDate": None, "Title": figure.title})


MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "x"}


def _draw(axes: Any, mark: Mark, left: float, top: float) -> None:
    if isinstance(mark, Line):
        xs, ys = [left + x for x, _ in mark.points], [top + y for _, y in mark.points]
        style = (0, [float(n) / mark.width for n in mark.dash.split()]) if mark.dash else "-"
        axes.plot(xs, ys, color=LIGHT[mark.color], linewidth=mark.width * POINTS, linestyle=style)
    elif isinstance(mark, Dot):
        size = 2 * mark.size * POINTS * (0.85 if mark.shape in ("square", "diamond") else 1.0)
        edge = 1.2 if mark.shape == "cross" else 0
        place = [left + mark.x], [top + mark.y]
        axes.plot(*place, MARKERS[mark.shape], color=LIGHT[mark.color], markersize=size, markeredgewidth=edge)
    else:
        axes.text(
            left + mark.x, top + mark.y, mark.text.replace("$", r"\$"), color=LIGHT[mark.color],
            fontsize=mark.size * POINTS * 0.92, weight="bold" if mark.bold else "normal",
            ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor], va="baseline",
            rotation=90 if mark.turned else 0, rotation_mode="anchor",
        )  # fmt: skip
