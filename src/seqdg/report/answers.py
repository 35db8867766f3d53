"""The questions that a comparison answers, and the answers in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from seqdg.base import join_names
from seqdg.report.figures import average_seconds
from seqdg.report.sheet import Sheet
from seqdg.results import AVERAGE, WORST, Cell, Outcome, PairedDifference, describe_wins, format_p


def answer_questions(sheet: Sheet, chosen: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Return questions and answers."""
    answers = []
    best = _find_best(sheet, AVERAGE)
    if best is None:
        return [("Which algorithm?", "No algorithm has a result on every held-out domain yet.")]
    answers.append(("Which algorithm?", _answer_which(sheet, best)))
    if sheet.paired:
        answers.append(("Is that real?", _answer_real(sheet, best)))
        if cost := _answer_cost(sheet, chosen, best):
            answers.append(("What did it cost?", cost))
    return answers


def _find_best(sheet: Sheet, row: str) -> Cell | None:
    known = [c for c in sheet.cells if c.held_out == row and c.mean is not None]
    return min(known, key=lambda c: sheet.place(row, c.algorithm) or 0) if known else None


def _answer_which(sheet: Sheet, best: Cell) -> str:
    alike = [n for n in sheet.columns if sheet.place(AVERAGE, n) == 0]
    word = "highest" if sheet.higher else "lowest"
    verb = "are" if len(alike) > 1 else "is"
    text = f"{join_names(alike)} {verb} {word} on average over the held-out domains: {sheet.value(AVERAGE, alike[0])}"
    if len(alike) == 1 and (second := [n for n in sheet.columns if sheet.place(AVERAGE, n) == 1]):
        text += f", before {join_names(second)} with {sheet.value(AVERAGE, second[0])}"
    if worst := _find_best(sheet, WORST):
        too = ", too" if worst.algorithm in alike else ""
        text += f". On its worst held-out domain {worst.algorithm} does best{too}: "
        text += sheet.value(WORST, worst.algorithm)
    return text + "."


def _answer_real(sheet: Sheet, best: Cell) -> str:
    baseline = sheet.paired[0].baseline
    test = next((x for x in sheet.paired if x.algorithm == best.algorithm), None)
    word = "higher" if sheet.higher else "lower"
    text = [
        _describe_test(test, sheet) if test else f"No algorithm has a {word} average than the baseline, {baseline}."
    ]
    for verdict in ("better", "worse"):
        others = [x.algorithm for x in sheet.paired if x.verdict.startswith(verdict) and x is not test]
        if others:
            also = f"Also {verdict}" if test and test.verdict.startswith(verdict) else verdict.capitalize()
            text.append(f"{also} than {baseline}: {join_names(others)}.")
    unclear = [x.algorithm for x in sheet.paired if not x.distinguishable and x is not test]
    if unclear:
        text.append(f"Not distinguishable from {baseline}: {join_names(unclear)}.")
    return " ".join(text)


def _describe_test(x: PairedDifference, sheet: Sheet) -> str:
    if x.difference is None:
        return f"There is no pair of trials to compare {x.algorithm} with {x.baseline}."
    digits, unit = sheet.unit.digits, f" {sheet.unit.points}" if sheet.unit.points else ""
    gap = f"{abs(x.difference):.{digits}f}{unit} {'above' if x.difference > 0 else 'below'} {x.baseline}"
    ends = f", 95 % confidence interval {x.low:+.{digits}f} to {x.high:+.{digits}f}" if x.low is not None else ""
    p = _describe_chance(x, len(sheet.paired))
    if x.distinguishable:
        return (
            f"Yes, on these data and domains: {x.algorithm} is {gap} over {x.pairs} pairs{ends}{p}; {describe_wins(x)}."
        )
    return f"That cannot be said: {x.algorithm} is {x.verdict} ({gap} over {x.pairs} pairs{ends}{p})."


def _describe_chance(x: PairedDifference, tests: int) -> str:
    if x.p is None or x.p_holm is None:
        return ""
    if tests == 1 or format_p(x.p) == format_p(x.p_holm):
        return f", {format_p(x.p_holm)}"
    return f", {format_p(x.p)}, after Holm's correction for {tests} comparisons {format_p(x.p_holm)}"


def _answer_cost(sheet: Sheet, chosen: Sequence[Outcome], best: Cell) -> str | None:
    baseline = sheet.paired[0].baseline
    seconds, base = average_seconds(chosen, best.algorithm), average_seconds(chosen, baseline)
    if not seconds or not base:
        return None
    if best.algorithm == baseline:
        return f"{seconds:.2g} s per trial."
    return f"A trial of {best.algorithm} took {seconds:.2g} s, {seconds / base:.1f} times as long as one of {baseline}."
