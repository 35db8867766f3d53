"""Run the missing groups of a plan, and hand the records of each to a sink as soon as it ends."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Protocol

from seqdg.base import Folder, UsageError, heed_interrupts_once
from seqdg.bench.cost import Schedule
from seqdg.bench.executors.session import Executor, Session
from seqdg.bench.plan import Plan
from seqdg.bench.progress import Progress
from seqdg.bench.trial import Group
from seqdg.results import DONE, FAILED, Record, RunningGroup, RunProgress
from seqdg.training import FOLDER, Saving, name_checkpoint, read_header

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
