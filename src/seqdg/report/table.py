"""A table of results as text, Markdown, LaTeX, CSV or JSON, and as HTML in a notebook."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape

from seqdg.base import unknown
from seqdg.report.latex import format_latex
from seqdg.report.sheet import DIFFERENCES, PAIRING, Sheet, list_differences
from seqdg.report.text import format_markdown, format_text
from seqdg.results import AVERAGE, PairedDifference, Unit, describe_difference

PAIRED = ("baseline", "pairs", "difference", "low", "high", "p", "p_holm", "better_on", "domains", "verdict")


@dataclass(frozen=True, repr=False)
class ResultTable:
    """A table that prints itself: `print(table)`, or as the last line of a notebook's cell."""

    sheet: Sheet
    format: str = "text"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise unknown("table format", self.format, FORMATS)

    def __str__(self) -> str:
        return render(self.sheet, self.format).removesuffix("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        sheet = self.sheet
        rows = []
        for name in sheet.columns:
            cells = [escape(sheet.value(row, name)) for row in sheet.rows]
            best = [sheet.place(row, name) == 0 for row in sheet.rows]
            rows.append([escape(name), *(f"<b>{c}</b>" if b else c for c, b in zip(cells, best, strict=True))])
            if sheet.paper and name in sheet.paper.columns:
                published = [sheet.published(row, name) for row in sheet.rows]
                rows.append([f"&emsp;{sheet.paper.source}: {escape(sheet.paper.columns[name])}", *published])
        return _format_html(["algorithm", *map(escape, sheet.rows)], rows, [sheet.footnote, *sheet.notes])


@dataclass(frozen=True, repr=False)
class PairedTests:
    """Every other algorithm against the baseline; prints itself as sentences, or as a table in a notebook."""

    tests: Sequence[PairedDifference]
    unit: Unit

    def __iter__(self) -> Iterator[PairedDifference]:
        return iter(self.tests)

    def __getitem__(self, place: int) -> PairedDifference:
        return self.tests[place]

    def __len__(self) -> int:
        return len(self.tests)

    def __str__(self) -> str:
        return "\n".join([*(describe_difference(x, self.unit.points, self.unit.digits) for x in self.tests), PAIRING])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = [[escape(cell) for cell in row] for row in list_differences(self.tests, self.unit.digits)]
        return _format_html(DIFFERENCES, rows, [PAIRING])


def _format_html(head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """Return an HTML table of cells that are HTML already, with notes below."""
    lines = [f"<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"]
    lines += [f"<tr><th>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>" for row in rows]
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table><thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table>{below}"


def render(sheet: Sheet, form: str = "text") -> str:
    """Return the table in one of the `FORMATS`."""
    if form not in FORMATS:
        raise unknown("table format", form, FORMATS)
    return FORMATS[form](sheet)


def _list_entries(sheet: Sheet) -> list[dict[str, object]]:
    """Return an entry for each cell, with the published number and, on the average row, the test of the difference."""
    tests = {x.algorithm: {**asdict(x), "verdict": x.verdict} for x in sheet.paired}
    entries = []
    for cell in sheet.cells:
        entry: dict[str, object] = {
            "algorithm": cell.algorithm,
            "held_out": cell.held_out,
            "mean": cell.mean,
            "stderr": cell.stderr,
            "trials": cell.trials,
            "select": sheet.select,
        }
        if sheet.spread != "stderr":
            entry["spread"] = sheet.spread
        if sheet.searched:
            entry["candidates"] = sheet.candidates[cell.algorithm][1]
        if cell.diverged:
            entry["diverged"] = cell.diverged
        if sheet.paper:
            entry[sheet.paper.source.lower()] = sheet.paper.values.get((cell.held_out, cell.algorithm))
        if cell.held_out == AVERAGE and cell.algorithm in tests:
            entry["against"] = {name: tests[cell.algorithm][name] for name in PAIRED}
        entries.append(entry)
    return entries


def _format_json(sheet: Sheet) -> str:
    return json.dumps(_list_entries(sheet), indent=2) + "\n"


def _format_csv(sheet: Sheet) -> str:
    names = ["algorithm", "held_out", "mean", "stderr", "trials", "diverged", "select"]
    names += ["candidates"] if sheet.searched else []
    names += [sheet.paper.source.lower()] if sheet.paper else []
    names += PAIRED if sheet.paired else ()
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for entry in _list_entries(sheet):
        against = entry.get("against")
        writer.writerow({"diverged": 0, **entry, **(against if isinstance(against, dict) else {})})
    return out.getvalue()


FORMATS: dict[str, Callable[[Sheet], str]] = {
    "text": format_text,
    "markdown": format_markdown,
    "latex": format_latex,
    "csv": _format_csv,
    "json": _format_json,
}
