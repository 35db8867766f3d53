"""A comparison within a time: candidates in order of promise, of which none takes the time of several cheaper ones, and
none is begun that cannot be finished."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, private
from seqdg.bench import (
    SHORT,
    ArrayLearner,
    Executor,
    InProcess,
    Learner,
    Progress,
    RowsInMemory,
    Search,
    Target,
    Trial,
    estimate_makespan,
    sort_longest_first,
    time_groups,
)
from seqdg.core import shorten, split_chain
from seqdg.data import Frame
from seqdg.estimator.compare.candidates import measure_work
from seqdg.estimator.compare.folds import Contender, Sweep
from seqdg.estimator.user_data import decide_types, read_domains
from seqdg.results import format_duration
from seqdg.training import make_stream

COMPARING = 0.6  # of the time; the rest is for fitting the winner on all rows
MOST_ROWS = 20_000  # that a comparison within a time is made on
LEAST_ROWS = 2  # of every class of every domain, where there are as many
MARGIN = 1.2  # by which an estimate may be too short
START = 5.0  # seconds that other processes take to start
MANY_ROWS = 2000  # from which on some are fitted before all are
PARTS = (16, 4)  # as many times fewer rows are fitted first: the two times tell how they grow
LEAST_POWER, MOST_POWER = 0.5, 3.0  # of the number of rows, with which they are taken to grow
CHEAP = 0.05  # of the time left: a fit that is expected to take no more is made to see how long it takes
NO_TIME = "no time was left"
QUICKEST = "agg"  # of the nets: others take as long, or longer
AVERAGES = ("ema", "sma", "swad")  # of one training, which are trained together
ORDER = (
    "ridge", "logistic", "agg", "hist-gradient-boosting", "fo-s-mldg", "coral", "random-forest", "extra-trees",
    "ffo-s-mldg", "svc", "knn",
)  # fmt: skip
POWER = {"svc": 2.0, "knn": 2.0}  # of the number of rows with which the time of a fit grows; others: 1.1
MOST_SECONDS = 60.0  # of one core, that a fit takes whose work is a learner's `most_work`
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

    def take_some(
        self, x: Any, y: NDArray[Any], domains: Any, sample_weight: Any, seed: int
    ) -> tuple[tuple[Any, NDArray[Any], Any, Any], list[str]]:
        """Return the rows, labels, domains and weights to compare on: all, or some of many, and a note on that."""
        x = decide_types(x)  # by all rows
        rows = draw_rows(y, read_domains(domains, len(y))[1], MOST_ROWS, seed) if len(x) == len(y) else None
        if rows is None:
            return (x, y, domains, sample_weight), []
        some = [None if v is None or np.ndim(v) == 0 else take_rows(v, rows) for v in (domains, sample_weight)]
        note = (
            f"The comparison was made on {len(rows)} of {len(y)} rows, drawn from every domain in proportion, to end "
            f"in {self.minutes:g} min; the winner is fitted on all."
        )
        return (take_rows(x, rows), y[rows], some[0], some[1]), [note]


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
    return values.take(rows) if isinstance(values, Frame) else private.take_rows(values, rows)


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


@dataclass(eq=False)
class Round:
    """Candidates that are trained alike, and how long that takes once it is known."""

    searches: Mapping[str, Search]
    is_net: bool
    timing: float  # seconds that it may take to find that out, by the size of the data; 0: not many
    needed: float | None = None
    is_rough: bool = False  # whether that is from a fit to some of the rows, or of a net that is no slower
    executor: Executor | None = None  # where it runs

    @property
    def names(self) -> list[str]:
        return list(self.searches)

    def explain(self) -> str:
        """Say why it is left out where it cannot be finished."""
        if self.needed is None:
            return f"a single fit takes {format_duration(self.timing)}, and less was left"
        return f"that takes {format_duration(self.needed)}, and less was left"


def run_within(
    budget: Budget,
    sweep: Sweep,
    learners: Mapping[str, Learner],
    searches: Mapping[str, Search],
    targets: Sequence[Target],
    rule: str,
    criterion: str,
    rows: int,
    say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, str]:
    """Run the searches round by round while there is time, and return why candidates were left out, by name.

    The first round always runs to its end, so that there is a model. What is begun after it and not done in time is cut
    at the next sign of life. rows: that the winner will be fitted to.   say: hears of each round how long it takes.
    """
    left_out: dict[str, str] = {}
    show, executor = sweep.show, sweep.executor

    def find_time(part: Round, exactly: bool = False) -> None:
        """Find out how long a round takes. exactly: by a whole fit, however long that is."""
        sweep.executor = InProcess()  # what is timed is short, and not worth the start of others
        try:
            costs = [] if exactly else _forecast(sweep, part.searches, targets, learners)
            part.is_rough = bool(costs) and costs[0] > CHEAP * budget.left
            if not part.is_rough:
                costs = _estimate(sweep, part.searches, targets, learners)
            seconds, part.executor = _choose_place(costs, executor)
        finally:
            sweep.executor = executor
        part.needed = MARGIN * seconds
        for other in waiting if QUICKEST in part.names else ():
            if other.is_net and other.needed is None:
                other.needed, other.executor, other.is_rough = part.needed, part.executor, True

    def run(part: Round) -> None:
        assert part.needed is not None
        assert part.executor is not None
        say(f"Trying {', '.join(part.names)}: {format_duration(part.needed)}.")
        sweep.executor = part.executor
        try:
            sweep.run(part.searches, targets, rule, criterion)
        finally:
            sweep.executor = executor

    first, *waiting = (
        Round({n: searches[n] for n in names}, learner.takes_steps, _forecast_timing(learner, sweep))
        for names in list_rounds(list(searches))
        for learner in [learners[names[0]]]
    )
    find_time(first, exactly=True)
    run(first)
    sweep.show = lambda progress: _watch(progress, budget, show)
    try:
        while waiting and budget.left > 0:
            part = choose_next(waiting, budget, find_time)
            if part.is_rough and part.needed is not None and part.needed <= budget.left:
                find_time(part, exactly=True)
                continue  # another may be shorter, now that it is known
            waiting.remove(part)
            try:
                if part.needed is None and part.timing <= budget.left:
                    find_time(part)
                if part.needed is None or part.needed > budget.left:
                    left_out |= dict.fromkeys(part.names, part.explain())
                    continue
                run(part)
            except OutOfTime:
                sweep.forget(part.names)
                left_out |= dict.fromkeys(part.names, "not done in time")
                continue
            left_out |= _list_slow(budget, sweep, part.searches, learners, rows)
    finally:
        sweep.show = show
    return left_out | {name: NO_TIME for part in waiting for name in part.names}


def choose_next(waiting: Sequence[Round], budget: Budget, find_time: Callable[[Round], None]) -> Round:
    """Choose the first round that needs no more than an equal share of the time left, or else the shortest.

    So none takes the time of several shorter ones. What may take more than a share only to find out is not timed here,
    nor a net while another waits: that one is `agg`, as a rule, and none is quicker.
    """
    for part in waiting:
        has_shorter = part.is_net and any(other.is_net and other.needed is not None for other in waiting)
        if part.needed is None and not has_shorter and part.timing <= budget.left / len(waiting):
            find_time(part)
        if part.needed is not None and part.needed <= budget.left / len(waiting):
            return part
    return min(waiting, key=lambda part: float("inf") if part.needed is None else part.needed)


def note_left_out(left_out: Mapping[str, str]) -> list[str]:
    """Say in sentences which candidates were left out and why; those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        by_reason.setdefault(why, []).append(name)
    return [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} left out: {why}."
        for why, names in by_reason.items()
    ]


def _watch(progress: Progress, budget: Budget, show: Callable[[Progress], None]) -> None:
    progress.limit = max(0.0, budget.left)
    show(progress)
    if budget.left < 0:
        raise OutOfTime


def _forecast_timing(learner: Learner, sweep: Sweep) -> float:
    """Return about how many seconds a single fit takes, where the learner says from which size of data on they are
    many; else 0."""
    most = learner.most_work if isinstance(learner, ArrayLearner) else None
    return 0.0 if most is None else MOST_SECONDS * measure_work(sweep.user_data.dataset) / most


def _estimate(
    sweep: Sweep, searches: Mapping[str, Search], targets: Sequence[Target], learners: Mapping[str, Learner]
) -> list[float]:
    """Estimate the seconds of each training of candidates that are trained alike: from some steps of a stack, or one
    fit of others. Empty where nothing is known."""
    asked = [(t, Contender(name, *search.first)) for t in targets for name, search in searches.items()]
    plan, first = sweep.plan(asked), next(iter(searches))
    repeats = max(search.total for search in searches.values())
    if learners[first].takes_steps:
        costs = time_groups(plan.missing, sweep.task, sweep.recipe.device)
        if len(costs) < len(plan.missing):
            return []
        return [costs[g.key] for g in sort_longest_first(plan.missing, costs)] * repeats
    trials, show = plan.groups[-1].trials, sweep.show  # which share a fit
    sweep.show = lambda progress: None  # one fit says nothing of how far the others are
    sweep.run_trials(trials)
    sweep.show = show
    seconds = sweep.sink.records[trials[0].key].seconds
    return [seconds] * (repeats * len(plan.missing) - 1)


def _forecast(
    sweep: Sweep, searches: Mapping[str, Search], targets: Sequence[Target], learners: Mapping[str, Learner]
) -> list[float]:
    """Forecast the seconds of each fit of a candidate from two to some of the rows. Empty where that is not worth it:
    for nets, of few rows, and where the learner says itself from which size of data on a fit is long."""
    (name, search), rows = next(iter(searches.items())), len(sweep.user_data.dataset.y)
    learner = learners[name]
    if not isinstance(learner, ArrayLearner) or learner.most_work is not None or rows < MANY_ROWS:
        return []
    plan = sweep.plan([(target, Contender(name, *search.first)) for target in targets])
    if not plan.missing:
        return []
    try:
        few, more = (_time_part(sweep, plan.missing[-1].trials[0], learner, rows // part) for part in PARTS)
    except Exception:  # so few rows may be too few; where all are, it happens again and is recorded
        return []
    power = math.log(more / few) / math.log(PARTS[0] / PARTS[1])
    seconds = more * PARTS[1] ** min(max(power, LEAST_POWER), MOST_POWER)
    return [seconds] * (search.total * len(plan.missing))


def _time_part(sweep: Sweep, trial: Trial, learner: ArrayLearner, count: int) -> float:
    """Return the seconds of a fit to so many rows, of every class of every domain in proportion."""
    data = sweep.user_data.dataset
    rows = draw_rows(data.y.numpy(), data.domain.numpy(), count, trial.seed)
    part = replace(
        data,
        x=data.x[rows],
        y=data.y[rows],
        domain=data.domain[rows],
        validation=None if data.validation is None else data.validation[rows],
        weight=None if data.weight is None else data.weight[rows],
    )
    return learner.train_one(trial, replace(sweep.task, rows=RowsInMemory(part)))[1].seconds


def _choose_place(costs: Sequence[float], executor: Executor) -> tuple[float, Executor]:
    """Choose where trainings of so many seconds run, this process or the executor, and return how long all take."""
    if isinstance(executor, InProcess) or (costs and sum(costs) < SHORT):
        return sum(costs), InProcess()
    return START + estimate_makespan(costs, executor.slots), executor


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
