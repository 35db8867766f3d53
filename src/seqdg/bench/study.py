"""Run a study: part by part, first the search of each, then the trials with the settings that it chose.

Every part is a benchmark with some fields changed, so that planning, grouping, training and storing are those of
`seqdg bench`. Trials in the published records of a part count as done: they are copied into its run directory.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from seqdg.base import Folder, UsageError
from seqdg.bench.benchmark import load_benchmark
from seqdg.bench.console import count_files, show_progress
from seqdg.bench.contract import Candidate
from seqdg.bench.execution import execute, remove_checkpoints
from seqdg.bench.executors.choice import ExecutorChoice, choose_executor
from seqdg.bench.executors.session import Executor, Session
from seqdg.bench.own_code import check_code, read_codes, refuse_changed
from seqdg.bench.plan import choose_compiled, plan_trials
from seqdg.bench.running import check_versions
from seqdg.bench.study_trials import Entry, Place, TrialMaker, make_benchmark, say
from seqdg.bench.task import Task
from seqdg.data import BUNDLED, write_prepared
from seqdg.nets import Net
from seqdg.results import (
    CLASSES,
    CRITERION,
    DOMAINS,
    FILE,
    SEARCH,
    TRIALS,
    Part,
    Record,
    RecordSource,
    RunningGroup,
    RunProgress,
    Store,
    Study,
    lock_directory,
    make_directory,
    make_lean,
    open_run,
)
from seqdg.training import Saving

TOGETHER = 512  # trials of small nets in a stack, at most
CHECKPOINT = 60.0  # seconds between checkpoints of a group; workers that are sent away write one, too


@dataclass(frozen=True)
class StudyWhere:
    """Where a study reads, trains and writes, and for how long."""

    out: Path
    data: Path | None = None
    device: str = "auto"
    workers: int | None = None
    minutes: float = math.inf

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise UsageError(f"--minutes is {self.minutes:g}. Give a positive number of minutes.")


@dataclass
class Clock:
    """The time that is left.

    Groups in this process end before it is over: it allows for as long as the longest took. Workers stop when it is
    over, and their groups go on from a checkpoint.
    """

    minutes: float
    slots: int = 1  # groups that run side by side
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    longest: float = 0.0

    def check_after_group(self) -> None:
        """Raise `OutOfTime` where another group may not end in time."""
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now
        self._check(now + self.longest if self.slots == 1 else now)

    def check_meanwhile(self) -> None:
        """Raise `OutOfTime` where the time of workers is over."""
        if self.slots > 1:
            self._check(time.monotonic())

    def start_group(self) -> None:
        """Count from now: what came before was no group."""
        self.last = time.monotonic()

    def _check(self, then: float) -> None:
        if then - self.began > 60 * self.minutes:
            raise OutOfTime


class OutOfTime(Exception):
    """The minutes are over; what is stored stays, and the rest can follow."""


def run_study(study: Study, parts: Sequence[Part], where: StudyWhere) -> list[Record]:
    """Run what is missing of these parts; return the records that failed. `OutOfTime` says that not all was run."""
    executor, device = choose_executor(ExecutorChoice(workers=where.workers), where.device)
    clock = Clock(where.minutes, executor.slots)
    _refuse_changed_code(study, parts, where.out)
    failed: list[Record] = []
    for part in parts:
        directory = where.out / part.name
        make_directory(directory)
        with lock_directory(directory), ExitStack() as stack:
            runner = PartRunner(study, part, where, device)
            stores = {folder: runner.open_store(folder) for folder in part.folders}
            for store in stores.values():
                stack.callback(store.close)
            failed += runner.run(stores, executor, clock)
    return failed


def _refuse_changed_code(study: Study, parts: Sequence[Part], out: Path) -> None:
    """Refuse code of the user's own that has changed since any part got trials of it, as answers compare parts."""
    codes = read_codes(name for part in parts for name in part.list_algorithms())
    for directory in [out / part.name / folder for part in study.parts for folder in part.folders if codes]:
        if (directory / FILE).is_file():
            store = Store.open(directory)
            try:
                refuse_changed(store, directory, codes)
            finally:
                store.close()


def restore_parts(study: Study, parts: Sequence[Part], where: StudyWhere) -> int:
    """Copy the published records of these parts into their run directories, and count what is there then."""
    count = 0
    for part in parts:
        for folder in part.folders:
            make_directory(where.out / part.name / folder)
            store = PartRunner(study, part, where).open_store(folder)
            count += len(store.finished())
            store.close()
    return count


class PartRunner:
    """Plans and runs one part."""

    def __init__(self, study: Study, part: Part, where: StudyWhere, device: str = "cpu") -> None:
        self.study, self.part, self.where, self.device = study, part, where, device
        self.benchmark = make_benchmark(part, where.data)

    def open_store(self, folder: str) -> Store:
        """Open the run directory of a folder, and copy what is published into it."""
        directory = self.where.out / self.part.name / folder
        store = Store.create(directory, self.benchmark.name)
        check_versions(store, directory)
        published = None if self.study.published is None else self.study.published / self.part.name / folder
        if published is not None and (published / TRIALS).is_file():
            self._copy(published, store)
        return store

    def _copy(self, published: Path, store: Store) -> None:
        if find_spec("pyarrow") is None:
            say(f"Without pyarrow, {published} cannot be read: only what is in the run directory counts as done.")
        else:
            copy_published(open_run(published), store)

    def run(self, stores: Mapping[str, Store], executor: Executor, clock: Clock) -> list[Record]:
        """Search, choose, and run the trials; return the records that failed."""
        task = self.benchmark.make_task(self.where.data, held_out=self.part.held_out or None)
        with count_files("reading images") as progress:
            dataset = task.dataset(progress)
        for store in stores.values():
            store.set_meta(CLASSES, json.dumps([str(name) for name in dataset.classes]))
            store.set_meta(DOMAINS, json.dumps(list(dataset.domains)))
        maker = TrialMaker(self.part, self.benchmark, task)
        failed: list[Record] = []
        chosen: Mapping[Place, Candidate] = {}
        if self.part.searches:
            searched = maker.list_search()
            failed = self._train(searched, task, maker.net, stores, executor, clock)
            chosen = maker.choose(searched, stores[SEARCH].records(CRITERION))
        return failed + self._train(maker.list_trials(chosen), task, maker.net, stores, executor, clock)

    def _train(
        self,
        entries: Sequence[Entry],
        task: Task,
        net: Net,
        stores: Mapping[str, Store],
        executor: Executor,
        clock: Clock,
    ) -> list[Record]:
        if not entries:
            return []
        for folder, store in stores.items():
            directory = self.where.out / self.part.name / folder
            check_code(store, directory, [e.trial for e in entries if e.folder == folder])
        finished = {key for store in stores.values() for key in store.finished()}
        planned = plan_trials(task, [e.trial for e in entries], net, self.device, finished, most=TOGETHER)
        order = {trial.key: i for i, trial in enumerate(planned.trials)}  # seed by seed; groups come by algorithm
        missing = sorted(planned.missing, key=lambda group: order[group.trials[0].key])
        planned = choose_compiled(replace(planned, missing=tuple(missing)), self.device)
        left = sum(len(g.trainings) for g in planned.missing)
        total = sum(len(g.trainings) for g in planned.groups)
        what = "search" if entries[0].folder == SEARCH else "trials"
        say(f"{self.part.name}, {what}: {total} trainings, {left} to run in {len(planned.missing)} groups.")
        if not planned.missing:
            return []
        clock.start_group()
        sink = Routed(stores, {e.trial.key: e.folder for e in entries}, clock)
        files = Folder((self.where.out / self.part.name).resolve())
        remove_checkpoints(files, finished)
        saving = Saving(files=files, checkpoint=CHECKPOINT, digests=False, criteria=(CRITERION,))
        session = Session(task, self.device, saving)
        with show_progress(self.part.name) as show:
            return execute(planned, session, executor, sink, show=show)


@dataclass(frozen=True)
class Routed:
    """A sink that puts each record into the run directory that it belongs to, until time is over."""

    stores: Mapping[str, Store]
    folders: Mapping[str, str]  # of trials, by key
    clock: Clock

    def begin(self, planned: Mapping[str, str]) -> None:
        for folder, store in self.stores.items():
            mine = {key: group for key, group in planned.items() if self.folders[key] == folder}
            if mine:
                store.begin(mine)

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        next(iter(self.stores.values())).note(run, running)
        self.clock.check_meanwhile()

    def add(self, records: Iterable[Record], group: str = "") -> None:
        by_folder: dict[str, list[Record]] = {}
        for record in records:
            by_folder.setdefault(self.folders[record.key], []).append(make_lean(record))
        for folder, some in by_folder.items():
            self.stores[folder].add(some, group)
        self.clock.check_after_group()


def prepare_data(parts: Sequence[Part], data: Path | None, folder: Path) -> Iterator[Path]:
    """Write the data sets of these parts, but for images and bundled ones, as files that numpy alone reads."""
    for name in dict.fromkeys(part.benchmark for part in parts):
        benchmark = load_benchmark(name)
        if benchmark.data.get("format") != "images" and benchmark.data.get("format") not in BUNDLED:
            yield write_prepared(benchmark.make_task(data).dataset(), folder, benchmark.name)


def copy_published(archive: RecordSource, store: Store) -> None:
    """Copy the trials that a store lacks from published records, with the groups that they were trained in."""
    there, groups = store.finished(), archive.groups()
    new = [record for record in archive.records() if record.key not in there]
    if new:
        store.begin({record.key: groups.get(record.key, "") for record in new})
        store.add(new)
