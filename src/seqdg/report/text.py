"""Tables as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from seqdg.report.sheet import Sheet

LONGEST = 28  # name in a terminal


def format_text(sheet: Sheet) -> str:
    """Return the table as text, the best of every held-out domain marked by `*`."""
    names = shorten_names([*sheet.rows, *sheet.columns])
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
                lines.append([f"  {sheet.paper.source}: {sheet.paper.columns[c]}", *published])
    notes = [f"{sheet.footnote} * best", *map(join_lines, sheet.notes)]
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


def format_markdown(sheet: Sheet) -> str:
    """Return the table as Markdown, the best of every held-out domain in bold."""
    rows, columns, paper = sheet.rows, sheet.columns, sheet.paper
    head = []
    for c in columns:
        head.append(escape_markdown(c))
        if paper and c in paper.columns:
            head.append(f"{paper.source}: {paper.columns[c]}")
    lines = [f"| held out | {' | '.join(head)} |", "|---" + "|---:" * len(head) + "|"]
    for r in rows:
        cells = []
        for c in columns:
            value = sheet.value(r, c)
            cells.append(f"**{value}**" if sheet.place(r, c) == 0 else value)
            if paper and c in paper.columns:
                cells.append(sheet.published(r, c))
        lines.append(f"| {escape_markdown(r)} | {' | '.join(cells)} |")
    notes = [sheet.footnote, *sheet.notes]
    return "\n".join([*lines, "", *(f"{_escape_prose(note)}  " for note in notes)]) + "\n"


def escape_markdown(name: str) -> str:
    return "".join(f"\\{ch}" if ch in "\\|*`[]" else _ENTITIES.get(ch, ch) for ch in join_lines(name))


def _escape_prose(note: str) -> str:
    start = "\\" if note.startswith("- ") else ""
    return start + "".join(f"\\{ch}" if ch in "*`[]" else _ENTITIES.get(ch, ch) for ch in join_lines(note))


_ENTITIES = {"<": "&lt;", ">": "&gt;"}
