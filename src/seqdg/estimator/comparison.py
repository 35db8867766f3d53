"""The result of `compare`: scores by algorithm, domain and rule of choice, and what to expect on the next domain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from seqdg.base.words import count_things
from seqdg.report.text import align_columns
from seqdg.results.criteria import CRITERIA
from seqdg.results.select import Outcome
from seqdg.results.statistics import PairedDifference, compare_pairs, format_p
from seqdg.results.summary import AVERAGE, WORST

CHOSEN, ORACLE = "chosen", "oracle"
LEVEL = 0.95
Scores = dict[str, float | None]  # by domain, and AVERAGE and WORST


@dataclass(frozen=True)
class Winner:
    """The candidate that is fitted on all domains."""

    algorithm: str
    settings: Mapping[str, Any]
    step: int | None  # whose weights are kept; None: the step that validates best
    lr: float | None = None  # None: that of the estimator


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
    def interval(self) -> tuple[float, float] | None:
        """Where the next domain lies with a probability of 95 %, if domains are drawn from a normal distribution."""
        values = [v for d in self.domains if (v := self.scores()[CHOSEN][d]) is not None]
        if len(values) < 2:
            return None
        low, high = predict_interval(values)
        return max(0.0, low), high if self.criterion == "log_loss" else min(1.0, high)

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
        reasons, tested = [], self.paired
        better = [p for p in tested if p.distinguishable and ((p.difference or 0.0) > 0) == p.higher]
        if tested and not better:
            sign = 1 if CRITERIA[self.criterion].higher_is_better else -1
            best = max(tested, key=lambda p: -math.inf if p.difference is None else sign * p.difference)
            gap = (
                ""
                if best.difference is None
                else f" (the most is {best.algorithm}: {_format_gap(best, self.criterion)})"
            )
            reasons.append(
                f"No algorithm is distinguishably better than {self.baseline} on these domains{gap}: "
                f"{self.baseline} is as good a choice, and simpler."
            )
        lost = sum(o.value is None for o in self.chosen[self.select])
        if lost:
            reasons.append(f"All candidates diverged for {lost} of {len(self.chosen[self.select])} choices.")
        return reasons

    @property
    def sentence(self) -> str:
        """What to expect on the next domain."""
        unit, name = CRITERIA[self.criterion], self.criterion.replace("_", " ").replace("auroc", "AUROC")
        if self.expected is None:
            return f"Nothing can be said of the {name} on the next domain: training diverged."
        percent = " %" if unit.factor == 100 else ""
        text = f"Expected {name} on the next domain: {unit.factor * self.expected:.{unit.digits}f}{percent}"
        if self.interval is None:
            return f"{text} (from one domain, so nothing is known of how domains differ)."
        low, high = (f"{unit.factor * v:.{unit.digits}f}" for v in self.interval)
        return f"{text} (95 % interval {low} to {high}, from {len(self.domains)} domains, each held out in turn)."

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
        }
        if tried == 1:
            return [f"{self.winner.algorithm} ({settings}) was given, not chosen; {count_things(self.seeds, 'seed')}."]
        return [
            f"{self.winner.algorithm} ({settings}) was chosen among {tried} candidates of {len(self.algorithms)} "
            f"algorithms {rules[self.select]}; {count_things(self.seeds, 'seed')}.",
            "The expectation is that of this choice as a whole, made anew for every held-out domain without it.",
        ]

    def describe(self) -> dict[str, Any]:
        """Return what the model's card says, as JSON holds it."""
        return {
            "sentence": self.sentence,
            "how": self.how,
            "criterion": self.criterion,
            "select": self.select,
            "expected": self.expected,
            "interval": None if self.interval is None else list(self.interval),
            "held_out": self.metrics(),
            "warnings": self.warnings,
        }

    def __str__(self) -> str:
        parts = [_draw_domains(self), _draw_rules(self), "\n".join([*self.how, self.sentence, *self.warnings])]
        return "\n\n".join([*parts, *(f"note: {note}" for note in self.notes)]) + "\n"

    def _average(self, outcomes: Sequence[Outcome], criterion: str) -> Scores:
        row: Scores = {}
        for domain in self.domains:
            values = [v for o in outcomes if o.held_out == domain and (v := _measure(o, criterion)) is not None]
            row[domain] = fmean(values) if values else None
        known = [v for v in row.values() if v is not None]
        worst = min if CRITERIA[criterion].higher_is_better else max
        return {**row, AVERAGE: fmean(known) if known else None, WORST: worst(known) if known else None}


def predict_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of one more value with a probability of LEVEL, if all come from one normal distribution whose
    mean and deviation are known from these n values alone:  mean +- t(n - 1) * deviation * sqrt(1 + 1 / n)."""
    n = len(values)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(values) * math.sqrt(1 + 1 / n)
    return fmean(values) - reach, fmean(values) + reach


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


def _format_gap(best: PairedDifference, criterion: str) -> str:
    unit = CRITERIA[criterion]
    assert best.difference is not None
    p = f", {format_p(best.p_holm)}" if best.p_holm is not None else ""
    gap = round(best.difference, unit.digits) + 0.0  # turns -0.0 into 0.0
    return f"{gap:+.{unit.digits}f} {unit.points}".rstrip() + f" over {best.pairs} pairs{p}"


def _draw_domains(comparison: Comparison) -> str:
    unit, scores = CRITERIA[comparison.criterion], comparison.scores()
    columns = [*comparison.domains, AVERAGE, WORST]
    lines = [["algorithm", "candidates", *columns]]
    for name, row in scores.items():
        tried = str(sum(comparison.algorithms.values()) if name == CHOSEN else comparison.algorithms[name])
        lines.append([name, tried, *(_format_score(row[c], comparison.criterion) for c in columns)])
    over = f"mean over {count_things(comparison.seeds, 'seed')}, chosen by {comparison.select}"
    title = f"{unit.title} on each domain, held out in turn: {over}"
    return "\n".join([title, *align_columns(lines)])


def _draw_rules(comparison: Comparison) -> str:
    unit = CRITERIA[comparison.criterion]
    averages = {rule: comparison.scores(rule) for rule in comparison.rules}
    lines = [["algorithm", *(f"({rule})" if rule == ORACLE else rule for rule in comparison.rules)]]
    for name in (*comparison.algorithms, CHOSEN):
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
