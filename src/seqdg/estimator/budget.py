"""A comparison within a time: candidates in order of promise and cost, and none is begun that cannot be finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from seqdg.base.errors import UsageError
from seqdg.bench.contract import Learner
from seqdg.bench.cost import estimate_makespan, sort_longest_first, time_groups
from seqdg.bench.executors.local import InProcess
from seqdg.bench.executors.session import Session
from seqdg.bench.progress import Progress
from seqdg.bench.search import Search, Target
from seqdg.core.names import shorten, split_chain
from seqdg.data import Frame
from seqdg.estimator.sweep import Contender, Sweep
from seqdg.results.status import format_duration
from seqdg.training.sampler import make_stream

COMPARING = 0.6  # of the time; the rest is for fitting the winner on all rows
MOST_ROWS = 20_000  # that a comparison within a time is made on
LEAST_ROWS = 2  # of every class of every domain, where there are as many
MARGIN = 1.2  # by which an estimate may be too short
AVERAGES = ("ema", "sma", "swad")  # of one training, which are trained together
ORDER = (
    "ridge", "logistic", "agg", "hist-gradient-boosting", "fo-s-mldg", "coral", "random-forest", "extra-trees",
    "ffo-s-mldg", "svc", "knn",
)  # fmt: skip
POWER = {"svc": 2.0, "knn": 2.0}  # of the number of rows with which the time of a fit grows; others: 1.1
Rows = NDArray[np.int64]


class OutOfTime(BaseException):
    """Training goes on past the time of a comparison. No learner catches it, as it is no mistake of the learner's."""


@dataclass
class Budget:
    """So many minutes from now on."""

    minutes: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.minutes < float("inf"):
            raise UsageError(f"minutes is {self.minutes}, but it must be a positive number.")
        self.began = self.clock()

    @property
    def left(self) -> float:
        """Seconds left to compare in."""
        return self.began + COMPARING * 60 * self.minutes - self.clock()

    @property
    def reserve(self) -> float:
        """Seconds that are kept for fitting the winner on all rows."""
        return (1 - COMPARING) * 60 * self.minutes


def draw_rows(y: NDArray[Any], domain: Rows, most: int, seed: int) -> Rows | None:
    """Draw about `most` rows, of every class of every domain in proportion, in order; None where there are no more.

    y: (row,) classes, or numbers, which are not looked at.
    """
    if len(y) <= most:
        return None
    kinds = np.unique(y, return_inverse=True)[1] if y.dtype.kind != "f" else np.zeros(len(y), dtype=np.int64)
    strata = domain * (int(kinds.max()) + 1) + kinds
    order = make_stream(seed, "rows to compare on").permutation(len(y))
    order = order[np.argsort(strata[order], kind="stable")]
    first = np.flatnonzero(np.r_[True, np.diff(strata[order]) != 0])
    counts = np.diff(np.r_[first, len(y)])
    wanted = np.minimum(counts, np.maximum(LEAST_ROWS, np.round(counts * most / len(y)).astype(np.int64)))
    return np.sort(np.concatenate([order[f : f + w] for f, w in zip(first, wanted, strict=True)]))


def take_rows(values: Any, rows: Rows) -> Any:
    """Return these rows of a table, an array or a list."""
    return values.take(rows) if isinstance(values, Frame) else _safe_indexing(values, rows)


def list_rounds(names: Sequence[str]) -> list[list[str]]:
    """List candidates in order of promise and cost, those that share a training together."""
    rounds: dict[str, list[str]] = {}
    for name in names:
        parts = split_chain(name)
        base = "+".join(parts[:-1] if len(parts) > 1 and parts[-1] in AVERAGES else parts)
        rounds.setdefault(base, []).append(name)

    def rank(base: str) -> int:
        first = shorten(split_chain(base)[0])
        return ORDER.index(first) if first in ORDER else len(ORDER)

    return [rounds[base] for base in sorted(rounds, key=rank)]


def run_within(
    budget: Budget,
    sweep: Sweep,
    learners: Mapping[str, Learner],
    searches: Mapping[str, Search],
    targets: Sequence[Target],
    rule: str,
    criterion: str,
    rows: int,
    baseline: str | None = None,
) -> dict[str, str]:
    """Run the searches round by round while there is time, and return why candidates were left out, by name.

    The first round and the baseline always run, so that there is a model. rows: that the winner will be fitted to.
    """
    left_out: dict[str, str] = {}
    show, rounds = sweep.show, list_rounds(list(searches))
    for names in rounds:
        always = names is rounds[0] or baseline in names
        part = {name: searches[name] for name in names}
        if not always and budget.left <= 0:
            left_out |= dict.fromkeys(names, "no time was left")
            continue
        try:
            if not always:
                sweep.show = lambda progress: _watch(progress, budget, show)
                needed = MARGIN * _estimate(sweep, part, targets, learners)
                if needed > budget.left:
                    took = format_duration(needed)
                    left_out |= dict.fromkeys(names, f"it takes {took}, and less is left")
                    continue
            sweep.run(part, targets, rule, criterion)
        except OutOfTime:
            sweep.forget(names)
            left_out |= dict.fromkeys(names, "it was not done in time")
            continue
        finally:
            sweep.show = show
        if not always:
            left_out |= _list_slow(budget, sweep, part, learners, rows)
    return left_out


def _watch(progress: Progress, budget: Budget, show: Callable[[Progress], None]) -> None:
    show(progress)
    if budget.left < 0:
        raise OutOfTime


def _estimate(
    sweep: Sweep, searches: Mapping[str, Search], targets: Sequence[Target], learners: Mapping[str, Learner]
) -> float:
    """Estimate the seconds that candidates of one training take: from some steps of a stack, or one fit of others."""
    asked = [(t, Contender(name, *search.first)) for t in targets for name, search in searches.items()]
    plan, first = sweep.plan(asked), next(iter(searches))
    repeats = max(search.total for search in searches.values())
    if learners[first].takes_steps:
        costs = time_groups(plan.missing, Session(sweep.task, sweep.recipe.device))
        if len(costs) < len(plan.missing):
            return 0.0  # nothing is known
        ordered = [costs[g.key] for g in sort_longest_first(plan.missing, costs)]
        return repeats * estimate_makespan(ordered, sweep.executor.slots)
    trials, executor = plan.groups[-1].trials, sweep.executor
    sweep.executor = InProcess()  # one fit is not worth the start of others
    try:
        sweep.run_trials(trials[:1])
    finally:
        sweep.executor = executor
    seconds = sweep.memory.records[trials[0].key].seconds
    return repeats * estimate_makespan([seconds] * (len(plan.missing) - 1), sweep.executor.slots)


def _list_slow(
    budget: Budget, sweep: Sweep, searches: Mapping[str, Search], learners: Mapping[str, Learner], rows: int
) -> dict[str, str]:
    """List candidates that could not be fitted to all rows in the time that is kept for it."""
    slow = {}
    growth = rows / len(sweep.user_data.dataset.y)
    for name, search in searches.items():
        seconds = fmean(r.seconds for r in sweep.list_records((), Contender(name, *search.first)))
        if learners[name].takes_steps:
            continue  # as many steps, whatever the rows
        needed = MARGIN * seconds * growth ** POWER.get(shorten(name), 1.1)
        if growth > 1 and needed > budget.reserve:
            slow[name] = f"fitting it to all {rows} rows takes {format_duration(needed)}"
    return slow
