"""Scores by algorithm, domain and rule of choice with every domain held out in turn, and what they say of the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from seqdg.estimator.compare.leaderboard import make_leaderboard, rank_names, to_frame
from seqdg.results import (
    AVERAGE,
    CRITERIA,
    WORST,
    NextDomain,
    Outcome,
    PairedDifference,
    compare_pairs,
    predict_next_domain,
)

CHOSEN = "chosen"  # the choice among all candidates, in place of one of them
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
class HeldOutScores:
    """The scores of candidates with every domain held out in turn, in numbers."""

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
