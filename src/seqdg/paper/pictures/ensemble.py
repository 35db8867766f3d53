"""(S-)Undo-Bias against the naive ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqdg.paper.pictures.about import about, refusals
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.theme import Looks
from seqdg.report.figures import domain_figure
from seqdg.report.section import Section, Table
from seqdg.report.sheet import Sheet
from seqdg.results.summary import AVERAGE, Cell


def shown(payload: Mapping[str, Any], looks: Looks) -> Section:
    sheet = Sheet([Cell(**cell) for cell in payload["numbers"]["cells"]])
    drawn = domain_figure(sheet, looks)
    figure = Figure("ensemble", "Against the naive ensemble", drawn.pictures, drawn.caption)
    rows = []
    for name in sheet.columns:
        shown = [("*" if sheet.place(r, name) == 0 else "") + sheet.value(r, name) for r in sheet.rows]
        rows.append((name, shown))
    table = Table(sheet.footnote, ["algorithm", *sheet.rows], rows)
    text = [about(payload), *sheet.remarks, *refusals(payload)]
    return Section("ensemble", "Against the naive ensemble", text, (), [figure], [table], found=_found(sheet))


def _found(sheet: Sheet) -> list[str]:
    base = sheet.cell(AVERAGE, "ensemble")
    if base is None or base.mean is None:
        return []
    sentences = []
    for name in sheet.columns:
        cell = sheet.cell(AVERAGE, name)
        if name != "ensemble" and cell is not None and cell.mean is not None:
            gap = cell.mean - base.mean
            sentences.append(f"{name} is {abs(gap):.1f} points {'above' if gap >= 0 else 'below'} the naive ensemble.")
    return sentences
