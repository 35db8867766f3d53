"""Run a benchmark into a directory: plan what is asked for, train what is missing, keep the records."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqdg.base import Folder, UsageError, count_things
from seqdg.bench.benchmark import Benchmark, Request
from seqdg.bench.console import count_files, show_progress
from seqdg.bench.cost import estimate_costs, estimate_makespan, sort_longest_first
from seqdg.bench.execution import Sink, execute, remove_checkpoints
from seqdg.bench.executors.choice import ExecutorChoice, choose_executor, is_short
from seqdg.bench.executors.local import InProcess
from seqdg.bench.executors.session import Executor, Session
from seqdg.bench.learner import find_learner
from seqdg.bench.own_code import check_code
from seqdg.bench.plan import Plan, choose_compiled, plan_further
from seqdg.bench.reuse import list_reused
from seqdg.bench.tracked_store import TrackedStore
from seqdg.results import (
    CLASSES,
    DOMAINS,
    VERSION,
    Record,
    Store,
    Tracker,
    add_command,
    find_usual_criterion,
    format_duration,
    lock_directory,
    make_directory,
    name_release,
    open_trackers,
)
from seqdg.training import CHOSEN, Saving


@dataclass(frozen=True)
class BenchmarkRun:
    """A finished run: its directory, its plan, and the records that failed."""

    directory: Path
    plan: Plan
    failed: list[Record]


@dataclass(frozen=True)
class Where:
    """Where a run reads, trains and writes."""

    data: Path | None = None  # root folder of the data
    out: Path | None = None  # run directory; None: runs/BENCHMARK
    device: str = "auto"
    executor: ExecutorChoice = ExecutorChoice()
    compiling: str = "auto"  # whether steps are compiled: auto, on, off
    checkpoint: float = 60.0  # seconds between checkpoints of trials that take longer; 0: none
    save_weights: str = ""  # last: after the last step; chosen: those of the chosen step, too
    save_predictions: bool = False
    allow_partial: bool = False
    log: tuple[str, ...] = ()  # tools that curves and the table are written to as well: tensorboard, mlflow, wandb

    def __post_init__(self) -> None:
        if not 0 <= self.checkpoint < float("inf"):
            raise UsageError(f"--checkpoint is {self.checkpoint:g} seconds. Give a positive number, or 0 for none.")


def run_benchmark(
    benchmark: Benchmark, request: Request, where: Where, command: str = "", quiet: bool = False
) -> BenchmarkRun:
    """Run what is missing of a request and store it. The same call again does only what is then missing.

    command: what the user typed, for the report.   quiet: say nothing on the console.
    """
    directory = where.out or default_directory(benchmark)
    make_directory(directory)
    executor, device = choose_executor(where.executor, where.device)
    task = benchmark.make_task(where.data, where.allow_partial, request.held_out)
    saving = Saving(
        files=Folder(directory.resolve()),
        checkpoint=where.checkpoint,
        weights=bool(where.save_weights),
        chosen=where.save_weights == "chosen",
        predictions=where.save_predictions,
    )
    session = Session(task, device, saving)
    trackers = open_trackers(where.log, directory, benchmark.name)
    with lock_directory(directory):
        store = Store.create(directory, benchmark.name)
        try:
            check_versions(store, directory)
            runner = _Runner(store, benchmark, session, directory, quiet, trackers)
            return runner.finish(request, where, executor, command)
        finally:
            store.close()


@dataclass(frozen=True)
class _Runner:
    store: Store
    benchmark: Benchmark
    session: Session
    directory: Path
    quiet: bool
    trackers: Sequence[Tracker]

    def finish(self, request: Request, where: Where, executor: Executor, command: str) -> BenchmarkRun:
        store, session, task = self.store, self.session, self.session.task
        with self._show(count_files("reading images")) as progress:
            dataset = task.dataset(progress)
        store.set_meta(CLASSES, json.dumps([str(name) for name in dataset.classes]))
        store.set_meta(DOMAINS, json.dumps(list(dataset.domains)))
        for note in dataset.notes:
            self._say(f"note: {note}")
        seeds = self.benchmark.list_seeds(request)
        first = request if request.reuse is None else replace(request, trials=1)
        planned = self.benchmark.plan(task, first, session.device, store.finished())
        check_code(store, self.directory, planned.trials)
        for note in dict.fromkeys(note for t in planned.trials for note in find_learner(t.algorithm).caution(t)):
            self._say(f"note: {note}")
        if command:
            wanted = [trial.description() for trial in planned.trials]
            again = seeds if request.reuse is not None else []
            add_command(store, command, [*wanted, *({**d, "seed": s} for d in wanted for s in again)])
        sink = TrackedStore(store, self.trackers, self._say)
        failed = self._train(planned, where, executor, sink)
        if request.reuse is not None and not failed:
            more = list_reused(planned.trials, store.records(find_usual_criterion(store)), request.reuse, seeds[1:])
            if more:
                planned = plan_further(task, [*planned.trials, *more], session.device, store.finished())
                failed = self._train(planned, where, executor, sink)
        sink.show_table({trial.key for trial in planned.trials}, request.select)
        return BenchmarkRun(self.directory, planned, failed)

    def _train(self, planned: Plan, where: Where, executor: Executor, sink: Sink) -> list[Record]:
        """Train what a plan lacks, and return the records that failed."""
        store, session, task = self.store, self.session, self.session.task
        planned = choose_compiled(planned, session.device, where.compiling)
        finished = store.finished()
        if isinstance(session.saving.files, Folder):
            remove_checkpoints(session.saving.files, finished)
        with self._show(count_files("timing each algorithm")) as progress:
            known = estimate_costs(planned.missing, session, store, progress or (lambda done, total: None))
        if where.executor.is_open and is_short([known.get(group.key) for group in planned.missing]):
            executor = InProcess()
        self._say(_describe(task.title, planned, known, min(executor.slots, len(planned.missing)), self.directory))
        for text in _list_unsaved(planned, finished, session.saving, self.directory):
            self._say(text)
        with self._show(show_progress(task.name)) as show:
            return execute(planned, session, executor, sink, known, show or (lambda progress: None))

    def _say(self, text: str) -> None:
        if text and not self.quiet:
            print(text, file=sys.stderr)

    def _show(self, bar: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
        return nullcontext() if self.quiet else bar


def check_versions(store: Store, directory: Path) -> None:
    """Refuse to add to a run of an older version: a table would mix trials that mean different things."""
    old = [version for version in store.versions() if version != VERSION]
    if old:
        raise UsageError(
            f"{directory} holds trials of {name_release(old[0])} (description {old[0]}; today's is {VERSION}), whose "
            "methods have changed since: they and new ones do not belong in one table. Give --out another directory. "
            f"`seqdg table {directory}` shows what is there."
        )


def default_directory(benchmark: Benchmark) -> Path:
    return Path("runs") / benchmark.name


def _describe(title: str, planned: Plan, costs: Mapping[str, float], slots: int, directory: Path) -> str:
    """Say what is going to be done, and how long that takes."""
    left = sum(len(g.trials) for g in planned.missing)
    done = f"{count_things(len(planned.trials), 'trial')}, {len(planned.trials) - left} of them done"
    words = [f"{done}; {left} to run in {count_things(len(planned.missing), 'group')}"]
    if planned.missing and len(costs) == len(planned.missing):
        seconds = estimate_makespan([costs[g.key] for g in sort_longest_first(planned.missing, costs)], slots)
        words.append(f", {format_duration(seconds)} with {count_things(slots, 'worker')}")
    return f"{title}\n{''.join(words)}. Results in {directory}."


def _list_unsaved(planned: Plan, finished: Container[str], saving: Saving, directory: Path) -> list[str]:
    """Finished trials are never repeated, not even for their weights or predictions."""
    wanted = {
        "weights": ("weights/{}.safetensors", saving.weights),
        "weights of the chosen step": (f"weights/{{}}.{CHOSEN}.safetensors", saving.chosen),
        "predictions": (f"predictions/{{}}.{CHOSEN}.safetensors", saving.predictions),
    }
    done = [t.key for t in planned.trials if t.key in finished]
    sentences = []
    for what, (path, is_wanted) in wanted.items():
        lost = sum(not (directory / path.format(key)).exists() for key in done) if is_wanted else 0
        were = f"{count_things(lost, 'trial')} that {'was' if lost == 1 else 'were'}"
        sentences += [f"Of {were} done before, no {what} were kept."] if lost else []
    return sentences
