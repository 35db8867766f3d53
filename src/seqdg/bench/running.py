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

from seqdg.base import DOMAINBED, Folder, UsageError, count_things, set_checkout
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

    Each trial trains on all domains but one and is tested on that one. Interrupt it whenever you like: the same call
    again does only what is missing. It does what the command `seqdg bench` does.

    Parameters
    ----------
    benchmark
        A name from `seqdg list benchmarks`, or your own .toml file.
    algorithms
        Names from `seqdg list algorithms`, your own as "file.py:name". None: those of the benchmark.
    held_out
        Domains to hold out, one at a time. None: every domain.
    trials
        Seeds of each algorithm and held-out domain. None: as many as the benchmark says.
    steps
        Training steps. None: as many as the benchmark says.
    seed
        The seed of the first trial; the others follow.
    settings
        Settings by algorithm, such as {"fo-s-mldg": {"alpha": (0.05, 0.6), "lr": 0.1}}, or as text, such as
        ["fo-s-mldg.alpha=0.05,0.6"].
    search
        Candidates of each algorithm. The first has its settings as they are; of the others, settings and learning rate
        are drawn.
    reuse
        Search on the first seed alone, and use what `select` chooses there, for each held-out domain, on the others.
    settings_from
        A file with [algorithms.NAME] tables, as `seqdg table --settings-out` writes. It comes before the benchmark's.
    select
        How the settings and the step that count are chosen. "leave-one-out" also runs the trials that it needs.
    precision
        "float32", "tf32", "bf16" or "float64". None: the benchmark's.
    data
        Root folder of the data.
    out
        The run directory. None: runs/BENCHMARK.
    device
        "auto", "cpu", "cuda" or a device such as "cuda:1".
    executor
        "local" or "ray".
    workers
        Worker processes; 0: this process; None: one for each core or GPU. A script that asks for more than this process
        needs `if __name__ == "__main__":`.
    gpus_per_worker
        Share of a GPU for each worker; 0.25 puts four on one.
    address
        Address of a running Ray cluster, or "auto". None: start Ray on this machine.
    compile
        Whether steps are compiled: "auto", "on" or "off".
    checkpoint
        Seconds between checkpoints of trials that take longer; 0: none.
    save_weights
        True or "last" keeps the deployed weights of every trial; "chosen" also those of the step that source validation
        chose.
    save_predictions
        Keep what every trial predicts of its held-out rows.
    weights
        Weight file that the net starts from.
    allow_partial
        Continue if the data differ from the published counts, and note it in the records.
    domainbed
        A checkout of DomainBed, whose classes run as "domainbed:CORAL". None: where SEQDG_DOMAINBED says.
    log
        Tools that the curves and the table are written to as well: "tensorboard", "mlflow", "wandb".
    progress
        Show on the console how far the run is.
    command
        What the report says made the run. None: the command that asks for the same trials.

    Returns
    -------
    Results
        The results of the trials that were asked for. A warning, `FailedTrials`, says if some of them failed.

    Examples
    --------
    >>> import tempfile
    >>> import seqdg
    >>> out = tempfile.mkdtemp()
    >>> results = seqdg.run("rotated-mnist", ["agg"], held_out=["0"], trials=2, steps=5, out=out, progress=False)
    >>> [record.seed for record in results.records()]
    [0, 1]
    """
    request = Request(
        algorithms=algorithms, held_out=held_out, trials=trials, steps=steps, seed=seed,
        settings=_write_settings(settings), search=search, reuse=reuse, settings_from=_as_path(settings_from),
        select=select, precision=precision, data=_as_path(data), out=_as_path(out), device=device,
        executor=ExecutorChoice(executor, workers, gpus_per_worker, address), compile=compile, checkpoint=checkpoint,
        save_weights={True: "last", False: ""}[save_weights] if isinstance(save_weights, bool) else save_weights,
        save_predictions=save_predictions, weights=_as_path(weights), allow_partial=allow_partial,
        domainbed=_as_path(domainbed), log=log,
    )  # fmt: skip
    results = run_benchmark(benchmark, request, command, quiet=not progress)
    if results.failures():
        warnings.warn(describe_failures(results), FailedTrials, stacklevel=2)
    return results


def _as_path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


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


def write_command(benchmark: str, request: Request) -> str:
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
        "--select": request.select if request.leave_one_out or request.reuse else None,
        "--settings-from": request.settings_from,
    }
    for option, value in options.items():
        words += [] if value is None else [option, str(value)]
    words += ["--reuse"] if request.reuse else []
    for text in request.settings:
        words += ["--set", text]
    return shlex.join(words)


def run_benchmark(benchmark: str, request: Request, command: str | None = None, quiet: bool = False) -> Results:
    """Run what is missing of a request, store it, and return its results. The same call again does only what is then
    missing.

    benchmark: a name, or the user's own .toml file.   command: what the user typed, for the report; None: what asks for
    the same trials.   quiet: say nothing on the console.
    """
    set_checkout(DOMAINBED, request.domainbed)
    chosen = load_benchmark(benchmark).with_weights(request.weights).with_settings(request.settings_from)
    directory = request.out or default_directory(chosen.name)
    make_directory(directory)
    executor, device = choose_executor(request.executor, request.device)
    saving = Saving(
        files=Folder(directory.resolve()),
        checkpoint=request.checkpoint,
        weights=bool(request.save_weights),
        chosen=request.save_weights == "chosen",
        predictions=request.save_predictions,
    )
    session = Session(chosen.make_task(request.data, request.allow_partial, request.held_out), device, saving)
    trackers = open_trackers(request.log, directory, chosen.name)
    with lock_directory(directory):
        store = Store.create(directory, chosen.name)
        try:
            check_versions(store, directory)
            runner = _Runner(store, chosen, session, directory, quiet, trackers)
            planned = runner.finish(request, executor, command or write_command(benchmark, request))
        finally:
            store.close()
    return Results.open(directory).only([trial.key for trial in planned.trials])


@dataclass(frozen=True)
class _Runner:
    store: Store
    benchmark: Benchmark
    session: Session
    directory: Path
    quiet: bool
    trackers: Sequence[Tracker]

    def finish(self, request: Request, executor: Executor, command: str) -> Plan:
        """Train what is missing, and return the plan of all that was asked for."""
        store, session, task = self.store, self.session, self.session.task
        with self._show(count_files("reading images")) as on_progress:
            dataset = task.dataset(on_progress)
        store.set_meta(CLASSES, json.dumps([str(name) for name in dataset.classes]))
        store.set_meta(DOMAINS, json.dumps(list(dataset.domains)))
        for note in dataset.notes:
            self._say(f"note: {note}")
        seeds = self.benchmark.list_seeds(request)
        first = replace(request, trials=1) if request.reuse else request
        planned = self.benchmark.plan(task, first, session.device, store.finished())
        check_code(store, self.directory, planned.trials)
        for note in dict.fromkeys(note for t in planned.trials for note in find_learner(t.algorithm).caution(t)):
            self._say(f"note: {note}")
        wanted = [trial.description() for trial in planned.trials]
        again = seeds if request.reuse else []
        add_command(store, command, [*wanted, *({**d, "seed": s} for d in wanted for s in again)])
        sink = TrackedStore(store, self.trackers, self._say)
        failed = self._train(planned, request, executor, sink)
        if request.reuse and not failed:
            more = list_reused(planned.trials, store.records(find_usual_criterion(store)), request.select, seeds[1:])
            if more:
                planned = plan_further(task, [*planned.trials, *more], session.device, store.finished())
                self._train(planned, request, executor, sink)
        sink.show_table({trial.key for trial in planned.trials}, request.select)
        return planned

    def _train(self, planned: Plan, request: Request, executor: Executor, sink: Sink) -> list[Record]:
        """Train what a plan lacks, and return the records that failed."""
        store, session, task = self.store, self.session, self.session.task
        planned = choose_compiled(planned, session.device, request.compile)
        finished = store.finished()
        if isinstance(session.saving.files, Folder):
            remove_checkpoints(session.saving.files, finished)
        with self._show(count_files("timing each algorithm")) as on_progress:
            known = estimate_costs(
                planned.missing, task, session.device, store, on_progress or (lambda done, total: None)
            )
        if request.executor.is_open and is_short([known.get(group.key) for group in planned.missing]):
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


def default_directory(benchmark: str) -> Path:
    """Return the run directory of a benchmark, by its name or its file."""
    return Path("runs") / (Path(benchmark).stem if benchmark.endswith(".toml") else benchmark)


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
