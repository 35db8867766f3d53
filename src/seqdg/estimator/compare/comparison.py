"""The result of `compare`: every candidate's scores with every domain held out in turn, and in words what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from seqdg.base import count_things
from seqdg.estimator.compare.folds import ORACLE, WITHIN_ERROR, split_rule
from seqdg.report import align_columns
from seqdg.results import (
    AVERAGE,
    CRITERIA,
    WORST,
    NextDomain,
    Outcome,
    PairedDifference,
    Unit,
    average_finite,
    compare_pairs,
    find_unit,
    name_criterion,
    predict_next_domain,
)

CHOSEN = "chosen"  # the choice among all candidates, in place of one of them
Scores = dict[str, float | None]  # by domain, and AVERAGE and WORST
MEANINGS = {
    "source-val": "by validation rows of the source domains",
    "leave-one-out": "by how well it served each domain after training on the others",
    "leave-one-out-stopped": "by how well it served each domain, after so many steps on the others",
    "both": "by validation rows of the source domains, and by how well it served each after training on others",
}


@dataclass(frozen=True)
class Winner:
    """The candidate that is fitted on all domains."""

    algorithm: str
    settings: Mapping[str, Any]
    lr: float | None = None  # None: that of the estimator
    stop: int | None = None  # the steps whose weights are kept; None: those that validate best


@dataclass(frozen=True)
class Reason:
    """The best candidate beside the simplest one, by the rule's scores, of which more is better.

    gap: by how much the mean of the best is ahead.   error: the standard error of the gap, over so many domains.
    """

    best: str
    simplest: str
    gap: float
    error: float
    domains: int
    exceeds_error: bool  # whether the gap is larger than its standard error


@dataclass(frozen=True)
class Comparison:
    """The scores of algorithms with every domain held out in turn.

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
    reason: Reason  # for the choice
    notes: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)  # of each domain; of weighted ones, how many they are worth
    nested: bool = True  # whether what was chosen for a domain is chosen without anything that has seen it
    left_out: tuple[str, ...] = ()  # candidates that there was no time for
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

    def leaderboard(self) -> pd.DataFrame:
        """Return a row for each candidate, the best on held-out domains first.

        held_out, worst: the mean and the worst score on held-out domains.   stderr: the standard error of the mean,
        over the domains.   source_val: the mean score on validation rows of the sources.   fit_seconds: of one training
        with a domain held out, evaluations included; trainings of a stack share its time.   predict_seconds: for 1,000
        rows.
        """
        rows: list[dict[str, Any]] = []
        scores = self.scores()
        for name in self.order[:-1]:
            known = [v for d in self.domains if (v := scores[name][d]) is not None]
            its = [o for o in self.outcomes[self.select] if o.algorithm == name and o.value is not None]
            rows.append(
                {
                    "rank": len(rows) + 1,
                    "candidate": name,
                    "held_out": scores[name][AVERAGE],
                    "worst": scores[name][WORST],
                    "stderr": stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None,
                    "source_val": _average([average_finite(_find_step(o).source[self.criterion]) for o in its]),
                    "fit_seconds": _average([o.record.seconds for o in its]),
                    "predict_seconds": _average([o.record.serving for o in its if o.record.serving]),
                    "chosen": name == self.winner.algorithm,
                }
            )
        return pd.DataFrame(rows)

    @property
    def order(self) -> list[str]:
        """The candidates by their average on held-out domains, the best first and those that have none last, then
        CHOSEN."""
        sign = -1 if self._unit.higher_is_better else 1
        averages = {name: row[AVERAGE] for name, row in self.scores().items() if name != CHOSEN}
        ranks = {name: math.inf if value is None else round(sign * value, 9) for name, value in averages.items()}
        return [*sorted(ranks, key=ranks.__getitem__), CHOSEN]

    def metrics(self) -> dict[str, Scores]:
        """Return every criterion of the choice, by domain (and AVERAGE, WORST) and criterion."""
        known = [c for c in CRITERIA if any(c in o.record.history[-1].held_out for o in self.chosen[self.select])]
        columns = {c: self.scores(criterion=c)[CHOSEN] for c in known}
        return {row: {c: columns[c][row] for c in known} for row in (*self.domains, AVERAGE, WORST)}

    @property
    def expected(self) -> float | None:
        """The mean score of the choice over held-out domains."""
        return self.scores()[CHOSEN][AVERAGE]

    @property
    def next_domain(self) -> NextDomain | None:
        """The estimate for the next domain, from the scores of the choice on known ones; None where there are none."""
        scores = self.scores()[CHOSEN]
        known = {d: v for d in self.domains if (v := scores[d]) is not None}
        if not known:
            return None
        return predict_next_domain(list(known.values()), [self.rows.get(d, 1) for d in known], self.criterion)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval for the next domain, with a probability of 90 % if it is drawn as the known ones were."""
        ahead = self.next_domain
        return None if ahead is None else (ahead.low, ahead.high)

    @property
    def paired(self) -> list[PairedDifference]:
        """Every algorithm against the baseline, trial by trial."""
        if self.baseline is None or len(self.algorithms) < 2:
            return []
        unit = CRITERIA[self.criterion]
        known = [replace(o, value=_keep_finite(o.value)) for o in self.outcomes[self.select]]
        return compare_pairs(known, self.baseline, unit.factor, unit.higher_is_better)

    @property
    def sentence(self) -> str:
        """The sentence on what to expect on the next domain."""
        ahead, unit, name = self.next_domain, self._unit, name_criterion(self.criterion)
        if self.expected is None or ahead is None:
            return f"Nothing can be said of the {name} on the next domain: training diverged."
        return (
            f"Expected {name} on the next domain: {_format(self.expected, unit)}{unit.sign} (90 % interval "
            f"{_format(ahead.low, unit)} to {_format(ahead.high, unit)}, from {len(ahead.known)} domains, each held "
            "out in turn)."
        )

    @property
    def drivers(self) -> str:
        """The sentences on what makes the interval wide, and what one more domain would do."""
        ahead = self.next_domain
        if ahead is None:
            return ""
        if ahead.differ is None:
            differ = (
                "Of one domain nothing is known of how domains differ: the interval is that of many other data sets."
            )
        else:
            differ = (
                f"The {len(ahead.known)} domains differ by {self._format_points(ahead.differ)} (standard deviation); "
                f"if they did not, the interval would be {self._format_points(ahead.rows_alone)} wide, by the number "
                "of rows alone."
            )
        more = f"narrow it to about {self._format_points(ahead.narrower)}"
        if ahead.narrower >= 0.98 * ahead.width:
            more = "hardly change that"
        return f"{differ} It is {self._format_points(ahead.width)} wide; one more domain would {more}."

    @property
    def how(self) -> list[str]:
        """The sentences on how the winner was chosen."""
        winner, seeds = self.winner, count_things(self.seeds, "seed")
        values = {**winner.settings, **({} if winner.lr is None else {"lr": winner.lr})}
        settings = ", ".join(f"{k} = {_format_setting(v)}" for k, v in values.items()) or "no settings"
        if self._tried == 1:
            alone = "was the only candidate that there was time for" if self.left_out else "was given, not chosen"
            return [f"{winner.algorithm} ({settings}) {alone}; {seeds}."]
        anew = "without it" if self.nested else "by the scores on the others"
        return [
            f"{winner.algorithm} ({settings}) was chosen among {self._tried} candidates of {len(self.algorithms)} "
            f"algorithms {MEANINGS[split_rule(self.select)[0]]}; {seeds}.",
            *self._explain_choice(),
            f"The expectation is that of this choice as a whole, made anew for every held-out domain {anew}.",
        ]

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the choice."""
        warnings, why = [], self.reason
        if not split_rule(self.select)[1] and why.best != why.simplest and not why.exceeds_error:
            warnings.append(
                f"{why.best} was chosen, but its lead over {why.simplest}, which is simpler, may be chance "
                f"({self._format_gap()}): the rule {self.select}{WITHIN_ERROR} takes the simpler one."
            )
        choices = self.chosen[self.select]
        lost = sum(o.value is None for o in choices)
        if lost:
            warnings.append(f"All candidates diverged for {lost} of {len(choices)} choices.")
        return warnings

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
        """Draw the tables of scores, with the sentences and notes below."""
        tables = [self._draw_domains(), *([self._draw_rules()] if self._tried > 1 else [])]  # one is alike by all rules
        sentences = [*self.how, self.sentence, self.drivers, *self.warnings]
        notes = [f"note: {note}" for note in self.notes]
        return "\n\n".join("\n".join(part) for part in (*tables, sentences, notes) if part) + "\n"

    @property
    def _tried(self) -> int:
        return sum(self.algorithms.values())

    @property
    def _unit(self) -> Unit:
        if not CRITERIA[self.criterion].has_size:
            return CRITERIA[self.criterion]
        return find_unit(self.criterion, [scores[AVERAGE] for scores in self.scores().values()])

    def _average(self, outcomes: Sequence[Outcome], criterion: str) -> Scores:
        row: Scores = {}
        for domain in self.domains:
            its = [o for o in outcomes if o.held_out == domain and o.value is not None]
            row[domain] = _average([_find_step(o).held_out[criterion][0] for o in its])
        known = [v for v in row.values() if v is not None]
        worst = min if CRITERIA[criterion].higher_is_better else max
        return {**row, AVERAGE: fmean(known) if known else None, WORST: worst(known) if known else None}

    def _explain_choice(self) -> list[str]:
        """Say how the winner compares with the best and the simplest, where the rule leans to the simplest."""
        why, winner = self.reason, self.winner.algorithm
        if not split_rule(self.select)[1]:
            return []
        if why.best == why.simplest:
            return [f"{why.best} is the simplest and scores best by this rule."]
        gap = self._format_gap()
        if winner == why.best and why.exceeds_error:
            return [f"Its lead over {why.simplest}, the simplest, is larger than its standard error: {gap}."]
        if winner == why.best:
            return [f"Its lead over {why.simplest}, the simplest, may be chance, but is too large to give up: {gap}."]
        if winner == why.simplest:
            lead = f"its lead over {why.simplest}, the simplest, may be chance"
            return [f"{why.best} scores best by this rule, but {lead}: {gap}."]
        return [f"{why.best} scores best by this rule, but its lead over {winner}, which is simpler, may be chance."]

    def _format_gap(self) -> str:
        unit, why = self._unit, self.reason
        unit = replace(
            unit, digits=unit.digits + 1
        )  # so that a gap that is just above its error does not look the same
        gap = f"{_format(why.gap + 0.0, unit)} {unit.points}".rstrip()
        over = f"over {count_things(why.domains, 'domain')}"
        if not math.isfinite(why.error):
            return f"{gap} {over}, too few for a standard error"
        return f"{gap} with a standard error of {_format(why.error, unit)} {over}"

    def _format_points(self, value: float) -> str:
        return f"{_format(value, self._unit)} {self._unit.points}".rstrip()

    def _draw_domains(self) -> list[str]:
        unit, scores, columns = self._unit, self.scores(), [*self.domains, AVERAGE, WORST]
        lines = [["algorithm", "candidates", *columns]]
        for name in self.order if self._tried > 1 else self.order[:-1]:
            count = self._tried if name == CHOSEN else self.algorithms[name]
            lines.append([name, str(count), *(_format(scores[name][c], unit) for c in columns)])
        over = f"mean over {count_things(self.seeds, 'seed')}, chosen by {self.select}"
        return [f"{unit.title} on each domain, held out in turn: {over}", *align_columns(lines)]

    def _draw_rules(self) -> list[str]:
        unit, averages = self._unit, {rule: self.scores(rule) for rule in self.rules}
        lines = [["algorithm", *(f"({rule})" if rule == ORACLE else rule for rule in self.rules)]]
        for name in self.order:
            cells = {rule: _format(averages[rule].get(name, {}).get(AVERAGE), unit) for rule in self.rules}
            lines.append([name, *(f"({cell})" if rule == ORACLE else cell for rule, cell in cells.items())])
        title = f"{unit.title}, average over held-out domains, by rule of choice"
        note = (
            "(oracle): chosen by the held-out domain itself. A bound on what choosing better could give, not a result."
        )
        return [title, *align_columns(lines), *([note] if ORACLE in self.rules else [])]


def _find_step(outcome: Outcome) -> Any:
    """Return the evaluation at the chosen step."""
    return next(e for e in outcome.record.history if e.step == outcome.step)


def _average(values: Sequence[float]) -> float | None:
    finite = [v for v in values if math.isfinite(v)]
    return fmean(finite) if finite else None


def _keep_finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _format(value: float | None, unit: Unit) -> str:
    return "-" if value is None else f"{unit.factor * value:.{unit.digits}f}"


def _format_setting(value: Any) -> str:
    """Format a setting, numbers to four digits."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_format_setting, value))})"
    if isinstance(value, float) and value != round(value, 1):
        return f"{value:.4g}"
    return value if isinstance(value, str) else repr(value)
