"""A comparison within a time: cheap candidates first, none begun after the limit, and what runs over is cut."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.bench import Learner, Progress, Search, Target
from seqdg.core import Averaging, shorten, split_chain
from seqdg.estimator.compare.folds import Contender, Sweep
from seqdg.estimator.user_data import UserData
from seqdg.results import format_duration
from seqdg.training import make_stream

COMPARING = 0.6  # of the time; the rest is for fitting the winner on all rows
MOST_ROWS = 20_000  # that a comparison within a time is made on
LEAST_ROWS = 2  # of every class of every domain, where there are as many
AGAIN = 1.0  # seconds from one signal to the next, once the time is over
MARGIN = 1.2  # by which a fit to more rows may take longer than in proportion
Rows = NDArray[np.int64]


class OutOfTime(BaseException):
    """The time of a comparison is over. No learner catches it, as it is no mistake of the learner's."""


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


def draw_rows(user_data: UserData, most: int, seed: int) -> Rows | None:
    """Draw about `most` rows, of every class of every domain in proportion, in order; None where there are no more."""
    data = user_data.dataset
    y, domain = data.y.numpy(), data.domain.numpy()
    if len(y) <= most:
        return None
    strata = domain if data.is_regression else domain * len(data.classes) + y
    order = make_stream(seed, "rows to compare on").permutation(len(y))
    order = order[np.argsort(strata[order], kind="stable")]
    first = np.flatnonzero(np.r_[True, np.diff(strata[order]) != 0])
    counts = np.diff(np.r_[first, len(y)])
    wanted = np.minimum(counts, np.maximum(LEAST_ROWS, np.round(counts * most / len(y)).astype(np.int64)))
    return np.sort(np.concatenate([order[f : f + w] for f, w in zip(first, wanted, strict=True)]))


def list_rounds(learners: Mapping[str, Learner]) -> list[list[str]]:
    """List candidates from the cheapest on, those that share a training together."""
    rounds: dict[str, list[str]] = {}
    for name, learner in learners.items():
        settings = learner.build_settings(name)
        rounds.setdefault("+".join(split_chain(name)[:-1]) if isinstance(settings, Averaging) else name, []).append(
            name
        )
    return sorted(rounds.values(), key=lambda names: min(learners[n].rank_cost(shorten(n)) for n in names))


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
    """Run the searches, the cheapest first, until the time is over; return why candidates were left out, by name.

    The first always runs to its end, so that there is a model. rows: that the winner will be fitted to.
    say: hears in which order they are tried.
    """
    rounds, show, begun, stopped = list_rounds(learners), sweep.show, set[str](), False
    first, order = rounds[0], [name for names in rounds for name in names]

    def stop_when_over(*signal_and_frame: Any) -> None:
        nonlocal stopped
        if not stopped and budget.left < 0 and sweep.is_done(first):
            stopped = True
            raise OutOfTime

    def watch(progress: Progress) -> None:
        begun.update(group.algorithm for group in progress.list_running())
        progress.limit = max(0.0, budget.left)
        show(progress)
        stop_when_over()

    say(f"Trying, the cheapest first: {', '.join(order)}.")
    sweep.show, sweep.order = watch, order
    with suppress(OutOfTime), _call_at_end(budget, stop_when_over):
        sweep.run({name: searches[name] for name in order}, targets, rule, criterion)
    sweep.show = show
    left_out: dict[str, str] = {}
    for names in rounds:
        why = "no time was left" if begun.isdisjoint(names) else "not done in time"
        left_out |= dict.fromkeys([name for name in names if not sweep.is_done([name])], why)
    others = {n: search for n, search in searches.items() if n not in first and n not in left_out}
    return left_out | _list_slow(budget, sweep, others, learners, rows)


@contextmanager
def _call_at_end(budget: Budget, stop: Callable[..., None]) -> Iterator[None]:
    """Call `stop` when the time is over, and then again and again, whatever this thread waits for.

    A signal does so, which only the main thread can take, and Windows has none: there `stop` is called at the next sign
    of life of a training alone.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(budget.left, 0.001), AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _list_slow(
    budget: Budget, sweep: Sweep, searches: Mapping[str, Search], learners: Mapping[str, Learner], rows: int
) -> dict[str, str]:
    """List candidates that could not be fitted to all rows in the time that is kept for it."""
    growth, slow = rows / len(sweep.user_data.dataset.y), {}
    for name, search in searches.items():
        if growth > 1 and not learners[name].takes_steps:  # else there are as many steps, whatever the rows
            records = sweep.list_records((), Contender(name, *search.first))
            needed = MARGIN * growth * fmean(record.seconds for record in records)
            if needed > budget.reserve:
                slow[name] = f"fitting it to all {rows} rows takes {format_duration(needed)}"
    return slow


def note_left_out(left_out: Mapping[str, str]) -> list[str]:
    """Say in sentences which candidates were left out and why; those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        by_reason.setdefault(why, []).append(name)
    return [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} left out: {why}."
        for why, names in by_reason.items()
    ]
