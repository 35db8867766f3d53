"""The result of `compare`: scores by algorithm, domain and rule of choice, and what to expect on the next domain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from seqdg.base.words import count_things
from seqdg.estimator.leaderboard import make_leaderboard, rank_names, to_frame
from seqdg.estimator.rules import ORACLE, WITHIN_ERROR, split_rule
from seqdg.report.text import align_columns
from seqdg.results.criteria import CRITERIA, name_criterion
from seqdg.results.next_domain import NextDomain, predict_next_domain
from seqdg.results.select import Outcome
from seqdg.results.statistics import PairedDifference, compare_pairs
from seqdg.results.summary import AVERAGE, WORST

CHOSEN = "chosen"
Scores = dict[str, float | None]  # by domain, and AVERAGE and WORST


@dataclass(frozen=True)
class Winner:
    """The candidate that is fitted on all domains."""

    algorithm: str
    settings: Mapping[str, Any]
    lr: float | None = None  # None: that of the estimator
    stop: int | None = None  # the steps whose weights are kept; None: those that validate best


@dataclass(frozen=True)
class Reason:
    """How the best candidate compares with the simplest one by the rule's scores, more being better: by how much its
    mean is ahead, and the standard error of this over so many domains."""

    best: str
    simplest: str
    gap: float
    error: float
    domains: int
    is_told: bool


@dataclass(frozen=True)
class Comparison:
    """How algorithms did with every domain held out in turn.

    `print` it, or read `scores`, `expected`, `interval`, `metrics`, `warnings`, `estimator`.
    """

    domains: tuple[str, ...]
    algorithms: Mapping[str, int]  # names, with how many candidates each
    criterion: str
    select: str  # the rule by which the winner was chosen
    seeds: int
    winner: Winner
    outcomes: Mapping[str, Sequence[Outcome]]  # by rule, which chooses settings and step of each algorithm
    chosen: Mapping[str, Sequence[Outcome]]  # by rule, which chooses the algorithm too
    baseline: str | None
    notes: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)  # of each domain; of weighted ones, how many they are worth
    reason: Reason | None = None  # for the choice
    nested: bool = True  # whether what was chosen for a domain is chosen without anything that has seen it
    estimator: Any = field(default=None, compare=False)  # the winner, fitted on all domains

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(self.outcomes)

    def scores(self, rule: str | None = None, criterion: str | None = None) -> dict[str, Scores]:
        """Return the mean over seeds on every held-out domain, by algorithm; `chosen` is the choice among them all."""
        rule, criterion = rule or self.select, criterion or self.criterion
        by_name = {name: [o for o in self.outcomes[rule] if o.algorithm == name] for name in self.algorithms}
        rows = {name: self._average(outcomes, criterion) for name, outcomes in by_name.items() if outcomes}
        return {**rows, CHOSEN: self._average(self.chosen[rule], criterion)}

    def leaderboard(self) -> Any:
        """Return a row for each candidate, the best on held-out domains first: a frame of pandas, or a list of
        dictionaries where pandas is not installed. `make_leaderboard` says what the columns are."""
        scores = {name: row for name, row in self.scores().items() if name != CHOSEN}
        rows = make_leaderboard(scores, self.outcomes[self.select], self.criterion, self.winner.algorithm)
        return to_frame(rows)

    @property
    def order(self) -> list[str]:
        """The candidates as the leaderboard has them, then CHOSEN."""
        averages = {name: row[AVERAGE] for name, row in self.scores().items() if name != CHOSEN}
        return [*rank_names(averages, self.criterion), CHOSEN]

    def metrics(self) -> dict[str, dict[str, float | None]]:
        """Return every criterion of the choice, by domain (and AVERAGE, WORST) and criterion."""
        known = [c for c in CRITERIA if any(c in o.record.history[-1].held_out for o in self.chosen[self.select])]
        columns = {c: self.scores(criterion=c)[CHOSEN] for c in known}
        return {row: {c: columns[c][row] for c in known} for row in (*self.domains, AVERAGE, WORST)}

    @property
    def expected(self) -> float | None:
        """The mean over held-out domains of what the choice reaches on them."""
        return self.scores()[CHOSEN][AVERAGE]

    @property
    def next_domain(self) -> NextDomain | None:
        """What the scores of the choice on the known domains say of the next; None where none is known."""
        scores = self.scores()[CHOSEN]
        known = {d: v for d in self.domains if (v := scores[d]) is not None}
        if not known:
            return None
        return predict_next_domain(list(known.values()), [self.rows.get(d, 1) for d in known], self.criterion)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the next domain lies with a probability of 90 %, if it is drawn as the known ones were."""
        found = self.next_domain
        return None if found is None else (found.low, found.high)

    @property
    def paired(self) -> list[PairedDifference]:
        """Every algorithm against the baseline, trial by trial."""
        if self.baseline is None or len(self.algorithms) < 2:
            return []
        unit = CRITERIA[self.criterion]
        known = [replace(o, value=_keep_finite(o.value)) for o in self.outcomes[self.select]]
        return compare_pairs(known, self.baseline, unit.factor, unit.higher_is_better)

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the choice."""
        warnings, why = [], self.reason
        leans = split_rule(self.select)[1]
        if why is not None and not leans and why.best != why.simplest and not why.is_told:
            warnings.append(
                f"{why.best} was chosen, but it is not told from {why.simplest}, which is simpler "
                f"({self._format_gap()}): the rule {self.select}{WITHIN_ERROR} takes the simpler one."
            )
        lost = sum(o.value is None for o in self.chosen[self.select])
        if lost:
            warnings.append(f"All candidates diverged for {lost} of {len(self.chosen[self.select])} choices.")
        return warnings

    @property
    def sentence(self) -> str:
        """What to expect on the next domain."""
        unit, name = CRITERIA[self.criterion], name_criterion(self.criterion)
        if self.expected is None or self.interval is None:
            return f"Nothing can be said of the {name} on the next domain: training diverged."
        low, high = (f"{unit.factor * v:.{unit.digits}f}" for v in self.interval)
        return (
            f"Expected {name} on the next domain: {unit.factor * self.expected:.{unit.digits}f}{unit.sign} (90 % "
            f"interval {low} to {high}, from {len(self.domains)} domains, each held out in turn)."
        )

    @property
    def drivers(self) -> str:
        """What makes the interval as wide as it is, and what one more domain would do."""
        found = self.next_domain
        if found is None:
            return ""
        if found.differ is None:
            differ = (
                "Of one domain nothing is known of how domains differ: the interval is that of many other data sets."
            )
        else:
            differ = (
                f"The {len(found.known)} domains differ by {self._format_width(found.differ)} (standard deviation); if "
                f"they did not, the interval would be {self._format_width(found.rows_alone)} wide, by the number of "
                "rows alone."
            )
        now, then = self._format_width(found.width), self._format_width(found.narrower)
        if found.narrower >= 0.98 * found.width:
            return f"{differ} It is {now} wide; one more domain would hardly change that."
        return f"{differ} It is {now} wide; one more domain would narrow it to about {then}."

    @property
    def how(self) -> list[str]:
        """How the winner was chosen, in sentences."""
        rate = {} if self.winner.lr is None else {"lr": self.winner.lr}
        values = {**self.winner.settings, **rate}
        settings = ", ".join(f"{k} = {_format_setting(v)}" for k, v in values.items()) or "no settings"
        tried = sum(self.algorithms.values())
        rules = {
            "source-val": "by validation rows of the source domains",
            "leave-one-out": "by how well it served each domain after training on the others",
            "leave-one-out-stopped": "by how well it served each domain, after so many steps on the others",
            "both": "by validation rows of the source domains, and by how well it served each after training on others",
        }
        if tried == 1:
            return [f"{self.winner.algorithm} ({settings}) was given, not chosen; {count_things(self.seeds, 'seed')}."]
        anew = "without it" if self.nested else "by the scores on the others"
        return [
            f"{self.winner.algorithm} ({settings}) was chosen among {tried} candidates of {len(self.algorithms)} "
            f"algorithms {rules[split_rule(self.select)[0]]}; {count_things(self.seeds, 'seed')}.",
            *self._explain_choice(),
            f"The expectation is that of this choice as a whole, made anew for every held-out domain {anew}.",
        ]

    def _explain_choice(self) -> list[str]:
        """Say how the winner compares with the best and the simplest, where the rule leans to the simplest."""
        why = self.reason
        if why is None or not split_rule(self.select)[1]:
            return []
        if why.best == why.simplest:
            return [f"{why.best} is the simplest and scores best."]
        if self.winner.algorithm == why.best and why.is_told:
            return [f"It is told from {why.simplest}, the simplest: {self._format_gap()}."]
        if self.winner.algorithm == why.best:
            return [f"It is not told from {why.simplest}, the simplest, but not near either: {self._format_gap()}."]
        if self.winner.algorithm == why.simplest:
            return [f"{why.best} scores best, but is not told from {why.simplest}, the simplest: {self._format_gap()}."]
        return [f"{why.best} scores best, but {self.winner.algorithm} is simpler and is not told from it."]

    def _format_gap(self) -> str:
        unit, why = CRITERIA[self.criterion], self.reason
        assert why is not None
        gap = f"{unit.factor * why.gap + 0.0:.{unit.digits}f} {unit.points}".rstrip()
        over = f"over {count_things(why.domains, 'domain')}"
        if not math.isfinite(why.error):
            return f"ahead by {gap} {over}, too few for a standard error"
        return f"ahead by {gap} with a standard error of {unit.factor * why.error:.{unit.digits}f} {over}"

    def _format_width(self, value: float) -> str:
        unit = CRITERIA[self.criterion]
        return f"{unit.factor * value:.{unit.digits}f} {unit.points}".rstrip()

    def describe(self) -> dict[str, Any]:
        """Return what the model's card says, as JSON holds it."""
        return {
            "sentence": self.sentence,
            "drivers": self.drivers,
            "how": self.how,
            "criterion": self.criterion,
            "select": self.select,
            "expected": self.expected,
            "interval": None if self.interval is None else list(self.interval),
            "held_out": self.metrics(),
            "warnings": self.warnings,
        }

    def __str__(self) -> str:
        parts = [
            _draw_domains(self),
            _draw_rules(self),
            "\n".join([*self.how, self.sentence, self.drivers, *self.warnings]),
        ]
        return "\n\n".join([*parts, *(f"note: {note}" for note in self.notes)]) + "\n"

    def _average(self, outcomes: Sequence[Outcome], criterion: str) -> Scores:
        row: Scores = {}
        for domain in self.domains:
            values = [v for o in outcomes if o.held_out == domain and (v := _measure(o, criterion)) is not None]
            row[domain] = fmean(values) if values else None
        known = [v for v in row.values() if v is not None]
        worst = min if CRITERIA[criterion].higher_is_better else max
        return {**row, AVERAGE: fmean(known) if known else None, WORST: worst(known) if known else None}


def _measure(outcome: Outcome, criterion: str) -> float | None:
    """Return the criterion on the held-out domain at the chosen step; None if training diverged or it is not known."""
    if outcome.value is None:
        return None
    evaluation = next(e for e in outcome.record.history if e.step == outcome.step)
    return _keep_finite(evaluation.held_out[criterion][0])


def _keep_finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _format_setting(value: Any) -> str:
    """Format a setting, numbers to four digits."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_format_setting, value))})"
    return f"{value:.4g}" if isinstance(value, float) and value != round(value, 1) else str(value)


def _draw_domains(comparison: Comparison) -> str:
    unit, scores = CRITERIA[comparison.criterion], comparison.scores()
    columns = [*comparison.domains, AVERAGE, WORST]
    lines = [["algorithm", "candidates", *columns]]
    for name in comparison.order:
        row = scores[name]
        tried = str(sum(comparison.algorithms.values()) if name == CHOSEN else comparison.algorithms[name])
        lines.append([name, tried, *(_format_score(row[c], comparison.criterion) for c in columns)])
    over = f"mean over {count_things(comparison.seeds, 'seed')}, chosen by {comparison.select}"
    title = f"{unit.title} on each domain, held out in turn: {over}"
    return "\n".join([title, *align_columns(lines)])


def _draw_rules(comparison: Comparison) -> str:
    unit = CRITERIA[comparison.criterion]
    averages = {rule: comparison.scores(rule) for rule in comparison.rules}
    lines = [["algorithm", *(f"({rule})" if rule == ORACLE else rule for rule in comparison.rules)]]
    for name in comparison.order:
        cells = [
            _format_score(averages[rule].get(name, {}).get(AVERAGE), comparison.criterion) for rule in comparison.rules
        ]
        lines.append([name, *(f"({c})" if r == ORACLE else c for c, r in zip(cells, comparison.rules, strict=True))])
    title = f"{unit.title}, average over held-out domains, by rule of choice"
    note = "(oracle): chosen by the held-out domain itself. A bound on what choosing better could give, not a result."
    return "\n".join([title, *align_columns(lines), *([note] if ORACLE in comparison.rules else [])])


def _format_score(value: float | None, criterion: str) -> str:
    unit = CRITERIA[criterion]
    return "-" if value is None else f"{unit.factor * value:.{unit.digits}f}"
