"""A table of results, or of costs, as text, Markdown, LaTeX, CSV or JSON, and as HTML in a notebook."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape

from seqdg.base import UsageError, align_columns, unknown
from seqdg.report.sheet import DIFFERENCES, PAIRING, Sheet, list_differences
from seqdg.results import AVERAGE, DONE, FAILED, PairedDifference, Record, Unit, describe_difference

LONGEST = 28  # name in a terminal
ON_A_PAGE, TURNED = 72, 130  # letters of a line of LaTeX that fit as they are, and with narrower ones
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
        head, *rows = _arrange(
            sheet,
            lambda r, c: f"<b>{escape(sheet.value(r, c))}</b>" if sheet.rank(r, c) == 0 else escape(sheet.value(r, c)),
            name=escape,
            label=lambda text: f"&emsp;{escape(text)}",
        )
        html = _format_html(head, rows, [sheet.footnote, *sheet.notes])
        if not sheet.departures:
            return html
        head, *departures = [[escape(cell) for cell in row] for row in sheet.departures]
        return html + _format_html(head, departures, [])


@dataclass(frozen=True, repr=False)
class PairedTests:
    """Every other algorithm against the baseline; prints itself as sentences, or as a table in a notebook."""

    tests: Sequence[PairedDifference]
    unit: Unit

    def __iter__(self) -> Iterator[PairedDifference]:
        return iter(self.tests)

    def __getitem__(self, index: int) -> PairedDifference:
        return self.tests[index]

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


def _arrange(
    sheet: Sheet,
    value: Callable[[str, str], str],
    name: Callable[[str], str],
    label: Callable[[str], str],
    by_algorithm: bool = True,
    corner: tuple[str, str] = ("", ""),
    padding: str = "",
) -> list[list[str]]:
    """Return the names of the held-out domains, then a line for each algorithm, and one for what is published of it; or
    the same by held-out domain, a column for each algorithm.

    value: formats the cell of a row and a column of the sheet.   name, label: format names, and those of what is
        published.   padding: stands behind each published number.
    """
    corner = corner if corner[0] else ("algorithm", sheet.row_title)
    lines = [[corner[not by_algorithm], *map(name, sheet.rows)]]
    for c in sheet.columns:
        lines.append([name(c), *(value(r, c) for r in sheet.rows)])
        if text := sheet.label_published(c):
            lines.append([label(text), *(f"{sheet.published(r, c)}{padding}" for r in sheet.rows)])
    return lines if by_algorithm else list(map(list, zip(*lines, strict=True)))


# Plain text ----------------------------------------------------------------------------------------------------------


def _format_text(sheet: Sheet) -> str:
    """Return the table as text, the best of every held-out domain marked by `*`."""
    names = shorten_names([*sheet.rows, *sheet.columns])
    lines = _arrange(
        sheet,
        lambda r, c: sheet.value(r, c) + ("*" if sheet.rank(r, c) == 0 else " "),
        names.__getitem__,
        label=lambda text: f"  {text}",
        by_algorithm=sheet.by_algorithm,
        padding=" ",  # below the star of the best
    )
    notes = [f"{sheet.footnote} * best", *map(join_lines, sheet.notes)]
    below = ["", *draw_table([list(map(join_lines, row)) for row in sheet.departures], 3)] if sheet.departures else []
    return "\n".join([*draw_table(lines), "", *notes, *below]) + "\n"


def draw_table(lines: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return aligned lines with a rule below the first. left: how many columns are aligned to the left."""
    head, *rows = (line.rstrip() for line in align_columns(lines, left))
    return [head, "-" * max(len(line) for line in (head, *rows)), *rows]


def shorten_names(names: Sequence[str], longest: int = LONGEST) -> dict[str, str]:
    """Return each name on one line and of bounded length, still different from all others."""
    short_names: dict[str, str] = {}
    for name in names:
        short = join_lines(name)
        if len(short) > longest:
            short = f"{short[: longest - 9]}…{short[-8:]}"
        count = 2
        while short in short_names.values() and short_names.get(name) != short:
            short = f"{short[: longest - 4]}~{count}"
            count += 1
        short_names[name] = short
    return short_names


def join_lines(name: str) -> str:
    """Return the name without line breaks and control characters."""
    return " ".join("".join(ch if ch.isprintable() else " " for ch in name).split())


# Markdown ------------------------------------------------------------------------------------------------------------


def _format_markdown(sheet: Sheet) -> str:
    """Return the table as Markdown, the best of every held-out domain in bold."""
    head, *rows = _arrange(
        sheet,
        lambda r, c: f"**{sheet.value(r, c)}**" if sheet.rank(r, c) == 0 else sheet.value(r, c),
        escape_markdown,
        label=str,
        by_algorithm=sheet.row_key != "held_out",
    )
    notes = [f"{_escape_prose(note)}  " for note in (sheet.footnote, *sheet.notes)]
    rule = "|---" + "|---:" * (len(head) - 1) + "|"
    below = [_join_markdown(list(map(escape_markdown, row))) for row in sheet.departures]
    if below:
        below = ["", below[0], "|---|---|---|", *below[1:]]
    return "\n".join([_join_markdown(head), rule, *map(_join_markdown, rows), "", *notes, *below]) + "\n"


def _join_markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(name: str) -> str:
    return "".join(f"\\{ch}" if ch in "\\|*`[]" else _ENTITIES.get(ch, ch) for ch in join_lines(name))


def _escape_prose(note: str) -> str:
    start = "\\" if note.startswith("- ") else ""
    return start + "".join(f"\\{ch}" if ch in "*`[]" else _ENTITIES.get(ch, ch) for ch in join_lines(note))


_ENTITIES = {"<": "&lt;", ">": "&gt;"}

# LaTeX: booktabs, the best of every held-out domain in bold, the second underlined -----------------------------------

# If a document has begun, the table is a part of it; otherwise it is a document by itself.
OPENING = r"""\expandafter\ifx\csname @nodocument\endcsname\relax \def\tableend{}\else
\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}\def\tableend{\end{document}}\fi"""


def _format_latex(sheet: Sheet) -> str:
    """Return the table, which compiles by itself and inside a document that loads booktabs and graphicx."""
    departures = (" | ".join(row) for row in sheet.departures)
    comments = [
        sheet.footnote,
        *sheet.notes,
        *departures,
        "Compiles by itself, or with \\input where booktabs and graphicx are loaded.",
    ]
    lines = [f"% {_to_ascii(note)}" for note in comments] + [OPENING]
    head, *rows = _arrange(
        sheet,
        lambda r, c: _format_latex_value(sheet, r, c),
        escape_latex,
        label=lambda text: rf"\quad\textit{{{escape_latex(text)}}}",
        by_algorithm=sheet.by_algorithm,
        corner=("Algorithm", "Unseen"),
    )
    drawn = _draw_tabular([head[0], *(rf"\textbf{{{name}}}" for name in head[1:])], rows)
    lines += _fit(drawn, _measure_width(sheet))
    if sheet.paired:
        lines += ["", r"\par\bigskip", *_draw_latex_differences(sheet)]
    return "\n".join([*lines, r"\tableend"]) + "\n"


def _measure_width(sheet: Sheet) -> int:
    """Return how many letters stand side by side in the widest line of the table."""
    lines = _arrange(sheet, sheet.value, join_lines, label=str, by_algorithm=sheet.by_algorithm)
    return sum(max(len(cell) for cell in column) + 2 for column in zip(*lines, strict=True))


def _fit(tabular: Sequence[str], letters: int) -> list[str]:
    """Return the table as it fits on a page: as it is, narrowed to its text, or turned by a right angle."""
    if letters <= ON_A_PAGE:
        return list(tabular)
    if letters <= TURNED:
        return [r"\noindent\resizebox{\textwidth}{!}{%", *tabular, "}"]
    return [r"\noindent\rotatebox{90}{\resizebox{0.9\textheight}{!}{%", *tabular, "}}"]


def _draw_tabular(head: Sequence[str], rows: Sequence[Sequence[str]], columns: str = "") -> list[str]:
    """Return a tabular of cells that are LaTeX already, with a rule above the average."""
    lines = []
    for row in rows:
        lines += [r"\midrule"] if row[0] == AVERAGE else []
        lines.append(" & ".join(row) + r" \\")
    top = [rf"\begin{{tabular}}{{{columns or 'l' + 'c' * (len(head) - 1)}}}", r"\toprule", " & ".join(head) + r" \\"]
    return [*top, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]


def _draw_latex_differences(sheet: Sheet) -> list[str]:
    rows = []
    for name, *numbers, _, _, verdict in list_differences(sheet.paired, sheet.unit.digits):
        signed = ("--" if x == "-" else re.sub(r"[+-][\d.]+|<[\d.]+", r"$\g<0>$", x) for x in numbers)
        rows.append([escape_latex(name), *signed, escape_latex(verdict)])
    return _draw_tabular(["Algorithm", "Difference", r"95\,\% CI", "$p$", "Verdict"], rows, "lcccl")


def _format_latex_value(sheet: Sheet, row: str, column: str) -> str:
    value, rank = sheet.value(row, column, r"$\pm$"), sheet.rank(row, column)
    return rf"\textbf{{{value}}}" if rank == 0 else rf"\underline{{{value}}}" if rank == 1 else value


def escape_latex(name: str) -> str:
    """Return a name as LaTeX text, whatever characters it has."""
    special = {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}",
        "[": "{[}", "]": "{]}", "`": r"\textasciigrave{}",
    }  # fmt: skip
    text = "".join(special.get(ch, f"\\{ch}" if ch in "&%$#_{}" else _escape_letter(ch)) for ch in join_lines(name))
    return text.replace("--", "-{}-{}")  # no ligature


def _escape_letter(ch: str) -> str:
    """Return characters that every engine sets, and the code of others for engines without Unicode."""
    if ch.isascii() or ("À" <= ch <= "ÿ" and ch not in "Ð×Þð÷þ"):
        return ch
    return rf"{{\ifdefined\Umathcode {ch}\else(U+{ord(ch):04X})\fi}}"


def _to_ascii(note: str) -> str:
    """Return the note in ASCII for a comment, which some engines read before they know the encoding."""
    return join_lines(note).replace("±", "+-").encode("ascii", "replace").decode()


# CSV and JSON --------------------------------------------------------------------------------------------------------


def _list_entries(sheet: Sheet) -> list[dict[str, object]]:
    """Return an entry for each cell, with the published number and, on the average row, the test of the difference."""
    tests = {x.algorithm: {**asdict(x), "verdict": x.verdict} for x in sheet.paired}
    entries = []
    for cell in sheet.cells:
        entry: dict[str, object] = {"algorithm": cell.algorithm, sheet.row_key: cell.held_out}
        entry |= {name: getattr(cell, name) for name in ("mean", "stderr", "trials")}
        entry |= sheet.describe_cell(cell)
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
    entries = _list_entries(sheet)
    names = ["algorithm", sheet.row_key, "mean", "stderr", "trials", "diverged"]
    names += [name for name in ("criterion", "select", "candidates") if any(name in entry for entry in entries)]
    names += [sheet.paper.source.lower()] if sheet.paper else []
    names += PAIRED if sheet.paired else ()
    rows = []
    for entry in entries:
        against = entry.pop("against", {})
        rows.append({"diverged": 0, **entry, **(against if isinstance(against, dict) else {})})
    return _write_csv(names, rows)


def _write_csv(names: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


FORMATS: dict[str, Callable[[Sheet], str]] = {
    "text": _format_text,
    "markdown": _format_markdown,
    "latex": _format_latex,
    "csv": _format_csv,
    "json": _format_json,
}

# Costs ---------------------------------------------------------------------------------------------------------------

COST_FORMATS = ("text", "markdown", "csv", "json")
COST_NOTE = (
    "Time is a trial's share of that of the stack that it was trained in, evaluation included; steps are those of the "
    "protocol, of the trials with one domain held out, and stages that come on top count in. Memory is the peak of a "
    "stack."
)


@dataclass(frozen=True)
class AlgorithmCost:
    """The cost of one algorithm on one kind of device."""

    algorithm: str
    device: str
    trainings: int  # with all candidates, and with pairs of domains held out for selection
    seconds: float  # in all
    per_step: float  # milliseconds of one trial
    times: float | None  # of the baseline's step
    stacked: int  # trials in a stack, at most
    memory: int  # bytes, at most


def sum_costs(records: Sequence[Record], baseline: str = "agg") -> list[AlgorithmCost]:
    """Return the cost of each algorithm and device, in the order of the records."""
    by_kind: dict[tuple[str, str], list[Record]] = {}
    for r in _list_trained(records):
        by_kind.setdefault((r.algorithm, r.device), []).append(r)
    if not by_kind:
        raise UsageError("The run holds no finished trial yet, so there is no table to print.")
    steps = {kind: _time_per_step(trials) for kind, trials in by_kind.items()}
    costs = []
    for (name, device), trials in by_kind.items():
        base = steps.get((baseline, device))
        costs.append(
            AlgorithmCost(
                algorithm=name,
                device=device,
                trainings=len(trials),
                seconds=sum(r.seconds for r in trials),
                per_step=steps[name, device],
                times=steps[name, device] / base if base else None,
                stacked=max(r.stacked for r in trials),
                memory=max(r.peak_memory for r in trials),
            )
        )
    return costs


def _list_trained(records: Sequence[Record]) -> list[Record]:
    return [r for r in records if r.status != FAILED and not r.members]  # mixing trials trains nothing


def _time_per_step(records: Sequence[Record]) -> float:
    whole = [r for r in records if r.status == DONE] or records  # one that diverged may have ended early
    single = [r for r in whole if r.is_tabled] or whole
    return 1000 * sum(r.seconds for r in single) / sum(int(r.description["protocol"]["steps"]) for r in single)


def describe_totals(records: Sequence[Record]) -> list[str]:
    """Say for each device `4160 trainings in 312 s on NVIDIA H200: 800 per minute.`, and whether several ran at a
    time."""
    by_device: dict[str, list[Record]] = {}
    for r in _list_trained(records):
        by_device.setdefault(r.device, []).append(r)
    sentences = []
    for device, trials in by_device.items():
        shares = _share_trainings(trials)
        summed, count = sum(r.seconds * share for r, share in zip(trials, shares, strict=True)), round(sum(shares))
        clock = _measure_busy_time(trials, shares, summed)
        pace = f": {60 * count / clock:.{0 if 60 * count > 10 * clock else 2}f} per minute" if clock else ""
        sentences.append(f"{count} trainings in {clock:.0f} s on {device}{pace}.")
        if clock < summed:
            sentences[-1] += f" Several ran at a time: their seconds add up to {summed:.0f}."
    return sentences


def _share_trainings(records: Sequence[Record]) -> list[float]:
    """Return how much of a training each record stands for: averages of one training have a record each.

    The records of a stack have its seconds in common, and it has `stacked` trainings.
    """
    stacks = [(r.device, r.seconds, r.stacked) for r in records]
    averaged = {stack for stack, r in zip(stacks, records, strict=True) if "+" in r.algorithm}
    sizes = Counter(stacks)
    return [min(1.0, stack[2] / sizes[stack]) if stack in averaged else 1.0 for stack in stacks]


def _measure_busy_time(records: Sequence[Record], shares: Sequence[float], summed: float) -> float:
    """Return the seconds during which at least one stack was at work.

    Packed records say only to a second when they were finished, so where stacks overlap by less than that this is the
    sum of their times.
    """
    if not all(r.finished for r in records):
        return summed
    stacks = sum(share / r.stacked for r, share in zip(records, shares, strict=True))
    busy, until = 0.0, 0.0
    for begun, finished in sorted({(r.finished - r.seconds * r.stacked, r.finished) for r in records}):
        busy += max(0.0, finished - max(begun, until))
        until = max(until, finished)
    return busy if summed - busy > stacks else summed


def render_costs(records: Sequence[Record], form: str = "text", baseline: str = "agg") -> str:
    """Return the table of costs as text, Markdown, CSV or JSON."""
    if form not in COST_FORMATS:
        raise unknown("format of the cost table", form, COST_FORMATS)
    costs = sum_costs(records, baseline)
    if form == "json":
        return json.dumps([asdict(s) for s in costs], indent=2) + "\n"
    if form == "csv":
        return _write_csv([f.name for f in fields(AlgorithmCost)], [asdict(s) for s in costs])
    head = ["algorithm", "trainings", "seconds", "ms per step", f"times {baseline}", "in a stack", "MiB", "device"]
    rows = [
        [
            join_lines(s.algorithm), str(s.trainings), f"{s.seconds:.1f}", f"{s.per_step:.3g}",
            "-" if s.times is None else f"{s.times:.2f}", str(s.stacked), f"{s.memory / 2**20:.0f}", s.device,
        ]
        for s in costs
    ]  # fmt: skip
    notes = [*describe_totals(records), COST_NOTE]
    if form == "text":
        return "\n".join([*draw_table([head, *rows]), "", *notes]) + "\n"
    rule = ["---", *["---:"] * (len(head) - 2), "---"]
    lines = [head, rule, *(list(map(escape_markdown, row)) for row in rows)]
    return "\n".join([*map(_join_markdown, lines), "", *(f"{note}  " for note in notes)]) + "\n"
