"""A table for a paper: booktabs, the best of every held-out domain bold, the second underlined."""

from __future__ import annotations

from seqdg.report.sheet import Sheet
from seqdg.report.text import one_line
from seqdg.results.summary import AVERAGE

# True once a document has begun: then this is a part of it. Otherwise it is a document by itself.
OPENING = r"""\expandafter\ifx\csname @nodocument\endcsname\relax \def\tableend{}\else
\documentclass{article}\usepackage{booktabs}\begin{document}\def\tableend{\end{document}}\fi"""


def latex(sheet: Sheet) -> str:
    """Compiles by itself, and as a part of a document that loads booktabs."""
    comments = [sheet.footnote, *sheet.notes, "Compiles by itself, or with \\input where booktabs is loaded."]
    lines = [f"% {_ascii(note)}" for note in comments] + [OPENING]
    body = _with_paper(sheet) if sheet.paper else _by_domain(sheet)
    lines += body
    if sheet.paired:
        lines += ["", r"\par\bigskip", *_paired(sheet)]
    return "\n".join([*lines, r"\tableend"]) + "\n"


def _by_domain(sheet: Sheet) -> list[str]:
    head = ["Unseen", *(rf"\textbf{{{escaped(c)}}}" for c in sheet.columns)]
    lines = [rf"\begin{{tabular}}{{l{'c' * len(sheet.columns)}}}", r"\toprule", _line(head), r"\midrule"]
    for r in sheet.rows:
        if r == AVERAGE:
            lines.append(r"\midrule")
        lines.append(_line([escaped(r), *(_value(sheet, r, c) for c in sheet.columns)]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _with_paper(sheet: Sheet) -> list[str]:
    assert sheet.paper is not None
    head = ["Algorithm", *(rf"\textbf{{{escaped(r)}}}" for r in sheet.rows)]
    lines = [rf"\begin{{tabular}}{{l{'c' * len(sheet.rows)}}}", r"\toprule", _line(head), r"\midrule"]
    for c in sheet.columns:
        lines.append(_line([escaped(c), *(_value(sheet, r, c) for r in sheet.rows)]))
        if c in sheet.paper.columns:
            name = rf"\quad\textit{{paper: {escaped(sheet.paper.columns[c])}}}"
            lines.append(_line([name, *(sheet.published(r, c) for r in sheet.rows)]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _paired(sheet: Sheet) -> list[str]:
    head = ["Algorithm", "Difference", r"95\,\% CI", "$p$", "Verdict"]
    lines = [r"\begin{tabular}{lcccl}", r"\toprule", _line(head), r"\midrule"]
    digits = sheet.unit.digits
    for x in sheet.paired:
        ends = "--" if x.low is None else f"${x.low:+.{digits}f}$ to ${x.high:+.{digits}f}$"
        gap = "--" if x.difference is None else f"${x.difference:+.{digits}f}$"
        p = "--" if x.p_holm is None else "$<0.001$" if x.p_holm < 0.001 else f"{x.p_holm:.3f}"
        lines.append(_line([escaped(x.algorithm), gap, ends, p, escaped(x.verdict)]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _line(parts: list[str]) -> str:
    return " & ".join(parts) + r" \\"


def _value(sheet: Sheet, row: str, column: str) -> str:
    value, place = sheet.value(row, column, r"$\pm$"), sheet.place(row, column)
    if place == 0:
        return rf"\textbf{{{value}}}"
    return rf"\underline{{{value}}}" if place == 1 else value


def escaped(name: str) -> str:
    """A name as text, whatever it holds."""
    special = {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}",
        "[": "{[}", "]": "{]}", "`": r"\textasciigrave{}",
    }  # fmt: skip
    text = "".join(special.get(ch, f"\\{ch}" if ch in "&%$#_{}" else _letter(ch)) for ch in one_line(name))
    return text.replace("--", "-{}-{}")  # no ligature


def _letter(ch: str) -> str:
    """What every engine sets as it is; of the rest its code, where an engine knows no Unicode."""
    if ch.isascii() or ("À" <= ch <= "ÿ" and ch not in "Ð×Þð÷þ"):
        return ch
    return rf"{{\ifdefined\Umathcode {ch}\else(U+{ord(ch):04X})\fi}}"


def _ascii(note: str) -> str:
    """For a comment, which some engines read before they know the encoding."""
    return one_line(note).replace("±", "+-").encode("ascii", "replace").decode()
