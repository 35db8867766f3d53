"""Tables as LaTeX: booktabs, the best of every held-out domain in bold, the second underlined."""

from __future__ import annotations

from seqdg.report.sheet import Sheet
from seqdg.report.text import join_lines
from seqdg.results import AVERAGE

# If a document has begun, the table is a part of it; otherwise it is a document by itself.
OPENING = r"""\expandafter\ifx\csname @nodocument\endcsname\relax \def\tableend{}\else
\documentclass{article}\usepackage{booktabs}\begin{document}\def\tableend{\end{document}}\fi"""


def format_latex(sheet: Sheet) -> str:
    """Return the table, which compiles by itself and inside a document that loads booktabs."""
    comments = [sheet.footnote, *sheet.notes, "Compiles by itself, or with \\input where booktabs is loaded."]
    lines = [f"% {_to_ascii(note)}" for note in comments] + [OPENING]
    lines += _format_with_paper(sheet) if sheet.paper else _format_domains(sheet)
    if sheet.paired:
        lines += ["", r"\par\bigskip", *_format_differences(sheet)]
    return "\n".join([*lines, r"\tableend"]) + "\n"


def _format_domains(sheet: Sheet) -> list[str]:
    head = ["Unseen", *(rf"\textbf{{{escape_latex(c)}}}" for c in sheet.columns)]
    lines = [rf"\begin{{tabular}}{{l{'c' * len(sheet.columns)}}}", r"\toprule", _join_cells(head), r"\midrule"]
    for r in sheet.rows:
        if r == AVERAGE:
            lines.append(r"\midrule")
        lines.append(_join_cells([escape_latex(r), *(_format_value(sheet, r, c) for c in sheet.columns)]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _format_with_paper(sheet: Sheet) -> list[str]:
    assert sheet.paper is not None
    head = ["Algorithm", *(rf"\textbf{{{escape_latex(r)}}}" for r in sheet.rows)]
    lines = [rf"\begin{{tabular}}{{l{'c' * len(sheet.rows)}}}", r"\toprule", _join_cells(head), r"\midrule"]
    for c in sheet.columns:
        lines.append(_join_cells([escape_latex(c), *(_format_value(sheet, r, c) for r in sheet.rows)]))
        if c in sheet.paper.columns:
            name = rf"\quad\textit{{{sheet.paper.source}: {escape_latex(sheet.paper.columns[c])}}}"
            lines.append(_join_cells([name, *(sheet.published(r, c) for r in sheet.rows)]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _format_differences(sheet: Sheet) -> list[str]:
    head = ["Algorithm", "Difference", r"95\,\% CI", "$p$", "Verdict"]
    lines = [r"\begin{tabular}{lcccl}", r"\toprule", _join_cells(head), r"\midrule"]
    digits = sheet.unit.digits
    for x in sheet.paired:
        ends = "--" if x.low is None else f"${x.low:+.{digits}f}$ to ${x.high:+.{digits}f}$"
        gap = "--" if x.difference is None else f"${x.difference:+.{digits}f}$"
        p = "--" if x.p_holm is None else "$<0.001$" if x.p_holm < 0.001 else f"{x.p_holm:.3f}"
        lines.append(_join_cells([escape_latex(x.algorithm), gap, ends, p, escape_latex(x.verdict)]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _join_cells(parts: list[str]) -> str:
    return " & ".join(parts) + r" \\"


def _format_value(sheet: Sheet, row: str, column: str) -> str:
    value, place = sheet.value(row, column, r"$\pm$"), sheet.place(row, column)
    if place == 0:
        return rf"\textbf{{{value}}}"
    return rf"\underline{{{value}}}" if place == 1 else value


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
