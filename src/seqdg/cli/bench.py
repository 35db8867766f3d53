"""`seqdg bench`"""

from __future__ import annotations

import shlex
import sys
import warnings
from pathlib import Path

import typer

from seqdg.cli import options as given


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
    from seqdg.bench.benchmark import load_benchmark
    from seqdg.bench.run import default_directory
    from seqdg.report.run import describe_failures, run
    from seqdg.results.record import FAILED

    directory = out or default_directory(load_benchmark(benchmark))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what failed is said below
            results = run(
                benchmark, given.names(algorithms), held_out=given.names(held_out), trials=trials, steps=steps,
                seed=seed, settings=settings or (), search=search, select=select, precision=precision, data=data,
                out=directory, device=device, executor=executor, workers=workers, gpus_per_worker=gpus_per_worker,
                address=address, checkpoint=checkpoint, save_weights=save_weights, weights=weights,
                allow_partial=allow_partial, command=command(),
            )  # fmt: skip
    except KeyboardInterrupt:
        _say_interrupted(directory)
        raise typer.Exit(130) from None
    if any(record.status != FAILED for record in results.records("accuracy")):
        typer.echo(results.table(select))
    if results.failures():
        print(f"seqdg: {describe_failures(results)}", file=sys.stderr)
        raise typer.Exit(1)


def _say_interrupted(directory: Path) -> None:
    from seqdg.results.store import Store

    store = Store.open(directory)
    stored = len(store.finished())
    store.close()
    print(f"seqdg: interrupted; {stored} trials are stored in {directory}. To go on: {command()}", file=sys.stderr)


def command() -> str:
    """Return what the user typed."""
    return shlex.join(["seqdg", *sys.argv[1:]])
