"""Figures as files for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqdg.report.draw import svg
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.pdf import write_pdf
from seqdg.results.directory import make_directory


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write each figure as NAME.svg and NAME.pdf, and return the paths."""
    make_directory(folder, "--figures")
    paths: list[Path] = []
    for figure in figures:
        name, content = format_svg(figure)
        svg_path, pdf_path = folder / name, (folder / name).with_suffix(".pdf")
        svg_path.write_text(content, encoding="utf-8")
        write_pdf(figure, pdf_path, _columns(figure))
        paths += [svg_path, pdf_path]
    return paths


def format_svg(figure: Figure) -> tuple[str, str]:
    """Return the name of the file and its contents."""
    name = "".join(ch if ch.isalnum() or ch in "-_." else "-" for ch in figure.name).strip(".")
    return f"{name}.svg", svg.format_figure(figure, _columns(figure))


def _columns(figure: Figure) -> int:
    return 4 if figure.pictures[0].width < 300 else 3
