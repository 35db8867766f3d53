"""Run a benchmark from Python: `seqdg.run`, which does what `seqdg bench` does."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqdg.base import DOMAINBED, UsageError, count_things, set_checkout, unknown
from seqdg.bench.benchmark import Request, load_benchmark
from seqdg.bench.executors.choice import ExecutorChoice
from seqdg.bench.running import Where, run_benchmark
from seqdg.core import format_value
from seqdg.report import Results
from seqdg.results import RULES


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
