"""The data that the page's script reads: charts, the rows they draw, and the parts of the page for every choice."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Hashable
from typing import Any

from seqdg.report.charts import draw_for_page, list_rows
from seqdg.report.panels import Panel
from seqdg.report.theme import Looks

DATA = ("rows", "series", "points", "groups", "heading")  # fields of panels that their charts do not depend on


class Charts:
    """Collects the charts of a page. Panels of a kind share a chart, and equal panels are kept once."""

    def __init__(self) -> None:
        self.charts: dict[Hashable, tuple[int, dict[str, Any]]] = {}
        self.panels: dict[str, int] = {}

    def add(self, panel: Panel, looks: Looks) -> int:
        """Return the number of the panel, by which the script finds it."""
        rows = list_rows(panel)
        kind = (
            type(panel), tuple(looks.items()),
            tuple((name, value) for name, value in vars(panel).items() if name not in DATA),
            *(any(row.get(name) not in (None, False) for row in rows) for name in ("value", "low", "alone")),
        )  # fmt: skip
        if kind not in self.charts:
            self.charts[kind] = len(self.charts), draw_for_page(panel, looks)
        columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        drawn = json.dumps({"chart": self.charts[kind][0], "columns": columns, "names": sorted(set(looks))})
        return self.panels.setdefault(drawn, len(self.panels))

    def list_parts(self) -> dict[str, Any]:
        return {"charts": [chart for _, chart in self.charts.values()], "panels": list(map(json.loads, self.panels))}


class Fragments:
    """Pieces of HTML, each kept once."""

    def __init__(self) -> None:
        self.pieces: dict[str, int] = {}

    def add(self, html: str) -> int:
        return self.pieces.setdefault(html, len(self.pieces))


def pack(content: dict[str, Any]) -> str:
    """Return the content as compressed JSON in letters; the same content gives the same letters."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
