"""`seqdg rerun`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options

if TYPE_CHECKING:
    from seqdg.bench import Repeat

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TRIAL...]", help="Keys of trials, or their first letters. Default: a random sample."),
]
Sample = Annotated[int, typer.Option(metavar="N", help="How many trials to draw, if none are named.")]
Draw = Annotated[int, typer.Option(help="Seed of the sample.")]
Alone = Annotated[
    bool, typer.Option("--alone", help="Train each trial by itself, even where its stack would give the same bits.")
]
Within = Annotated[
    float,
    typer.Option(metavar="POINTS", help="Allowed difference in accuracy where the numbers cannot be exactly the same."),
]
List = Annotated[bool, typer.Option("--list", help="List the trials with their keys, and train nothing.")]
Benchmark = Annotated[
    str | None,
    typer.Option("--benchmark", metavar="FILE", help="The benchmark's file, if it is your own."),
]
Algorithms = Annotated[
    str | None,
    typer.Option("--algorithms", metavar="A,B", help="Your own algorithms in the run, as module:name or file.py:name."),
]


def rerun(
    directory: options.Results,
    trials: Keys = None,
    sample: Sample = 3,
    seed: Draw = 0,
    data: options.Data = None,
    device: options.Device = "auto",
    alone: Alone = False,
    within: Within = 1.0,
    list_them: List = False,
    benchmark: Benchmark = None,
    algorithms: Algorithms = None,
    weights: options.Weights = None,
    allow_partial: options.AllowPartial = False,
    domainbed: options.DomainBed = None,
) -> None:
    """Train recorded trials again from their descriptions alone, and check that the accuracy is the same.

    On the same kind of device and version of torch, a trial is trained in the same stack as before, and every accuracy
    must be the same number. Elsewhere, and with --alone, rounding differs: accuracy at the step chosen by source
    validation and at the last step must then be within --within points, or within one test row if that is more. Exit
    code 1 means that some trial does not agree. Of a trial of an older version of seqdg it says which commit reproduces
    it. Trials of your own algorithm are refused where its code has changed since.

        seqdg rerun docs/results/pacs-features --sample 5 --data ~/data
    """
    from seqdg.base import DOMAINBED, set_place
    from seqdg.bench import Session, load_benchmark, pick_records, refuse_changed_code
    from seqdg.bench import rerun as rerun_trials
    from seqdg.core import shorten
    from seqdg.results import Store, open_run
    from seqdg.training import choose_device

    set_place(DOMAINBED, domainbed)
    results = open_run(directory)
    records, groups, name = results.records(), results.groups(), benchmark or results.benchmark
    if list_them:
        for r in records:
            typer.echo(f"{r.key}  {r.algorithm}  {','.join(r.held_out)}  seed {r.seed}  {r.status}")
        return
    wanted = pick_records(records, trials or (), sample, seed)
    names = {shorten(name): name for name in options.split_names(algorithms) or ()}
    if isinstance(results, Store):  # a packed run has no code in it
        refuse_changed_code(
            results,
            directory,
            [names.get(r.algorithm, r.algorithm) for r in wanted],
            "the new code cannot repeat what the old code gave. Go back to the old code, or name trials of other "
            "algorithms: --list shows them all.",
        )
    results.close()
    chosen = load_benchmark(name).with_weights(weights)
    domains = tuple({d: None for r in wanted for d in r.held_out})
    session = Session(chosen.make_task(data, allow_partial, domains), choose_device(device))
    repeats = []
    for repeat in rerun_trials(records, wanted, session, groups, alone, within, names):
        repeats.append(repeat)
        r = repeat.recorded
        print(f"trained {len(repeats)} of {len(wanted)}: {r.algorithm}, {','.join(r.held_out)}", file=sys.stderr)
    typer.echo(_format_repeats(repeats), nl=False)
    if not all(c.agrees for c in repeats):
        raise typer.Exit(1)


def _format_repeats(repeats: Sequence[Repeat]) -> str:
    """Format recorded and new accuracy side by side, and say what was compared."""
    from seqdg.report import draw_table

    head = [
        "trial",
        "algorithm",
        "held out",
        "seed",
        "step",
        "recorded",
        "here",
        "last: recorded",
        "here",
        "weights",
        "",
    ]
    lines = [head]
    for c in repeats:
        r, numbers = c.recorded, []
        for step in (c.step, c.last):
            numbers += [_format_accuracy(c.accuracy(record, step)) for record in (r, c.again)]
        same = "not kept" if not r.weights else "same" if c.same_weights else "differ"
        verdict = "agrees" if c.agrees else "DIFFERS"
        lines.append([r.key, r.algorithm, ",".join(r.held_out), str(r.seed), str(c.step), *numbers, same, verdict])
    agree = sum(c.agrees for c in repeats)
    return "\n".join([*draw_table(lines), "", *_describe_rules(repeats), f"{agree} of {len(repeats)} agree."]) + "\n"


def _describe_rules(repeats: Sequence[Repeat]) -> list[str]:
    """Say what must agree, and why."""
    rules = []
    exact, near = [c for c in repeats if c.allowed == 0], [c for c in repeats if c.allowed > 0]
    if exact:
        new = exact[0].again
        rules.append(
            f"{len(exact)} trained in the stack of the record, on the same kind of device ({new.device}) and torch "
            f"({new.versions['torch']}): accuracy must be the same at every evaluation."
        )
    if near:
        old, new = near[0].recorded, near[0].again
        here = "the same kind of device" if near[0].alike else f"{new.device}, torch {new.versions['torch']}"
        there = f"{old.device}, torch {old.versions.get('torch')}, {old.stacked} in a stack"
        rules.append(
            f"{len(near)} trained alone on {here} (the record: {there}), where arithmetic is rounded otherwise: "
            f"accuracy must be within {max(c.allowed for c in near):.1f} points at the chosen and at the last step."
        )
    return rules


def _format_accuracy(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.2f}"
