"""Run the missing groups of a plan, and hand the records of each to a sink as soon as it ends."""

from __future__ import annotations

import heapq
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import torch

from seqdg.base import Folder, UsageError, adopt_checkouts, collect_checkouts, heed_interrupts_once, prepare_process
from seqdg.bench.learners import find_learner_of
from seqdg.bench.planning import Kind, Plan, count_work, name_kind
from seqdg.bench.task import Task
from seqdg.bench.trial import Group
from seqdg.results import (
    DONE,
    FAILED,
    TOOLS,
    Record,
    RunningGroup,
    RunProgress,
    Store,
    Tracker,
    describe_trial,
    estimate_seconds_left,
    make_table,
)
from seqdg.training import FOLDER, Saving, list_versions, name_checkpoint, name_device, read_header

Tell = Callable[[Group, int], None]  # hears of a group and how many steps it has taken; 0: it begins
FinishedGroups = Generator[tuple[Group, list[Record]], None, None]


@dataclass(frozen=True)
class Session:
    """What every worker gets: it is small and can be pickled."""

    task: Task
    device: str = "cpu"
    saving: Saving = field(default=Saving())
    checkouts: Mapping[str, str] = field(default_factory=collect_checkouts)  # of other projects


class Executor(Protocol):
    """Runs groups in the order given, `slots` at a time, and yields each with its records as it finishes.

    It asks for a group when it can run it: the order may depend on what is finished by then.
    """

    @property
    def slots(self) -> int: ...

    def __call__(self, groups: Collection[Group], session: Session, tell: Tell) -> FinishedGroups: ...


def train_group(group: Group, session: Session, on_step: Callable[[int], None]) -> list[Record]:
    """Train a group; where that fails, return a record of the failure for each of its trials.

    A group that the device's memory cannot hold is run in halves.
    """
    prepare_process()
    adopt_checkouts(session.checkouts)
    try:
        learner = find_learner_of(group.trials[0])
        return learner.train(group, session.task, torch.device(session.device), on_step, session.saving)
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

    def __call__(self, groups: Collection[Group], session: Session, tell: Tell) -> FinishedGroups:
        threads = torch.get_num_threads()
        try:
            for group in groups:
                tell(group, 0)
                yield group, train_group(group, session, partial(tell, group))
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
    show: Callable[[Progress], None] = lambda progress: None,
) -> list[Record]:
    """Run what is missing and hand it to the sink group by group; return the records that failed.

    costs: seconds by group, as far as they are known: the longest go first. None: groups run in the order of the plan.
    show: hears how far the run is.
    """
    place = {trial.key: g.key for g in (*plan.groups, *plan.missing) for trial in g.trials}
    sink.begin({trial.key: place[trial.key] for trial in plan.trials})
    progress = Progress(plan.missing, costs or {})

    def tell(group: Group, step: int) -> None:
        progress.note_step(group, step)
        if step == 0 or progress.quiet_seconds > NOTED:
            with suppress(UsageError):  # on a full disk it is the next record that counts
                sink.note(progress.summarize(), progress.list_running())
        show(progress)

    failed = []
    schedule = None if costs is None else Schedule(plan.missing, costs)
    groups = plan.missing if schedule is None else schedule
    with heed_interrupts_once(), closing(executor(groups, session, tell)) as results:
        for group, records in results:
            sink.add(records, group.key)
            if schedule is not None and any(record.status == DONE for record in records):  # all steps were taken
                schedule.learn(group, max(record.seconds for record in records))
            if isinstance(session.saving.files, Folder):
                session.saving.files.remove(name_checkpoint(group.key))
            progress.finish_group(group)
            show(progress)
            failed += [r for r in records if r.status == FAILED]
    return failed


def remove_checkpoints(files: Folder, finished: Container[str]) -> None:
    """Remove checkpoints of groups that were stored just before a crash, and files that are not checkpoints."""
    for name in files.names(FOLDER):
        try:
            trials: Sequence[str] = read_header(files.read(name) or b"")["trials"]
        except ValueError:
            trials = []
        if all(key in finished for key in trials):
            files.remove(name)


def sort_longest_first(groups: Iterable[Group], costs: Mapping[str, float]) -> tuple[Group, ...]:
    """Sort groups so that workers end at about the same time; those of unknown length go first."""
    return tuple(sorted(groups, key=lambda group: -costs.get(group.key, float("inf"))))


class Schedule(Collection[Group]):
    """Groups in the order in which they are best begun, decided when the next one is asked for.

    The longest go first, so that workers end at about the same time. Of a kind whose length is unknown, one goes before
    all others and, when it has ended, tells how long they take.
    """

    def __init__(self, groups: Iterable[Group], costs: Mapping[str, float]) -> None:
        self._costs = costs
        self._pace: dict[Kind, float] = {}  # seconds of one training, of what has ended
        self._begun: set[Kind] = set()
        self._waiting: dict[Kind, deque[Group]] = {}
        for group in sort_longest_first(groups, costs):
            self._waiting.setdefault(name_kind(group), deque()).append(group)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __contains__(self, group: object) -> bool:
        return any(group in groups for groups in self._waiting.values())

    def __iter__(self) -> Iterator[Group]:
        """Take one group after the other: none is given twice."""
        while self._waiting:
            kind = max(self._waiting, key=self._rank)
            group = self._waiting[kind].popleft()
            if not self._waiting[kind]:
                del self._waiting[kind]
            self._begun.add(kind)
            yield group

    def learn(self, group: Group, seconds: float) -> None:
        """Learn how many seconds each training of a group took."""
        self._pace[name_kind(group)] = seconds

    def _rank(self, kind: Kind) -> float:
        """Return the seconds of the next group of a kind; where they are unknown, one of them goes first and the others
        last."""
        group = self._waiting[kind][0]
        if group.key in self._costs:
            return self._costs[group.key]
        if kind in self._pace:
            return self._pace[kind] * len(group.trainings)
        return 0.0 if kind in self._begun else float("inf")


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


class TrackedStore:
    """A sink that stores records first, and then hands those that tables show to the trackers.

    What the store has and a tracker lacks, because of a crash or because it was not asked for, is written when a run
    begins. A tracker that fails is left out from then on: training goes on, and the next run makes up for it.
    """

    def __init__(self, store: Store, trackers: Sequence[Tracker], say: Callable[[str], None]) -> None:
        self._store, self._say = store, say
        self._trackers = list(trackers)
        self._known: dict[str, set[str]] = {}
        self._run_all(self._list_known)

    def _list_known(self, tracker: Tracker) -> None:
        self._known[tracker.name] = tracker.list_known()

    def begin(self, planned: Mapping[str, str]) -> None:
        self._store.begin(planned)
        stored = self._store.finished() & planned.keys()
        if any(stored - self._known[tracker.name] for tracker in self._trackers):
            self._track([r for r in self._store.records() if r.key in stored])

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        self._store.note(run, running)

    def add(self, records: Iterable[Record], group: str = "") -> None:
        records = [replace(r, finished=r.finished or time.time()) for r in records]
        self._store.add(records, group)
        self._track(records)

    def show_table(self, keys: Collection[str], rule: str) -> None:
        """Write the table of the trials with these keys."""
        if not self._trackers:
            return
        try:
            table = make_table([r for r in self._store.records() if r.key in keys], rule)
        except UsageError as error:  # nothing is finished, or the rule has nothing to choose by
            self._say(f"note: no table is logged: {error}")
            return
        self._run_all(lambda tracker: tracker.show(table))

    def _track(self, records: Iterable[Record]) -> None:
        if not self._trackers:
            return
        trials = [describe_trial(r) for r in records if r.status != FAILED and r.is_tabled]

        def add(tracker: Tracker) -> None:
            for trial in trials:
                if trial.key not in self._known[tracker.name]:
                    tracker.add(trial)
                    self._known[tracker.name].add(trial.key)

        self._run_all(add)

    def _run_all(self, act: Callable[[Tracker], None]) -> None:
        for tracker in tuple(self._trackers):
            try:
                act(tracker)
            except Exception as error:
                self._trackers.remove(tracker)
                self._say(
                    f"note: nothing more is logged to {TOOLS[tracker.name]} ({type(error).__name__}: {error}). The run "
                    "goes on; the same command later logs what is missing."
                )
