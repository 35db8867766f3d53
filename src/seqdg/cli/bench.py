"""`seqdg bench`"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.bench.run import BenchmarkRun


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
    from seqdg.base.errors import unknown
    from seqdg.bench.benchmark import Request, load_benchmark
    from seqdg.bench.executors.choice import ExecutorChoice
    from seqdg.bench.run import Where, default_directory, run_benchmark
    from seqdg.results.select import RULES

    if select not in RULES:
        raise unknown("selection rule", select, RULES)
    chosen = load_benchmark(benchmark).with_weights(weights)
    directory = out or default_directory(chosen)
    where = Where(
        data, directory, device, ExecutorChoice(executor, workers, gpus_per_worker, address), checkpoint, save_weights,
        allow_partial,
    )  # fmt: skip
    request = Request(
        algorithms=given.names(algorithms), held_out=given.names(held_out), trials=trials, steps=steps, seed=seed,
        settings=settings or (), search=search, leave_one_out=select == "leave-one-out",
        precision=precision,
    )  # fmt: skip
    try:
        run = run_benchmark(chosen, request, where, command())
    except KeyboardInterrupt:
        _say_interrupted(directory)
        raise typer.Exit(130) from None
    _print_table(run, select)
    if run.failed:
        _say_failed(run)
        raise typer.Exit(1)


def _print_table(run: BenchmarkRun, select: str) -> None:
    from seqdg.report.sheet import build_sheet
    from seqdg.report.table import render
    from seqdg.results.record import FAILED
    from seqdg.results.store import Store

    place = {trial.key: i for i, trial in enumerate(run.plan.trials)}
    store = Store.open(run.directory)
    records = sorted((r for r in store.records("accuracy") if r.key in place), key=lambda r: place[r.key])
    store.close()
    if any(r.status != FAILED for r in records):
        typer.echo(render(build_sheet(records, select)), nl=False)


def _say_failed(run: BenchmarkRun) -> None:
    last = run.failed[-1].error.strip().splitlines()[-1]
    names = ", ".join(dict.fromkeys(record.algorithm for record in run.failed))
    print(
        f"seqdg: {len(run.failed)} trials failed ({last}), of {names}. `seqdg status {run.directory} --errors` shows "
        "where; running the command again retries them.",
        file=sys.stderr,
    )


def _say_interrupted(directory: Path) -> None:
    from seqdg.results.store import Store

    store = Store.open(directory)
    stored = len(store.finished())
    store.close()
    print(f"seqdg: interrupted; {stored} trials are stored in {directory}. To go on: {command()}", file=sys.stderr)


def command() -> str:
    """Return what the user typed."""
    return shlex.join(["seqdg", *sys.argv[1:]])
