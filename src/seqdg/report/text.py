"""A table for people who read a terminal or Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from seqdg.report.sheet import Sheet

LONGEST = 28  # of a name in a terminal


def text(sheet: Sheet) -> str:
    """`*` marks the best of every held-out domain."""
    names = shortened([*sheet.rows, *sheet.columns])
    marked = {
        (r, c): sheet.value(r, c) + ("*" if sheet.place(r, c) == 0 else " ") for r in sheet.rows for c in sheet.columns
    }
    if len(sheet.columns) <= len(sheet.rows) and not sheet.paper:
        lines = [["held out", *(names[c] for c in sheet.columns)]]
        lines += [[names[r], *(marked[r, c] for c in sheet.columns)] for r in sheet.rows]
    else:
        lines = [["algorithm", *(names[r] for r in sheet.rows)]]
        for c in sheet.columns:
            lines.append([names[c], *(marked[r, c] for r in sheet.rows)])
            if sheet.paper and c in sheet.paper.columns:
                published = [f"{sheet.published(r, c)} " for r in sheet.rows]
                lines.append([f"  paper: {sheet.paper.columns[c]}", *published])
    notes = [f"{sheet.footnote} * best", *map(one_line, sheet.notes)]
    return "\n".join([*draw_table(lines), "", *notes]) + "\n"


def align_columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return each line with its columns padded: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]


def draw_table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines with a rule below the first."""
    head, *rows = (line.rstrip() for line in align_columns(lines))
    return [head, "-" * max(len(line) for line in (head, *rows)), *rows]


def shortened(names: Sequence[str], longest: int = LONGEST) -> dict[str, str]:
    """Each name on one line and of bounded length, still different from all others."""
    found: dict[str, str] = {}
    for name in names:
        short = one_line(name)
        if len(short) > longest:
            short = f"{short[: longest - 9]}…{short[-8:]}"
        count = 2
        while short in found.values() and found.get(name) != short:
            short = f"{short[: longest - 4]}~{count}"
            count += 1
        found[name] = short
    return found


def one_line(name: str) -> str:
    """Without line breaks and control characters."""
    return " ".join("".join(ch if ch.isprintable() else " " for ch in name).split())


def markdown(sheet: Sheet) -> str:
    """The best of every held-out domain in bold."""
    rows, columns, paper = sheet.rows, sheet.columns, sheet.paper
    head = []
    for c in columns:
        head.append(escaped(c))
        if paper and c in paper.columns:
            head.append(f"paper: {paper.columns[c]}")
    lines = [f"| held out | {' | '.join(head)} |", "|---" + "|---:" * len(head) + "|"]
    for r in rows:
        shown = []
        for c in columns:
            value = sheet.value(r, c)
            shown.append(f"**{value}**" if sheet.place(r, c) == 0 else value)
            if paper and c in paper.columns:
                shown.append(sheet.published(r, c))
        lines.append(f"| {escaped(r)} | {' | '.join(shown)} |")
    notes = [sheet.footnote, *sheet.notes]
    return "\n".join([*lines, "", *(f"{_prose(note)}  " for note in notes)]) + "\n"


def escaped(name: str) -> str:
    return "".join(f"\\{ch}" if ch in "\\|*`[]" else _ENTITIES.get(ch, ch) for ch in one_line(name))


def _prose(note: str) -> str:
    start = "\\" if note.startswith("- ") else ""
    return start + "".join(f"\\{ch}" if ch in "*`[]" else _ENTITIES.get(ch, ch) for ch in one_line(note))


_ENTITIES = {"<": "&lt;", ">": "&gt;"}
