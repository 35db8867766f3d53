"""The contents of a table in every format: its cells, their ranks, and the notes below it.

It is of one run, or the table of a paper, algorithms × data sets, from several runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from seqdg import results
from seqdg.base import UsageError, count_things, join_names, list_some
from seqdg.report.published import PublishedColumns, set_beside
from seqdg.report.run_contents import list_draws

DIFFERENCES = ("algorithm", "difference", "95 % interval", "p (Holm)", "pairs", "domains ahead", "verdict")
PAIRING = (
    "Differences are paired over seed and held-out domain; p by sign-flip permutation, Holm-corrected; the intervals "
    "are not corrected. They say what other seeds would give on these data and domains, taking pairs as independent: "
    "where a seed moves all domains alike, p is too small and the interval too narrow. They cannot say what other data "
    "or domains would."
)


_LOOKS = {  # what else is to be known of a rule
    "domain-val": ", domains that are neither trained on nor tested",
    "oracle": ", an upper bound: the rows that are reported choose themselves",
    "oracle-split": ": the other fifth chose the settings, at the last step",
}

_FIRST = "The first candidate has the benchmark's settings;"
_DRAWS = {  # by their kind, where the candidates of a search come from
    "usual": f"{_FIRST} those of the others are drawn from their ranges, and the learning rate around the benchmark's.",
    "domainbed": f"{_FIRST} learning rate, weight decay, batch size, dropout and the algorithm's own of the others are "
    "drawn from the distributions of DomainBed's sweeps.",
    "optuna": f"{_FIRST} the others were proposed by Optuna from source validation, for every held-out domain.",
}


@dataclass(frozen=True)
class Sheet:
    """Everything that a table shows, whatever its format."""

    cells: Sequence[results.Cell]
    select: str = "source-val"
    criterion: str = "accuracy"
    paper: PublishedColumns | None = None
    paired: Sequence[results.PairedDifference] = ()
    candidates: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # tried, by algorithm: least and most
    mixed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # in what else they differ, and the values
    failed: Mapping[str, int] = field(default_factory=dict)  # trials, by algorithm
    versions: Sequence[str] = ()  # sentences on trials of older versions of seqdg
    unlabeled: Sequence[str] = ()  # algorithms that train on rows of the held-out domain, without labels
    joint: Sequence[str] = ()  # rows of several domains that are held out at once
    transductive: Sequence[str] = ()  # algorithms that predict many rows of the unseen domain at once
    soups: Sequence[str] = ()  # columns that are mixed of trained models
    imports: Sequence[str] = ()  # sentences on trials that another program trained
    reused: str = ""  # whether other seeds reuse what was chosen on the first, as `find_reuse` says
    spread: str = "stderr"  # what ± means, one of `SPREADS`
    draws: Sequence[str] = ()  # where the candidates of searches come from, by names of `_DRAWS`
    row_title: ClassVar[str] = "held out"  # what the rows are, in the head of a table
    row_key: ClassVar[str] = "held_out"  # and for programs

    @property
    def higher(self) -> bool:
        """True where the larger number is the better one."""
        return results.CRITERIA[self.criterion].higher_is_better

    @property
    def by_algorithm(self) -> bool:
        """Whether a table is shorter, or easier to read, with a line for each algorithm."""
        return self.paper is not None or len(self.columns) > len(self.rows)

    @cached_property
    def unit(self) -> results.Unit:
        return results.find_unit(self.criterion, [cell.mean for cell in self.cells])

    @cached_property
    def rows(self) -> list[str]:
        """The held-out domains, then average, worst and (of a fixed split) all their rows together."""
        names = list(dict.fromkeys(c.held_out for c in self.cells))
        return [r for r in names if r not in results.SUMMARIES] + [r for r in results.SUMMARIES if r in names]

    @cached_property
    def columns(self) -> list[str]:
        """The algorithms."""
        return list(dict.fromkeys(c.algorithm for c in self.cells))

    @cached_property
    def by_pair(self) -> dict[tuple[str, str], results.Cell]:
        return {(c.held_out, c.algorithm): c for c in self.cells}

    def cell(self, row: str, column: str) -> results.Cell | None:
        return self.by_pair.get((row, column))

    @cached_property
    def ranking(self) -> dict[str, list[float]]:
        """The distinct means of each row as printed, best first."""
        ranking = {}
        for row in self.rows:
            unit = self.find_unit(row)
            means = {round(c.mean, unit.digits) for c in self.cells if c.held_out == row and c.mean is not None}
            ranking[row] = sorted(means, reverse=unit.higher_is_better)
        return ranking

    def find_unit(self, row: str) -> results.Unit:
        """Return the unit in which the cells of a row are printed."""
        return self.unit

    def rank(self, row: str, column: str) -> int | None:
        """Return 0 for the best of its row, 1 for the second, ..."""
        cell = self.cell(row, column)
        if cell is None or cell.mean is None:
            return None
        return self.ranking[row].index(round(cell.mean, self.find_unit(row).digits))

    def value(self, row: str, column: str, plus_minus: str = "±") -> str:
        """Format a cell as in `57.5 ± 0.5`."""
        return results.format_cell(self.cell(row, column), self.find_unit(row).digits, plus_minus)

    def mark(self, row: str, column: str) -> str:
        """Format a cell, with a star in front of the best of its row."""
        return ("*" if self.rank(row, column) == 0 else "") + self.value(row, column)

    def published(self, row: str, column: str) -> str:
        """Return the published number as it is printed."""
        value = self.paper.values.get((row, column)) if self.paper else None
        return "" if value is None else f"{value:.1f}"

    def label_published(self, column: str) -> str:
        """Return the published name of an algorithm as in `paper: AGG`; "" where none is set beside it."""
        return (
            f"{self.paper.source}: {self.paper.columns[column]}" if self.paper and column in self.paper.columns else ""
        )

    def describe_cell(self, cell: results.Cell) -> dict[str, Any]:
        """Return what programs are told of a cell beside its numbers."""
        entry: dict[str, Any] = {"select": self.select}
        if self.spread != "stderr":
            entry["spread"] = self.spread
        if self.searched and cell.algorithm in self.candidates:
            entry["candidates"] = self.candidates[cell.algorithm][1]
        return entry

    @property
    def departures(self) -> Sequence[tuple[str, str, str]]:
        """A row for every setting that is another one in what is set beside, below the head; none where there are
        none."""
        return self.paper.departures if self.paper and len(self.paper.departures) > 1 else ()

    @property
    def footnote(self) -> str:
        counts = sorted({c.trials for c in self.cells if c.held_out not in results.SUMMARIES and c.trials})
        if not counts or counts[-1] <= 1:
            spread = "one trial each, so there are no error bars"
        else:
            trials = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
            divisor = ", its deviation by n and not n - 1 (ddof 0)," if self.spread == "stderr-ddof0" else ""
            spread = f"mean ± standard error{divisor} over {trials} trials"
        where = "four fifths of the held-out domain" if self.select == "oracle-split" else "the held-out domain"
        return f"{self.unit.title} on {where}: {spread}, selected by {self.select}{_LOOKS.get(self.select, '')}."

    @property
    def searched(self) -> bool:
        """True where there were candidates to choose from."""
        return any(count != (1, 1) for count in self.candidates.values())

    @property
    def remarks(self) -> list[str]:
        """Sentences about the cells."""
        remarks = [*self.versions, *self.imports]
        remarks += [_describe_choice(self.candidates, self.select, self.reused)] if self.searched else []
        remarks += [_DRAWS[kind] for kind in self.draws] if self.searched else []
        remarks += [
            f"This run mixes trainings of {name} {' and '.join(values)}." for name, values in self.mixed.items()
        ]
        if any(self.value(r, c) == "-" for r in self.rows for c in self.columns):
            remarks.append("- not run, not defined, or no seed with every domain.")
        if results.TOGETHER in self.rows:
            remarks.append("together: over the rows of all held-out domains at once.")
        if any(row.startswith("from ") for row in self.joint):
            remarks.append(
                "from: trained on this domain alone, and the mean over all others, which are held out at once."
            )
        elif self.joint:
            remarks.append("Domains with + between them are held out at once, and their mean counts.")
        lost = sum(c.diverged for c in self.cells if c.held_out not in results.SUMMARIES)
        if lost:
            remarks.append(f"{count_things(lost, 'trial')} diverged and count in no mean.")
        remarks += [_describe_transduction(self.transductive, self.columns)] if self.transductive else []
        if self.unlabeled:
            verb = "train" if len(self.unlabeled) > 1 else "trains"
            others = "; the others never see them" if len(self.unlabeled) < len(self.columns) else ""
            remarks.append(
                f"{join_names(self.unlabeled)} {verb} on rows of the held-out domain, without labels{others}."
            )
        if self.soups:
            verb = "are" if len(self.soups) > 1 else "is"
            remarks.append(
                f"{join_names(self.soups)} {verb} mixed of models of this run by `seqdg soup`, on source data alone."
            )
        return remarks

    @property
    def notes(self) -> list[str]:
        """The sentences below the table."""
        tests = [results.describe_difference(x, self.unit.points, self.unit.digits) for x in self.paired]
        failed = [
            f"{count_things(count, 'trial')} of {name} failed: `seqdg status DIR --errors`."
            for name, count in self.failed.items()
        ]
        return [
            *self.remarks,
            *failed,
            *(self.paper.notes if self.paper else ()),
            *tests,
            *([PAIRING] if tests else []),
        ]


def build_sheet(
    records: Sequence[results.Record],
    select: str = "source-val",
    criterion: str = "accuracy",
    baseline: str | None = None,
    against: str | None = None,
    benchmark: str = "",
    outcomes: Sequence[results.Outcome] | None = None,
    spread: str = "stderr",
    draws: Sequence[str] = (),
) -> Sheet:
    """Build the table of some records.

    baseline: the algorithm that the others are tested against.   against: whose published numbers are
        set beside these, one of `published.PUBLISHED`.
    outcomes: what this rule and criterion select, where that is known already.   spread: what ± means.
    draws: where the candidates of searches come from.
    """
    chosen = results.select_outcomes(records, select, criterion) if outcomes is None else outcomes
    if not chosen:
        raise UsageError("The run holds no finished trial yet, so there is no table to print.")
    if against and criterion != "accuracy":
        raise UsageError(f"Accuracy alone is published there, so there is no {criterion} to set beside ours.")
    unit = results.CRITERIA[criterion]
    cells = results.summarize(chosen, unit.factor, unit.higher_is_better, spread)
    tests = results.compare_pairs(chosen, baseline, unit.factor, unit.higher_is_better) if baseline else []
    paper = set_beside(against, cells, records, benchmark, select) if against else None
    return Sheet(
        cells,
        select,
        criterion,
        paper,
        tests,
        candidates=results.count_candidates(records),
        mixed=results.find_mixtures(records, "domainbed" in draws),
        failed=Counter(r.algorithm for r in records if r.status == results.FAILED),
        versions=results.describe_versions(records),
        joint=list(dict.fromkeys(o.held_out for o in chosen if o.record.is_joint)),
        unlabeled=list(dict.fromkeys(o.algorithm for o in chosen if o.record.description.get("unlabeled"))),
        transductive=list(dict.fromkeys(o.algorithm for o in chosen if o.record.description.get("together"))),
        soups=list(dict.fromkeys(o.algorithm for o in chosen if o.record.members)),
        imports=results.describe_imports(records),
        reused=results.find_reuse(records, chosen),
        spread=spread,
        draws=draws,
    )


def choose_baseline(algorithms: Sequence[str]) -> str:
    """Return the usual baseline: `agg` where it ran, else the first algorithm."""
    return "agg" if "agg" in algorithms else algorithms[0]


def _describe_transduction(names: Sequence[str], columns: Sequence[str]) -> str:
    """Say `arm and t3a predict a batch of the unseen domain at once (transductive); the others row by row.`"""
    others = "; the others row by row" if len(names) < len(columns) else ""
    verb = "predict" if len(names) > 1 else "predicts"
    return f"{join_names(names)} {verb} a batch of the unseen domain at once (transductive){others}."


def _describe_choice(tried: Mapping[str, tuple[int, int]], select: str, reused: str = "") -> str:
    """Say how many candidates there were, and what chose among them."""
    by = {
        "last": "source validation at the last step",
        "oracle": "the held-out domain itself",
        "oracle-split": "a fifth of the held-out rows at the last step",
        "source-val": "source validation",
        "leave-one-out": "leave-one-out within the sources",
        "domain-val": "the validation domains",
    }[select]
    counts = {name: str(high) if low == high or reused else f"{low} to {high}" for name, (low, high) in tried.items()}
    if len(set(counts.values())) == 1:
        many = f"{next(iter(counts.values()))} candidates of each algorithm"
    else:
        many = f"these candidates: {', '.join(f'{name} {count}' for name, count in counts.items())}"
    if not reused:
        return f"Settings and learning rate chosen by {by}, for every held-out domain and seed, among {many}."
    other = " But theirs were chosen by another rule: choose that one." if reused == "other" else ""
    return (
        f"Settings and learning rate chosen by {by} on the first seed, for every held-out domain, among {many}; the "
        f"other seeds reuse them.{other}"
    )


def list_differences(tests: Sequence[results.PairedDifference], digits: int) -> list[list[str]]:
    """Return a row for each test, as `DIFFERENCES` names the columns."""
    rows = []
    for x in tests:
        ends = "-" if x.low is None else f"{x.low:+.{digits}f} to {x.high:+.{digits}f}"
        difference = "-" if x.difference is None else f"{x.difference:+.{digits}f}"
        p = "-" if x.p_holm is None else "<0.001" if x.p_holm < 0.001 else f"{x.p_holm:.3f}"
        rows.append([x.algorithm, difference, ends, p, str(x.pairs), f"{x.better_on} of {x.domains}", x.verdict])
    return rows


# Several data sets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SummarySheet(Sheet):
    """A row for each data set, the average over its held-out domains, and one for the average over the data sets.

    parts: the table of every data set, by its name.
    """

    parts: Mapping[str, Sheet] = field(default_factory=dict)
    row_title: ClassVar[str] = "data set"
    row_key: ClassVar[str] = "data_set"

    @property
    def by_algorithm(self) -> bool:
        return True

    @property
    def searched(self) -> bool:
        return any(part.searched for part in self.parts.values())

    @cached_property
    def unit(self) -> results.Unit:
        return next(iter(self.parts.values())).unit

    def find_unit(self, row: str) -> results.Unit:
        return self.parts[row].unit if row in self.parts else self.unit

    @property
    def footnote(self) -> str:
        sentences = self._merge(lambda part: [part.footnote])
        return f"Averages over the held-out domains of each data set. {' '.join(sentences)}"

    @property
    def remarks(self) -> list[str]:
        remarks = self._merge(lambda part: [text for text in part.remarks if not text.startswith("- ")])
        if any(self.value(r, c) == "-" for r in self.rows for c in self.columns):
            remarks.append("- not run on every held-out domain, or not defined there.")
        if results.AVERAGE in self.rows:
            return [*remarks, "average: over the data sets; its ± takes their errors as independent."]
        return [*remarks, "There is no average, as the data sets are judged in different units."]

    def describe_cell(self, cell: results.Cell) -> dict[str, Any]:
        if cell.held_out not in self.parts:
            return {}
        part = self.parts[cell.held_out]
        return {"criterion": part.criterion, **part.describe_cell(cell)}

    def _merge(self, read: Callable[[Sheet], Iterable[str]]) -> list[str]:
        """Return the sentences of all parts, those that not all have after the names of those that have them."""
        owners: dict[str, list[str]] = {}
        for name, part in self.parts.items():
            for sentence in read(part):
                owners.setdefault(sentence, []).append(name)
        every = len(self.parts)
        return [s if len(names) == every else f"{join_names(names)}: {s}" for s, names in owners.items()]


def are_several_sets(paths: Sequence[Path]) -> bool:
    """Whether runs are of several data sets: of several benchmarks, of which two hold out no domain of one name."""
    with ExitStack() as stack:
        runs = [stack.enter_context(closing(results.open_run(path))) for path in paths]
        if len({run.benchmark for run in runs}) == 1:
            return False
        domains = [{r.held_out[0] for r in run.records("accuracy")} for run in runs]
        return any(names and not names & domains[0] for names in domains[1:])


def summarize_runs(
    paths: Sequence[Path],
    select: str = "source-val",
    criterion: str | None = None,
    baseline: str | None = None,
    spread: str = "stderr",
) -> SummarySheet:
    """Build the table of several runs, whose columns are their benchmarks.

    Parameters
    ----------
    paths : sequence of Path
        Run directories or packed runs. Those of one benchmark make one column.
    select, criterion : str
        The rule and the criterion of all, or one for each run in their order, with commas. No criterion: the usual one
        of each, accuracy or the RMSE.
    baseline : str, optional
        The algorithm that stands first.
    spread : str
        What ± means, as in `build_sheet`.
    """
    rules = _deal(select, paths, "--select")
    criteria = _deal(criterion, paths, "--criterion") if criterion else [""] * len(paths)
    parts: dict[str, Sheet] = {}
    with ExitStack() as stack:
        opened: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            with closing(results.open_run(path)) as run:
                opened.setdefault(run.benchmark, []).append(i)
        for name, which in opened.items():
            _check_choice(name, [(rules[i], criteria[i]) for i in which])
            source = stack.enter_context(closing(results.open_runs([paths[i] for i in which])))
            chosen = criteria[which[0]] or results.find_usual_criterion(source)
            draws = list_draws(source.read_commands())
            parts[name] = build_sheet(source.records(chosen), rules[which[0]], chosen, spread=spread, draws=draws)
    if len(parts) == 1:
        raise UsageError(
            f"All of these runs are of {next(iter(parts))}, so there is one data set: leave --summary out."
        )
    names = _order_algorithms(parts, paths, baseline)
    return SummarySheet(_list_cells(parts, names), parts=parts, spread=spread)


def _deal(text: str, paths: Sequence[Path], option: str) -> list[str]:
    """Give every run its own of names with commas, or all the same."""
    names = [name.strip() for name in text.split(",")]
    if len(names) == 1:
        return names * len(paths)
    if len(names) != len(paths):
        raise UsageError(
            f"{option} names {len(names)} for {len(paths)} runs: give one for all of them, or one for each in their "
            "order."
        )
    return names


def _check_choice(name: str, chosen: Sequence[tuple[str, str]]) -> None:
    if len(set(chosen)) > 1:
        raise UsageError(
            f"Several of the runs are of {name}, which has one column, and are given different rules or criteria: give "
            "them the same."
        )


def _order_algorithms(parts: Mapping[str, Sheet], paths: Sequence[Path], baseline: str | None) -> list[str]:
    """List all algorithms in the order of the runs, the baseline first; refuse runs that share none."""
    names = list(dict.fromkeys(name for part in parts.values() for name in part.columns))
    if not any(all(name in part.columns for part in parts.values()) for name in names):
        has = "; ".join(f"{name} has {list_some(part.columns)}" for name, part in parts.items())
        raise UsageError(
            f"No algorithm was run on all of these data sets, so there is nothing to average: {has}. Run one on each "
            "of them, or print their tables one by one."
        )
    if baseline is not None and baseline not in names:
        raise UsageError(f"No run has the baseline {baseline}. Choose one of: {list_some(names)}.")
    return sorted(names, key=lambda name: name != baseline)


def _list_cells(parts: Mapping[str, Sheet], names: Sequence[str]) -> list[results.Cell]:
    """Return the average of each algorithm on each data set, and over all of them where their units are one."""
    units = {(p.unit.factor, p.unit.higher_is_better, p.unit.is_share) for p in parts.values()}
    has_average = len(units) == 1 and next(iter(units))[2]
    cells = []
    for algorithm in names:
        row = []
        for name, part in parts.items():
            known = part.cell(results.AVERAGE, algorithm)
            cell = known or results.Cell(algorithm, "", None, None, 0)
            row.append(results.Cell(algorithm, name, cell.mean, cell.stderr, cell.trials, cell.diverged))
        cells += row
        if has_average:
            cells.append(_average(algorithm, row))
    return cells


def _average(algorithm: str, row: Sequence[results.Cell]) -> results.Cell:
    """Return the mean m_1, ..., m_K over K data sets, with the error  sqrt(se_1^2 + ... + se_K^2) / K."""
    means, errors = [c.mean for c in row if c.mean is not None], [c.stderr for c in row if c.stderr is not None]
    if len(means) < len(row):
        return results.Cell(algorithm, results.AVERAGE, None, None, 0)
    error = math.hypot(*errors) / len(row) if len(errors) == len(row) else None
    return results.Cell(algorithm, results.AVERAGE, fmean(means), error, min(c.trials for c in row))
