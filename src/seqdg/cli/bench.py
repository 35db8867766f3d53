"""`seqdg bench`"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.bench import Plan


def bench(
    benchmark: given.BenchmarkName = "rotated-mnist",
    algorithms: given.Algorithms = None,
    held_out: given.HeldOut = None,
    trials: given.Trials = None,
    steps: given.Steps = None,
    seed: given.Seed = 0,
    settings: given.Settings = None,
    out: given.Out = None,
    data: given.Data = None,
    device: given.Device = "auto",
    select: given.Select = "source-val",
    weights: given.Weights = None,
    allow_partial: given.AllowPartial = False,
) -> None:
    """Compare algorithms: run what is missing, print the table.

    Each trial trains on all domains but one and is tested on that one. Interrupt it whenever you like: running the same
    command again does only what is missing.

        seqdg bench --algorithms agg,fo-s-mldg --trials 3
    """
    from seqdg.bench import default_out, device_of, fill, make_plan
    from seqdg.benchmark import Choice, load_benchmark
    from seqdg.cli.progress import bar
    from seqdg.cli.reading import counting
    from seqdg.cli.table import shown
    from seqdg.commands import remember
    from seqdg.errors import unknown
    from seqdg.executors import local
    from seqdg.executors.context import Context
    from seqdg.report.select import RULES
    from seqdg.store import Store, make_directory, writing

    if select not in RULES:
        raise unknown("selection rule", select, RULES)
    chosen = load_benchmark(benchmark).with_weights(weights)
    directory = out or default_out(chosen)
    make_directory(directory)
    context = Context(chosen, data, device_of(device), allow_partial)
    choice = Choice(
        algorithms=given.names(algorithms), held_out=given.names(held_out), trials=trials, steps=steps, seed=seed,
        settings=settings or (), leave_one_out=select == "leave-one-out",
    )  # fmt: skip
    with writing(directory):
        store = Store.create(directory, chosen.name)
        with counting("reading images") as progress:
            context.dataset(progress)
        made = make_plan(context, choice, store.finished())
        remember(store, shlex.join(["seqdg", *sys.argv[1:]]), made.trials)
        _say(chosen.title, made, directory)
        with bar(f"{chosen.name}", made.work) as tick:
            failed = fill(store, made, context, local.run, tick)
        wanted = {t.key for t in made.trials}
        records = [r for r in store.records() if r.key in wanted]
        store.close()
    typer.echo(shown(records, "text", select, [t.key for t in made.trials]), nl=False)
    if failed:
        last = failed[-1].error.strip().splitlines()[-1]
        print(f"seqdg: {len(failed)} trials failed ({last}). Running the command again retries them.", file=sys.stderr)
        raise typer.Exit(1)


def _say(title: str, made: Plan, directory: Path) -> None:
    left = sum(len(g.trials) for g in made.missing)
    done = f"{len(made.trials)} trials, {len(made.trials) - left} of them done"
    print(
        title,
        f"{done}; {left} to run in {len(made.missing)} groups. Results in {directory}.",
        sep="\n",
        file=sys.stderr,
    )
