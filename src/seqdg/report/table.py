"""A table of results as text, Markdown, LaTeX, CSV or JSON. The best of every held-out domain is marked."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence

from seqdg.errors import unknown
from seqdg.report.summary import AVERAGE, WORST, Cell

FORMATS = ("text", "markdown", "latex", "csv", "json")
Grid = tuple[list[str], list[str], dict[tuple[str, str], Cell]]


def table(cells: Sequence[Cell], form: str = "text", select: str = "source-val", higher: bool = True) -> str:
    """`higher`: whether the larger number is the better one."""
    writers: dict[str, Callable[[], str]] = {
        "text": lambda: _text(cells, select, higher),
        "markdown": lambda: _markdown(cells, higher),
        "latex": lambda: _latex(cells, select, higher),
        "csv": lambda: _csv(cells, select),
        "json": lambda: json.dumps([_entry(c, select) for c in cells], indent=2) + "\n",
    }
    if form not in writers:
        raise unknown("table format", form, FORMATS)
    return writers[form]()


def _grid(cells: Sequence[Cell]) -> Grid:
    """Held-out domains, average and worst last; algorithms; and the cell of each pair."""
    found = list(dict.fromkeys(c.held_out for c in cells))
    rows = [r for r in found if r not in (AVERAGE, WORST)] + [r for r in (AVERAGE, WORST) if r in found]
    return rows, list(dict.fromkeys(c.algorithm for c in cells)), {(c.held_out, c.algorithm): c for c in cells}


def ranked(rows: Sequence[str], by_pair: dict[tuple[str, str], Cell], higher: bool) -> dict[str, list[float]]:
    """By row, its distinct means as printed, best first."""
    found = {}
    for row in rows:
        means = {round(c.mean, 1) for (r, _), c in by_pair.items() if r == row and c.mean is not None}
        found[row] = sorted(means, reverse=higher)
    return found


def _place(cell: Cell | None, means: Sequence[float]) -> int | None:
    """0 for the best of its row, 1 for the second, ..."""
    return None if cell is None or cell.mean is None else means.index(round(cell.mean, 1))


def _value(cell: Cell | None, plus_minus: str = "±") -> str:
    if cell is None:
        return "-"
    if cell.mean is None:
        return "diverged" if cell.diverged else "-"
    error = f" {plus_minus} {cell.stderr:.1f}" if cell.stderr is not None else ""
    lost = f" ({cell.diverged} diverged)" if cell.diverged else ""
    return f"{cell.mean:.1f}{error}{lost}"


def _text(cells: Sequence[Cell], select: str, higher: bool) -> str:
    rows, columns, by_pair = _grid(cells)
    means = ranked(rows, by_pair, higher)
    marked = {
        (r, c): _value(by_pair.get((r, c))) + ("*" if _place(by_pair.get((r, c)), means[r]) == 0 else " ")
        for r in rows
        for c in columns
    }
    if len(columns) <= len(rows):
        lines = [["held out", *columns], *([r, *(marked[r, c] for c in columns)] for r in rows)]
    else:
        lines = [["algorithm", *rows], *([c, *(marked[r, c] for r in rows)] for c in columns)]
    return "\n".join([*_aligned(lines), "", _footnote(cells, select)]) + "\n"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = ["  ".join([line[0].ljust(widths[0]), *_right(line, widths)]).rstrip() for line in lines]
    return [shown[0], "-" * len(shown[0]), *shown[1:]]


def _right(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]


def _footnote(cells: Sequence[Cell], select: str) -> str:
    counts = sorted({c.trials for c in cells if c.held_out not in (AVERAGE, WORST)})
    trials = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    spread = "mean ± standard error" if any(c.stderr is not None for c in cells) else "one value, no error bars"
    return f"Accuracy in % on the held-out domain: {spread} over {trials} trials, selected by {select}. * best"


def _markdown(cells: Sequence[Cell], higher: bool) -> str:
    rows, columns, by_pair = _grid(cells)
    means = ranked(rows, by_pair, higher)
    lines = [f"| held out | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for r in rows:
        shown = [_value(by_pair.get((r, c))) for c in columns]
        best = [_place(by_pair.get((r, c)), means[r]) == 0 for c in columns]
        bold = [f"**{s}**" if b else s for s, b in zip(shown, best, strict=True)]
        lines.append(f"| {r.replace('|', chr(92) + '|')} | {' | '.join(bold)} |")
    return "\n".join(lines) + "\n"


def _latex(cells: Sequence[Cell], select: str, higher: bool) -> str:
    rows, columns, by_pair = _grid(cells)
    means = ranked(rows, by_pair, higher)
    lines = [f"% {_footnote(cells, select)}", rf"\begin{{tabular}}{{l{'c' * len(columns)}}}", r"\toprule"]
    lines += [" & ".join(["Unseen", *(rf"\textbf{{{_escaped(c)}}}" for c in columns)]) + r" \\", r"\midrule"]
    for r in rows:
        if r == AVERAGE:
            lines.append(r"\midrule")
        shown = [_latex_value(by_pair.get((r, c)), means[r]) for c in columns]
        lines.append(" & ".join([_escaped(r), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_value(cell: Cell | None, means: Sequence[float]) -> str:
    value, place = _value(cell, r"$\pm$"), _place(cell, means)
    if place == 0:
        return rf"\textbf{{{value}}}"
    return rf"\underline{{{value}}}" if place == 1 else value


def _escaped(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(ch, f"\\{ch}" if ch in "&%$#_{}" else ch) for ch in text)


def _entry(cell: Cell, select: str) -> dict[str, object]:
    entry: dict[str, object] = {
        "algorithm": cell.algorithm,
        "held_out": cell.held_out,
        "mean": cell.mean,
        "stderr": cell.stderr,
        "trials": cell.trials,
        "select": select,
    }
    return {**entry, "diverged": cell.diverged} if cell.diverged else entry


def _csv(cells: Sequence[Cell], select: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["algorithm", "held_out", "mean", "stderr", "trials", "diverged", "select"])
    for c in cells:
        writer.writerow([c.algorithm, c.held_out, c.mean, c.stderr, c.trials, c.diverged, select])
    return out.getvalue()
