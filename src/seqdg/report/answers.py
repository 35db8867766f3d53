"""The questions that a comparison is run for, answered in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from seqdg.report.figures import mean_seconds
from seqdg.report.sheet import Sheet
from seqdg.results.select import Outcome
from seqdg.results.statistics import PairedDifference, describe_wins, format_p
from seqdg.results.summary import AVERAGE, WORST, Cell


def answers(sheet: Sheet, chosen: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Question and answer."""
    found = []
    best = _best(sheet, AVERAGE)
    if best is None:
        return [("Which algorithm?", "No algorithm has a result on every held-out domain yet.")]
    found.append(("Which algorithm?", _which(sheet, best)))
    if sheet.paired:
        found.append(("Is that real?", _real(sheet, best)))
        if cost := _cost(sheet, chosen, best):
            found.append(("What did it cost?", cost))
    return found


def _best(sheet: Sheet, row: str) -> Cell | None:
    known = [c for c in sheet.cells if c.held_out == row and c.mean is not None]
    return min(known, key=lambda c: sheet.place(row, c.algorithm) or 0) if known else None


def _which(sheet: Sheet, best: Cell) -> str:
    alike = [n for n in sheet.columns if sheet.place(AVERAGE, n) == 0]
    word = "highest" if sheet.higher else "lowest"
    verb = "are" if len(alike) > 1 else "is"
    text = f"{_listed(alike)} {verb} {word} on average over the held-out domains: {sheet.value(AVERAGE, alike[0])}"
    if len(alike) == 1 and (second := [n for n in sheet.columns if sheet.place(AVERAGE, n) == 1]):
        text += f", before {_listed(second)} with {sheet.value(AVERAGE, second[0])}"
    if worst := _best(sheet, WORST):
        own = "too" if worst.algorithm in alike else ""
        text += f". On its worst held-out domain {worst.algorithm} does best{', ' + own if own else ''}: "
        text += sheet.value(WORST, worst.algorithm)
    return text + "."


def _real(sheet: Sheet, best: Cell) -> str:
    baseline = sheet.paired[0].baseline
    own = next((x for x in sheet.paired if x.algorithm == best.algorithm), None)
    word = "higher" if sheet.higher else "lower"
    text = [_against(own, sheet) if own else f"No algorithm has a {word} average than the baseline, {baseline}."]
    for verdict in ("better", "worse"):
        others = [x.algorithm for x in sheet.paired if x.verdict.startswith(verdict) and x is not own]
        if others:
            also = f"Also {verdict}" if own and own.verdict.startswith(verdict) else verdict.capitalize()
            text.append(f"{also} than {baseline}: {_listed(others)}.")
    unclear = [x.algorithm for x in sheet.paired if not x.distinguishable and x is not own]
    if unclear:
        text.append(f"Not distinguishable from {baseline}: {_listed(unclear)}.")
    return " ".join(text)


def _against(x: PairedDifference, sheet: Sheet) -> str:
    if x.difference is None:
        return f"There is no pair of trials to compare {x.algorithm} with {x.baseline}."
    digits, unit = sheet.unit.digits, f" {sheet.unit.points}" if sheet.unit.points else ""
    gap = f"{abs(x.difference):.{digits}f}{unit} {'above' if x.difference > 0 else 'below'} {x.baseline}"
    ends = f", 95 % confidence interval {x.low:+.{digits}f} to {x.high:+.{digits}f}" if x.low is not None else ""
    p = _chance(x, len(sheet.paired))
    if x.distinguishable:
        return (
            f"Yes, on these data and domains: {x.algorithm} is {gap} over {x.pairs} pairs{ends}{p}; {describe_wins(x)}."
        )
    return f"That cannot be said: {x.algorithm} is {x.verdict} ({gap} over {x.pairs} pairs{ends}{p})."


def _chance(x: PairedDifference, tests: int) -> str:
    if x.p is None or x.p_holm is None:
        return ""
    if tests == 1 or format_p(x.p) == format_p(x.p_holm):
        return f", {format_p(x.p_holm)}"
    return f", {format_p(x.p)}, after Holm's correction for {tests} comparisons {format_p(x.p_holm)}"


def _cost(sheet: Sheet, chosen: Sequence[Outcome], best: Cell) -> str | None:
    baseline = sheet.paired[0].baseline
    own, base = mean_seconds(chosen, best.algorithm), mean_seconds(chosen, baseline)
    if not own or not base:
        return None
    if best.algorithm == baseline:
        return f"{own:.2g} s per trial."
    return f"A trial of {best.algorithm} took {own:.2g} s, {own / base:.1f} times as long as one of {baseline}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
