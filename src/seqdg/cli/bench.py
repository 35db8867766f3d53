"""`seqdg bench`"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.bench.benchmark import Benchmark, Choice
    from seqdg.bench.executors.context import Context, Executor
    from seqdg.bench.plan import Plan
    from seqdg.results.record import Record
    from seqdg.results.store import Store


def bench(
    benchmark: given.BenchmarkName = "rotated-mnist",
    algorithms: given.Algorithms = None,
    held_out: given.HeldOut = None,
    trials: given.Trials = None,
    steps: given.Steps = None,
    seed: given.Seed = 0,
    settings: given.Settings = None,
    search: given.Search = 1,
    precision: given.Precision = None,
    out: given.Out = None,
    data: given.Data = None,
    device: given.Device = "auto",
    executor: given.Executor = "local",
    workers: given.Workers = None,
    gpus_per_worker: given.GpusPerWorker = None,
    address: given.Address = None,
    checkpoint: given.Checkpoint = 60.0,
    save_weights: given.SaveWeights = False,
    select: given.Select = "source-val",
    weights: given.Weights = None,
    allow_partial: given.AllowPartial = False,
) -> None:
    """Compare algorithms: run what is missing, print the table.

    Each trial trains on all domains but one and is tested on that one. Interrupt it whenever you like: running the same
    command again does only what is missing.

        seqdg bench --algorithms agg,fo-s-mldg --trials 3
    """
    from seqdg.base.files import Folder
    from seqdg.bench.benchmark import Choice, load_benchmark
    from seqdg.bench.executors.choice import Wish, executor_for
    from seqdg.bench.executors.context import Context
    from seqdg.bench.plan import default_out
    from seqdg.results.directory import make_directory
    from seqdg.training.runner import Keep

    _check(select, checkpoint)
    wish = Wish(executor, workers, gpus_per_worker, address)
    chosen = load_benchmark(benchmark).with_weights(weights)
    directory = out or default_out(chosen)
    make_directory(directory)
    runs, kind = executor_for(wish, device)
    keep = Keep(Folder(directory.resolve()), checkpoint, save_weights)
    context = Context(chosen, data, kind, allow_partial, keep, _held_out(chosen, held_out))
    choice = Choice(
        algorithms=given.names(algorithms), held_out=given.names(held_out), trials=trials, steps=steps, seed=seed,
        settings=settings or (), search=search, leave_one_out=select == "leave-one-out",
        precision=precision,
    )  # fmt: skip
    _finish(directory, context, choice, wish.leaves_it_to_us, runs, select)


def _held_out(benchmark: Benchmark, given_names: str | None) -> tuple[str, ...] | None:
    names = given.names(given_names) or benchmark.held_out
    return tuple(names) or None


def _check(select: str, checkpoint: float) -> None:
    from seqdg.base.errors import UsageError, unknown
    from seqdg.results.select import RULES

    if select not in RULES:
        raise unknown("selection rule", select, RULES)
    if not 0 <= checkpoint < float("inf"):
        raise UsageError(f"--checkpoint is {checkpoint:g} seconds. Give a positive number, or 0 for none.")


def _finish(
    directory: Path, context: Context, choice: Choice, automatic: bool, executor: Executor, select: str
) -> None:
    """Runs what is missing and prints the table."""
    from seqdg.report.sheet import build_sheet
    from seqdg.report.table import render
    from seqdg.results.directory import lock_directory
    from seqdg.results.record import FAILED
    from seqdg.results.store import Store

    with lock_directory(directory):
        store = Store.create(directory, context.benchmark.name)
        try:
            made, failed = _run(store, context, choice, automatic, executor)
        except KeyboardInterrupt:
            _interrupted(store, directory)
            raise typer.Exit(130) from None
        place = {t.key: i for i, t in enumerate(made.trials)}
        records = sorted((r for r in store.records("accuracy") if r.key in place), key=lambda r: place[r.key])
        store.close()
    if any(r.status != FAILED for r in records):
        typer.echo(render(build_sheet(records, select)), nl=False)
    if failed:
        last = failed[-1].error.strip().splitlines()[-1]
        names = ", ".join(dict.fromkeys(record.algorithm for record in failed))
        print(
            f"seqdg: {len(failed)} trials failed ({last}), of {names}. `seqdg status {directory} --errors` shows "
            "where; running the command again retries them.",
            file=sys.stderr,
        )
        raise typer.Exit(1)


def _run(
    store: Store, context: Context, choice: Choice, automatic: bool, executor: Executor
) -> tuple[Plan, list[Record]]:
    """The plan, of which all that was missing has been run, and what failed of it."""
    from seqdg.base.files import Folder
    from seqdg.bench.cost import costs
    from seqdg.bench.executors.choice import is_short
    from seqdg.bench.executors.local import InProcess
    from seqdg.bench.plan import fill, make_plan, sweep
    from seqdg.cli.progress import shown
    from seqdg.cli.reading import counting
    from seqdg.results.commands import add_command

    with counting("reading images") as progress:
        notes = context.dataset(progress).notes
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    finished = store.finished()
    made = make_plan(context, choice, finished)
    add_command(store, command(), [t.description() for t in made.trials])
    if isinstance(context.keep.files, Folder):
        sweep(context.keep.files, finished)
    with counting("timing each algorithm") as progress:
        known = costs(made.missing, context, store, progress)
    if automatic and is_short([known.get(group.key) for group in made.missing]):
        executor = InProcess()
    _say(context.benchmark.title, made, known, min(executor.slots, len(made.missing)), store.path.parent)
    if context.keep.weights:
        _say_unsaved(made, finished, store.path.parent)
    with shown(context.benchmark.name) as show:
        return made, fill(store, made, context, executor, known, show)


def _say(title: str, made: Plan, costs: Mapping[str, float], slots: int, directory: Path) -> None:
    from seqdg.bench.cost import longest_first, makespan
    from seqdg.results.status import format_duration

    left = sum(len(g.trials) for g in made.missing)
    done = f"{len(made.trials)} trials, {len(made.trials) - left} of them done"
    words = [f"{done}; {left} to run in {len(made.missing)} group{'' if len(made.missing) == 1 else 's'}"]
    if made.missing and len(costs) == len(made.missing):
        seconds = makespan([costs[g.key] for g in longest_first(made.missing, costs)], slots)
        words.append(f", {format_duration(seconds)} with {slots} worker{'s' if slots > 1 else ''}")
    print(title, f"{''.join(words)}. Results in {directory}.", sep="\n", file=sys.stderr)


def _say_unsaved(made: Plan, finished: Container[str], directory: Path) -> None:
    """Finished trials are never repeated, not even for their weights."""
    done = [t.key for t in made.trials if t.key in finished]
    lost = sum(not (directory / "weights" / f"{key}.safetensors").exists() for key in done)
    if lost:
        print(f"Of {lost} trials that were done before, no weights were kept.", file=sys.stderr)


def _interrupted(store: Store, directory: Path) -> None:
    stored = len(store.finished())
    print(f"seqdg: interrupted; {stored} trials are stored in {directory}. To go on: {command()}", file=sys.stderr)


def command() -> str:
    """What the user typed."""
    return shlex.join(["seqdg", *sys.argv[1:]])
