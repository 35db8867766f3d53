"""Run the missing groups of a plan, and hand the records of each to a sink as soon as it ends."""

from __future__ import annotations

import heapq
import time
import traceback
import warnings
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch

from seqdg.base import (
    Folder,
    UsageError,
    adopt_checkouts,
    heed_interrupts_once,
    prepare_process,
    show_share,
)
from seqdg.bench.learners.stack_learner import find_learner_of
from seqdg.bench.planning import Plan, count_work
from seqdg.bench.task import Group, Session
from seqdg.results import FAILED, Record, RunningGroup, RunProgress, estimate_seconds_left
from seqdg.training import FOLDER, Saving, list_versions, name_checkpoint, name_device, read_header

OnGroupStep = Callable[[Group, int], None]  # called with a group and how many steps it has taken; 0: it begins
FinishedGroups = Generator[tuple[Group, list[Record]], None, None]


class Executor(Protocol):
    """Begins groups in their order, `slots` at a time, and yields each with its records as it finishes."""

    @property
    def slots(self) -> int: ...

    def __call__(self, groups: Sequence[Group], session: Session, on_step: OnGroupStep) -> FinishedGroups: ...


def train_group(group: Group, session: Session, on_step: Callable[[int], None]) -> list[Record]:
    """Train a group; where that fails, return a record of the failure for each of its trials.

    A group that the device's memory cannot hold is run in halves.
    """
    prepare_process()
    adopt_checkouts(session.checkouts)
    try:
        return find_learner_of(group.trials[0]).train(group, session, on_step)
    except torch.OutOfMemoryError:
        if len(group.trainings) == 1:
            return record_failure(group, session, traceback.format_exc())
    except Exception:
        return record_failure(group, session, traceback.format_exc())
    torch.cuda.empty_cache()
    middle = len(group.trainings) // 2
    halves = (group.trainings[:middle], group.trainings[middle:])
    groups = [replace(group, trials=tuple(trial for one in half for trial in one)) for half in halves]
    return [record for half in groups for record in train_group(half, session, on_step)]


def record_failure(group: Group, session: Session, error: str) -> list[Record]:
    """Make a record of the failure for each trial of a group."""
    device = name_device(torch.device(session.device))
    return [
        Record(
            t.key,
            t.description(),
            FAILED,
            error=error,
            versions=list_versions(),
            device=device,
            stacked=len(group.trainings),
        )
        for t in group.trials
    ]


@dataclass(frozen=True)
class InProcess:
    """An executor that trains in this process."""

    slots: int = 1

    def __call__(self, groups: Sequence[Group], session: Session, on_step: OnGroupStep) -> FinishedGroups:
        threads = torch.get_num_threads()
        try:
            for group in groups:
                on_step(group, 0)
                yield group, train_group(group, session, partial(on_step, group))
        finally:
            torch.set_num_threads(threads)


NOTED = 5.0  # seconds between notes in the sink of how far a run is


class Sink(Protocol):
    """Where records go: to a store on disk, or to memory."""

    def begin(self, planned: Mapping[str, str]) -> None:
        """Begin a run of these trials, each with its group."""

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        """Note how far the run is."""

    def add(self, records: Iterable[Record], group: str = "") -> None:
        """Take the records of a group: all or none."""


class MemorySink:
    """A sink that keeps records in memory. A trial that fails ends the run with its error."""

    saving = Saving()  # nothing but records

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}  # by key of the trial

    def begin(self, planned: Mapping[str, str]) -> None:
        """Ignore the plan."""

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        """Ignore how far the run is."""

    def add(self, records: Iterable[Record], group: str = "") -> None:
        for record in records:
            if record.status == FAILED:
                raise TrainingFailed(record)
            self.records[record.key] = record

    def close(self) -> None:
        """Do nothing: no file is open."""


class TrainingFailed(RuntimeError):
    """A trial could not be trained: the traceback is in its record."""

    def __init__(self, record: Record) -> None:
        super().__init__(f"Training {record.algorithm} failed.\n{record.error}")
        self.record = record

    @property
    def reason(self) -> str:
        """The last line of the traceback."""
        return self.record.error.strip().splitlines()[-1]


def execute(
    plan: Plan,
    session: Session,
    executor: Executor,
    sink: Sink,
    costs: Mapping[str, float] | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Record]:
    """Run what is missing and hand it to the sink group by group; return the records that failed.

    costs: seconds by group, as far as they are known: the longest go first. None: groups run in the order of the plan.
    on_progress: called with how far the run is.
    """
    group_keys = {trial.key: g.key for g in (*plan.groups, *plan.missing) for trial in g.trials}
    sink.begin({trial.key: group_keys[trial.key] for trial in plan.trials})
    progress = Progress(plan.missing, costs or {})

    def on_step(group: Group, step: int) -> None:
        progress.note_step(group, step)
        if step == 0 or progress.quiet_seconds > NOTED:
            with suppress(UsageError):  # on a full disk it is the next record that counts
                sink.note(progress.summarize(), progress.list_running())
        on_progress(progress)

    failed = []
    groups = plan.missing if costs is None else sort_longest_first(plan.missing, costs)
    with heed_interrupts_once(), closing(executor(groups, session, on_step)) as results:
        for group, records in results:
            sink.add(records, group.key)
            if isinstance(session.saving.files, Folder):
                session.saving.files.remove(name_checkpoint(group.key))
            progress.finish_group(group)
            on_progress(progress)
            failed += [r for r in records if r.status == FAILED]
    return failed


def remove_checkpoints(files: Folder, finished: Container[str]) -> None:
    """Remove checkpoints of groups that were stored just before a crash and what a crash left half written; and, with a
    sentence, damaged checkpoints."""
    for folder in ("weights", "predictions", FOLDER):
        files.remove_unfinished(folder)
    for name in files.list_names(FOLDER):
        try:
            trials: Sequence[str] = read_header(files.read(name) or b"")["trials"]
        except ValueError as error:
            text = f"{files.root / name} is removed, and its trials start anew: {error}."
            warnings.warn(text, stacklevel=2)
            trials = []
        if all(key in finished for key in trials):
            files.remove(name)


def sort_longest_first(groups: Iterable[Group], costs: Mapping[str, float]) -> tuple[Group, ...]:
    """Sort groups so that workers end at about the same time; those of unknown length go first."""
    return tuple(sorted(groups, key=lambda group: -costs.get(group.key, float("inf"))))


def estimate_makespan(costs: Iterable[float], slots: int) -> float:
    """Estimate the seconds until the last worker is done, when each takes the next group as soon as it is free."""
    free = [0.0] * max(1, slots)
    for cost in costs:
        heapq.heappush(free, heapq.heappop(free) + cost)
    return max(free)


class Progress:
    """How far the groups of a run are. Where the seconds of some are unknown, each step of a trial counts alike."""

    def __init__(self, groups: Sequence[Group], costs: Mapping[str, float]) -> None:
        known = all(group.key in costs for group in groups)
        self._cost = {group.key: costs[group.key] if known else count_work(group) for group in groups}
        self._last = {group.key: count_work(group) // len(group.trainings) for group in groups}  # step of each training
        self._steps: dict[str, tuple[Group, int]] = {}
        self._finished = 0.0
        self.trials = sum(len(group.trials) for group in groups)
        self.trials_done = 0
        self.limit: float | None = None  # seconds after which it will be cut; None: it runs to the end
        self.started = self._noted = time.time()

    def note_step(self, group: Group, step: int) -> None:
        """Note that a group has taken so many steps."""
        self._steps[group.key] = group, step

    def finish_group(self, group: Group) -> None:
        """Note that a group is finished."""
        self._steps.pop(group.key, None)
        self._finished += self._cost[group.key]
        self.trials_done += len(group.trials)

    @property
    def share(self) -> float:
        """The part of the work that is done, from 0 to 1."""
        total = sum(self._cost.values())
        if not total:
            return 1.0
        under_way = sum(self._cost[g.key] * step / self._last[g.key] for g, step in self._steps.values())
        return (self._finished + under_way) / total

    @property
    def left(self) -> float | None:
        """Seconds left at the pace so far; None while too little is done to tell."""
        left = estimate_seconds_left(time.time() - self.started, self.share)
        return left if left is None or self.limit is None else min(left, self.limit)

    def list_running(self) -> list[RunningGroup]:
        """List the groups that are being trained."""
        return [
            RunningGroup(g.key, g.trials[0].algorithm, len(g.trials), step, self._last[g.key])
            for g, step in self._steps.values()
        ]

    def summarize(self) -> RunProgress:
        """Return how far the run is now, for the sink."""
        self._noted = time.time()
        return RunProgress(self.started, self._noted, self.share)

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last summary."""
        return time.time() - self._noted


@contextmanager
def show_progress(label: str, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows how far a run is."""
    with show_share(label, quiet) as show:
        yield lambda p: show(p.share, f"{p.trials_done} of {p.trials} trials", p.left)
