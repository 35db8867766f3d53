"""`seqdg bench`"""

from __future__ import annotations

import shlex
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import typer

from seqdg.cli import options


def bench(
    benchmark: options.BenchmarkName = "rotated-mnist",
    algorithms: options.Algorithms = None,
    held_out: options.HeldOut = None,
    trials: options.Trials = None,
    steps: options.Steps = None,
    seed: options.Seed = 0,
    settings: options.Settings = None,
    search: options.Search = 1,
    reuse: options.Reuse = False,
    settings_from: options.SettingsFrom = None,
    precision: options.Precision = None,
    out: options.Out = None,
    data: options.Data = None,
    device: options.Device = "auto",
    executor: options.Executor = "local",
    workers: options.Workers = None,
    gpus_per_worker: options.GpusPerWorker = None,
    address: options.Address = None,
    compile: options.Compile = "auto",
    checkpoint: options.Checkpoint = 60.0,
    save_weights: options.SaveWeights = None,
    save_predictions: options.SavePredictions = False,
    select: options.Select = "source-val",
    weights: options.Weights = None,
    allow_partial: options.AllowPartial = False,
    domainbed: options.DomainBed = None,
    log: options.Log = None,
) -> None:
    """Compare algorithms: run the trials that are missing, and print the table.

    Each trial trains on all domains but one and is tested on that one. Interrupt it whenever you like: the same command
    continues where it stopped.

        seqdg bench --algorithms agg,fo-s-mldg --trials 3
    """
    from seqdg.bench import FailedTrials, default_directory, describe_failures, load_benchmark, run
    from seqdg.results import FAILED

    directory = out or default_directory(load_benchmark(benchmark))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedTrials)  # they are printed below
            results = run(
                benchmark, options.split_names(algorithms), held_out=options.split_names(held_out), trials=trials,
                steps=steps, seed=seed, settings=settings or (), search=search, reuse=reuse,
                settings_from=settings_from, select=select, precision=precision,
                data=data, out=directory, device=device, executor=executor, workers=workers,
                gpus_per_worker=gpus_per_worker, address=address, compile=compile, checkpoint=checkpoint,
                save_weights=save_weights or False, save_predictions=save_predictions,
                weights=weights, allow_partial=allow_partial, domainbed=domainbed,
                log=[name for text in log or () for name in options.split_names(text) or ()], command=quote_command(),
            )  # fmt: skip
    except KeyboardInterrupt:
        _say_interrupted(directory)
        raise typer.Exit(130) from None
    statuses = results.count_statuses()
    if any(status != FAILED for status in statuses):
        typer.echo(results.table(select))
    if statuses[FAILED]:
        print(f"seqdg: {describe_failures(results)}", file=sys.stderr)
        raise typer.Exit(1)


def _say_interrupted(directory: Path) -> None:
    from seqdg.base import UsageError
    from seqdg.results import Store

    stored = 0
    with suppress(UsageError):  # it may not have begun
        store = Store.open(directory)
        stored = len(store.finished())
        store.close()
    print(
        f"seqdg: interrupted; {stored} trials are stored in {directory}. To go on: {quote_command()}", file=sys.stderr
    )


def quote_command() -> str:
    """Return the command as the user typed it, quoted for a shell."""
    return shlex.join(["seqdg", *sys.argv[1:]])
