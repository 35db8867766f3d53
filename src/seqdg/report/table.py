"""A table of results as text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict

from seqdg.base.errors import unknown
from seqdg.report.latex import latex
from seqdg.report.sheet import Sheet
from seqdg.report.text import markdown, text
from seqdg.results.summary import AVERAGE

FORMATS = ("text", "markdown", "latex", "csv", "json")
PAIRED = ("baseline", "pairs", "difference", "low", "high", "p", "p_holm", "better_on", "domains", "verdict")


def table(sheet: Sheet, form: str = "text") -> str:
    if form not in FORMATS:
        raise unknown("table format", form, FORMATS)
    writers = {"text": text, "markdown": markdown, "latex": latex, "csv": _csv, "json": _json}
    return writers[form](sheet)


def _entries(sheet: Sheet) -> list[dict[str, object]]:
    """One for each cell; the paper's number beside it, and on the average row the test against the baseline."""
    tests = {x.algorithm: {**asdict(x), "verdict": x.verdict} for x in sheet.paired}
    found = []
    for cell in sheet.cells:
        entry: dict[str, object] = {
            "algorithm": cell.algorithm,
            "held_out": cell.held_out,
            "mean": cell.mean,
            "stderr": cell.stderr,
            "trials": cell.trials,
            "select": sheet.select,
        }
        if sheet.searched:
            entry["candidates"] = sheet.candidates[cell.algorithm][1]
        if cell.diverged:
            entry["diverged"] = cell.diverged
        if sheet.paper:
            entry["paper"] = sheet.paper.values.get((cell.held_out, cell.algorithm))
        if cell.held_out == AVERAGE and cell.algorithm in tests:
            entry["against"] = {name: tests[cell.algorithm][name] for name in PAIRED}
        found.append(entry)
    return found


def _json(sheet: Sheet) -> str:
    return json.dumps(_entries(sheet), indent=2) + "\n"


def _csv(sheet: Sheet) -> str:
    names = ["algorithm", "held_out", "mean", "stderr", "trials", "diverged", "select"]
    names += ["candidates"] if sheet.searched else []
    names += ["paper"] if sheet.paper else []
    names += PAIRED if sheet.paired else ()
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for entry in _entries(sheet):
        against = entry.get("against")
        writer.writerow({"diverged": 0, **entry, **(against if isinstance(against, dict) else {})})
    return out.getvalue()
