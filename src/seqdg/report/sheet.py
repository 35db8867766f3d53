"""What a table says, whatever the format: its cells, their ranks, and the notes under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from seqdg.report.paper import Beside, beside
from seqdg.results.criteria import HIGHER_IS_BETTER
from seqdg.results.record import FAILED, Record
from seqdg.results.select import Outcome, count_candidates, find_mixtures, select_outcomes
from seqdg.results.statistics import PairedDifference, compare_pairs, describe_difference
from seqdg.results.summary import AVERAGE, UNITS, WORST, Cell, Unit, format_cell, summarize

PAIRING = (
    "Differences are paired over seed and held-out domain; p by sign-flip permutation, Holm-corrected; the intervals "
    "are not corrected. They say what other seeds would give on these data and domains, taking pairs as independent; "
    "they cannot say what other data or domains would."
)


@dataclass(frozen=True)
class Sheet:
    """Everything that a table shows."""

    cells: Sequence[Cell]
    select: str = "source-val"
    criterion: str = "accuracy"
    paper: Beside | None = None
    paired: Sequence[PairedDifference] = ()
    candidates: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # tried, by algorithm: at least, at most
    mixed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what else they differ in, and its values
    failed: Mapping[str, int] = field(default_factory=dict)  # trials, by algorithm

    @property
    def higher(self) -> bool:
        """Whether the larger number is the better one."""
        return HIGHER_IS_BETTER[self.criterion]

    @property
    def unit(self) -> Unit:
        return UNITS[self.criterion]

    @cached_property
    def rows(self) -> list[str]:
        """Held-out domains, average and worst last."""
        found = list(dict.fromkeys(c.held_out for c in self.cells))
        return [r for r in found if r not in (AVERAGE, WORST)] + [r for r in (AVERAGE, WORST) if r in found]

    @cached_property
    def columns(self) -> list[str]:
        """Algorithms."""
        return list(dict.fromkeys(c.algorithm for c in self.cells))

    @cached_property
    def by_pair(self) -> dict[tuple[str, str], Cell]:
        return {(c.held_out, c.algorithm): c for c in self.cells}

    def cell(self, row: str, column: str) -> Cell | None:
        return self.by_pair.get((row, column))

    @cached_property
    def ranked(self) -> dict[str, list[float]]:
        """By row, its distinct means as printed, best first."""
        found = {}
        for row in self.rows:
            means = {self.printed(c.mean) for c in self.cells if c.held_out == row and c.mean is not None}
            found[row] = sorted(means, reverse=self.higher)
        return found

    def printed(self, value: float) -> float:
        return round(value, self.unit.digits)

    def place(self, row: str, column: str) -> int | None:
        """0 for the best of its row, 1 for the second, ..."""
        cell = self.cell(row, column)
        return None if cell is None or cell.mean is None else self.ranked[row].index(self.printed(cell.mean))

    def value(self, row: str, column: str, plus_minus: str = "±") -> str:
        """`57.5 ± 0.5`"""
        return format_cell(self.cell(row, column), self.unit.digits, plus_minus)

    def published(self, row: str, column: str) -> str:
        """The paper's number, as it prints it."""
        value = self.paper.values.get((row, column)) if self.paper else None
        return "" if value is None else f"{value:.1f}"

    @property
    def footnote(self) -> str:
        counts = sorted({c.trials for c in self.cells if c.held_out not in (AVERAGE, WORST) and c.trials})
        if not counts or counts[-1] <= 1:
            spread = "one trial each, so there are no error bars"
        else:
            trials = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
            spread = f"mean ± standard error over {trials} trials"
        return f"{self.unit.title} on the held-out domain: {spread}, selected by {self.select}."

    @property
    def searched(self) -> bool:
        """Whether there were candidates to choose from."""
        return any(count != (1, 1) for count in self.candidates.values())

    @property
    def remarks(self) -> list[str]:
        """What to know of the cells."""
        found = [_choice(self.candidates, self.select)] if self.searched else []
        found += [f"This run mixes trainings of {name} {' and '.join(values)}." for name, values in self.mixed.items()]
        if any(self.value(r, c) == "-" for r in self.rows for c in self.columns):
            found.append("- not run, not defined, or no seed with every domain.")
        lost = sum(c.diverged for c in self.cells if c.held_out not in (AVERAGE, WORST))
        if lost:
            found.append(f"{lost} trial{'s' if lost > 1 else ''} diverged and count in no mean.")
        return found

    @property
    def notes(self) -> list[str]:
        """Sentences below the table."""
        tests = [describe_difference(x, self.unit.points, self.unit.digits) for x in self.paired]
        failed = [
            f"{count} trial{'s' if count > 1 else ''} of {name} failed: `seqdg status DIR --errors`."
            for name, count in self.failed.items()
        ]
        return [
            *self.remarks,
            *failed,
            *(self.paper.notes if self.paper else ()),
            *tests,
            *([PAIRING] if tests else []),
        ]


def sheet(
    records: Sequence[Record],
    select: str = "source-val",
    criterion: str = "accuracy",
    baseline: str | None = None,
    against: str | None = None,
    benchmark: str = "",
) -> Sheet:
    """From records: `against` "paper" sets the paper's numbers beside them, `baseline` names what to test against."""
    chosen = select_outcomes(records, select, criterion)
    return sheet_of(chosen, records, select, criterion, baseline, against, benchmark)


def sheet_of(
    chosen: Sequence[Outcome],
    records: Sequence[Record],
    select: str,
    criterion: str,
    baseline: str | None = None,
    against: str | None = None,
    benchmark: str = "",
) -> Sheet:
    from seqdg.base.errors import UsageError, unknown

    if not chosen:
        raise UsageError("The run holds no finished trial yet, so there is no table to print.")
    if against is not None and against != "paper":
        raise unknown("source of numbers to set beside ours", against, ("paper",))
    if against and criterion != "accuracy":
        raise UsageError(f"The paper gives accuracy alone, so there is no {criterion} to set beside ours.")
    unit, higher = UNITS[criterion], HIGHER_IS_BETTER[criterion]
    cells = summarize(chosen, unit.factor, higher)
    tests = compare_pairs(chosen, baseline, unit.factor, higher) if baseline else []
    paper = beside(cells, records, benchmark, select) if against else None
    return Sheet(
        cells, select, criterion, paper, tests, count_candidates(records), find_mixtures(records), _failed(records)
    )


def _failed(records: Sequence[Record]) -> dict[str, int]:
    return dict(Counter(r.algorithm for r in records if r.status == FAILED))


def _choice(tried: Mapping[str, tuple[int, int]], select: str) -> str:
    """How many candidates there were, and what chose among them."""
    by = {
        "last": "source validation at the last step",
        "oracle": "the held-out domain itself",
        "source-val": "source validation",
        "leave-one-out": "leave-one-out within the sources",
    }[select]
    counts = {name: str(high) if low == high else f"{low} to {high}" for name, (low, high) in tried.items()}
    if len(set(counts.values())) == 1:
        many = f"{next(iter(counts.values()))} candidates of each algorithm"
    else:
        many = f"these candidates: {', '.join(f'{name} {count}' for name, count in counts.items())}"
    return f"Settings and learning rate chosen by {by}, for every held-out domain and seed, among {many}."
