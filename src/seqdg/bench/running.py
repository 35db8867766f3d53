"""Run a benchmark into a directory: `seqdg.run`, and `seqdg bench` by the same way."""

from __future__ import annotations

import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from seqdg.base import DOMAINBED, Folder, UsageError, count_things, set_checkout, unknown
from seqdg.bench.benchmark import Benchmark, Request, load_benchmark
from seqdg.bench.execution import (
    Executor,
    InProcess,
    Progress,
    Session,
    Sink,
    TrackedStore,
    estimate_makespan,
    execute,
    remove_checkpoints,
    sort_longest_first,
)
from seqdg.bench.executors import ExecutorChoice, choose_executor, is_short
from seqdg.bench.learners import find_learner
from seqdg.bench.planning import (
    Plan,
    choose_compiled,
    estimate_costs,
    plan_further,
)
from seqdg.bench.reruns import check_code
from seqdg.bench.search import list_reused
from seqdg.core import format_value
from seqdg.report import Results
from seqdg.results import (
    CLASSES,
    DOMAINS,
    RULES,
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


class FailedTrials(UserWarning):
    """Some trials of a run failed."""


def run(
    benchmark: str = "rotated-mnist",
    algorithms: Sequence[str] | None = None,
    *,
    held_out: Sequence[str] | None = None,
    trials: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | Sequence[str] = (),
    search: int = 1,
    reuse: bool = False,
    settings_from: str | Path | None = None,
    select: str = "source-val",
    precision: str | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    executor: str = "local",
    workers: int | None = 0,
    gpus_per_worker: float | None = None,
    address: str | None = None,
    compile: str = "auto",
    checkpoint: float = 60.0,
    save_weights: bool | str = False,
    save_predictions: bool = False,
    weights: str | Path | None = None,
    allow_partial: bool = False,
    domainbed: str | Path | None = None,
    log: Sequence[str] = (),
    progress: bool = True,
    command: str | None = None,
) -> Results:
    """Compare algorithms on a benchmark: run what is missing, and return the results of what was asked for.

        results = seqdg.run("rotated-mnist", ["agg", "fo-s-mldg"], trials=3, out="runs/mine")
        print(results.table(baseline="agg"))

    Each trial trains on all domains but one and is tested on that one. Interrupt it whenever you like: the same call
    again does only what is missing.

    benchmark: a name that `seqdg list benchmarks` shows, or your own .toml file.
    algorithms: names, yours as "file.py:name"; None: the benchmark's.
    held_out: domains to hold out, one at a time; None: every one.   trials: seeds of each.
    settings: by algorithm, such as {"fo-s-mldg": {"alpha": (0.05, 0.6), "lr": 0.1}}, or as text, such as
        ["fo-s-mldg.alpha=0.05,0.6"].   settings_from: a file with [algorithms.NAME] tables, before the benchmark's.
    search: candidates per algorithm.   reuse: search on the first seed alone, and use what `select` chooses there, for
        each held-out domain, on the others.
    select: "leave-one-out" also runs the trials that this rule needs.
    data: root folder of the data.   out: run directory; None: runs/BENCHMARK.
    workers: processes; 0: this one; None: one for each core or GPU. A script that asks for more than this process needs
        `if __name__ == "__main__":`.
    domainbed: a checkout of DomainBed, whose classes run as "domainbed:CORAL"; None: where SEQDG_DOMAINBED says.
    save_weights: True or "last" keeps the deployed weights of every trial; "chosen" those of the step that source
        validation chose, too.   save_predictions: keep what every trial says of its held-out rows.
    log: tools that curves and the table are written to as well: "tensorboard", "mlflow", "wandb".
    progress: say on the console how far the run is.   command: what the report says made the run.
    The other arguments are the options of `seqdg bench`.
    """
    if select not in RULES:
        raise unknown("selection rule", select, RULES)
    for argument, names in (("algorithms", algorithms), ("held_out", held_out), ("log", log)):
        if isinstance(names, str):
            raise UsageError(f"{argument} is '{names}', but it must be a list of names, such as ['{names}'].")
    set_checkout(DOMAINBED, domainbed)
    chosen = load_benchmark(benchmark).with_weights(None if weights is None else Path(weights))
    chosen = chosen.with_settings(None if settings_from is None else Path(settings_from))
    request = Request(
        algorithms=algorithms, held_out=held_out, trials=trials, steps=steps, seed=seed,
        settings=_write_settings(settings), search=search, leave_one_out=select == "leave-one-out", precision=precision,
        select=select, reuse=select if reuse else None,
    )  # fmt: skip
    where = Where(
        data=None if data is None else Path(data),
        out=None if out is None else Path(out),
        device=device,
        executor=ExecutorChoice(executor, workers, gpus_per_worker, address),
        compiling=compile,
        checkpoint=checkpoint,
        save_weights=_name_saved(save_weights),
        save_predictions=save_predictions,
        allow_partial=allow_partial,
        log=tuple(log),
    )
    command = command or _write_command(benchmark, request, select, settings_from)
    done = run_benchmark(chosen, request, where, command, quiet=not progress)
    results = Results.open(done.directory).only([trial.key for trial in done.plan.trials])
    if done.failed:
        warnings.warn(describe_failures(results), FailedTrials, stacklevel=2)
    return results


def _name_saved(save_weights: bool | str) -> str:
    """Return `last`, `chosen` or nothing."""
    name = {True: "last", False: ""}[save_weights] if isinstance(save_weights, bool) else save_weights
    if name not in ("", "last", "chosen"):
        raise unknown("weights to save", name, ("last", "chosen"))
    return name


def describe_failures(results: Results) -> str:
    """Say how many trials failed, why the last one did, and what to do."""
    failed = results.failures()
    last = failed[-1].error.strip().splitlines()[-1]
    names = ", ".join(dict.fromkeys(record.algorithm for record in failed))
    return (
        f"{count_things(len(failed), 'trial')} failed ({last}), of {names}. `seqdg status {results.path} --errors` "
        "shows where; running the command again retries them."
    )


def _write_settings(settings: Mapping[str, Mapping[str, Any]] | Sequence[str]) -> list[str]:
    """Write settings as the command line has them: `fo-s-mldg.alpha=0.05,0.6`."""
    if not isinstance(settings, Mapping):
        return list(settings)
    for name, values in settings.items():
        if not isinstance(values, Mapping):
            raise UsageError(
                f"settings has {values!r} for {name!r}, but it must have settings by name, such as "
                "{'agg': {'lr': 0.1}}."
            )
    return [
        f"{name}.{setting}={format_value(tuple(value) if isinstance(value, list) else value)}"
        for name, values in settings.items()
        for setting, value in values.items()
    ]


def _write_command(benchmark: str, request: Request, select: str, settings_from: str | Path | None) -> str:
    """Write the command that asks for the same trials."""
    words = ["seqdg", "bench", benchmark]
    options = {
        "--algorithms": request.algorithms and ",".join(request.algorithms),
        "--held-out": request.held_out and ",".join(request.held_out),
        "--trials": request.trials,
        "--steps": request.steps,
        "--seed": request.seed or None,
        "--search": request.search if request.search > 1 else None,
        "--precision": request.precision,
        "--select": select if select == "leave-one-out" or request.reuse else None,
        "--settings-from": settings_from,
    }
    for option, value in options.items():
        words += [] if value is None else [option, str(value)]
    words += ["--reuse"] if request.reuse else []
    for text in request.settings:
        words += ["--set", text]
    return shlex.join(words)


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
            known = estimate_costs(planned.missing, task, session.device, store, progress or (lambda done, total: None))
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


EVERY = 10.0  # seconds between plain lines, at first
SELDOM = 0.05  # of the time so far lies between them later: a run of hours says less


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows how far a run is."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_lines(label)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[trials]}"),
               TimeElapsedColumn(), TextColumn("{task.fields[left]}"))  # fmt: skip
    with _make_bar(*columns, console=console) as bar:
        task = bar.add_task(label, total=1.0, trials="", left="")
        yield lambda p: bar.update(task, completed=p.share, trials=_count_trials(p), left=_say_left(p))


@contextmanager
def count_files(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is called with how many are done, of how many, and shows a bar on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("left:"))
    with _make_bar(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _make_bar(*columns: ProgressColumn, console: Console, disable: bool = False) -> Bar:
    """Make a bar that goes when it is done. It takes over what is printed on a terminal, but leaves a file alone."""
    return Bar(
        *columns, console=console, disable=disable, transient=True,
        redirect_stdout=sys.stdout.isatty(), redirect_stderr=sys.stderr.isatty(),
    )  # fmt: skip


def _print_lines(label: str) -> Callable[[Progress], None]:
    began = last = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= max(EVERY, SELDOM * (now - began)):
            last = now
            parts = [f"{100 * progress.share:.0f} %", _count_trials(progress), _say_left(progress)]
            print(f"{label}: {', '.join(part for part in parts if part)}", file=sys.stderr, flush=True)

    return show


def _count_trials(progress: Progress) -> str:
    return f"{progress.trials_done} of {progress.trials} trials"


def _say_left(progress: Progress) -> str:
    left = progress.left
    return "" if left is None or progress.share >= 1 else f"{format_duration(left)} left"
