"""Figures as files for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqdg.report.draw import svg
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.pdf import write_pdf
from seqdg.results.directory import make_directory


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Each as NAME.svg and NAME.pdf; what was written."""
    make_directory(folder, "--figures")
    found: list[Path] = []
    for figure in figures:
        name, content = as_svg(figure)
        drawn, printed = folder / name, (folder / name).with_suffix(".pdf")
        drawn.write_text(content, encoding="utf-8")
        write_pdf(figure, printed, _columns(figure))
        found += [drawn, printed]
    return found


def as_svg(figure: Figure) -> tuple[str, str]:
    """Name of its file, and contents."""
    name = "".join(ch if ch.isalnum() or ch in "-_." else "-" for ch in figure.name).strip(".")
    return f"{name}.svg", svg.file(figure, _columns(figure))


def _columns(figure: Figure) -> int:
    return 4 if figure.pictures[0].width < 300 else 3
