"""`seqdg rerun`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.bench.rerun import Repeat

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TRIAL...]", help="Keys of trials, or their first letters. Default: a sample of all."),
]
Sample = Annotated[int, typer.Option(metavar="N", help="How many trials to draw where none are named.")]
Draw = Annotated[int, typer.Option(help="Another seed draws another sample.")]
Alone = Annotated[
    bool, typer.Option("--alone", help="Train each by itself, even where its stack would give the same bits.")
]
Within = Annotated[
    float,
    typer.Option(metavar="POINTS", help="Difference in accuracy that is let pass where the same number is not due."),
]
Listed = Annotated[bool, typer.Option("--list", help="Only list the trials with their keys.")]
Named = Annotated[
    str | None,
    typer.Option("--benchmark", metavar="FILE", help="The benchmark's file, where it is your own."),
]
Own = Annotated[
    str | None,
    typer.Option("--algorithms", metavar="A,B", help="Where algorithms of your own are: module:name or file.py:name."),
]


def rerun(
    directory: given.Results,
    trials: Keys = None,
    sample: Sample = 3,
    seed: Draw = 0,
    data: given.Data = None,
    device: given.Device = "auto",
    alone: Alone = False,
    within: Within = 1.0,
    list_them: Listed = False,
    benchmark: Named = None,
    algorithms: Own = None,
    weights: given.Weights = None,
    allow_partial: given.AllowPartial = False,
) -> None:
    """Train recorded trials again, from their descriptions alone, and say whether the accuracy is the same.

    On the kind of device and the torch of the record, a trial is trained in the stack that it was trained in, and
    every accuracy must be the same number. Elsewhere, and with --alone, rounding differs: then accuracy at the step
    that source validation chose and at the last one must be within --within points, or one test row where that is
    more. Exit code 1: some trial does not agree.

        seqdg rerun docs/results/pacs-features --sample 5 --data ~/data
    """
    from seqdg.bench.benchmark import load_benchmark
    from seqdg.bench.executors.session import Session
    from seqdg.bench.rerun import pick_records
    from seqdg.bench.rerun import rerun as again
    from seqdg.results.archive.reading import open_run
    from seqdg.training.device import choose_device

    results = open_run(directory)
    records, groups, name = results.records(), results.groups(), benchmark or results.benchmark
    results.close()
    if list_them:
        for r in records:
            typer.echo(f"{r.key}  {r.algorithm}  {','.join(r.held_out)}  seed {r.seed}  {r.status}")
        return
    wanted = pick_records(records, trials or (), sample, seed)
    chosen = load_benchmark(name).with_weights(weights)
    domains = tuple({d: None for r in wanted for d in r.held_out})
    session = Session(chosen.make_task(data, allow_partial, domains), choose_device(device))
    names = {name.rpartition(":")[2]: name for name in given.names(algorithms) or ()}
    found = []
    for repeat in again(records, wanted, session, groups, alone, within, names):
        found.append(repeat)
        r = repeat.recorded
        print(f"trained {len(found)} of {len(wanted)}: {r.algorithm}, {','.join(r.held_out)}", file=sys.stderr)
    typer.echo(_told(found), nl=False)
    if not all(c.agrees for c in found):
        raise typer.Exit(1)


def _told(found: Sequence[Repeat]) -> str:
    """Recorded and new accuracy side by side, and what was compared."""
    from seqdg.report.text import draw_table

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
    for c in found:
        r, numbers = c.recorded, []
        for step in (c.step, c.last):
            numbers += [_percent(c.accuracy(record, step)) for record in (r, c.again)]
        same = "same" if c.same_weights else "differ"
        verdict = "agrees" if c.agrees else "DIFFERS"
        lines.append([r.key, r.algorithm, ",".join(r.held_out), str(r.seed), str(c.step), *numbers, same, verdict])
    agree = sum(c.agrees for c in found)
    return "\n".join([*draw_table(lines), "", *_basis(found), f"{agree} of {len(found)} agree."]) + "\n"


def _basis(found: Sequence[Repeat]) -> list[str]:
    """What was asked of them."""
    said = []
    exact, near = [c for c in found if c.allowed == 0], [c for c in found if c.allowed > 0]
    if exact:
        new = exact[0].again
        said.append(
            f"{len(exact)} trained in the stack of the record, on the same kind of device ({new.device}) and torch "
            f"({new.versions['torch']}): accuracy must be the same at every evaluation."
        )
    if near:
        old, new = near[0].recorded, near[0].again
        here = "the same kind of device" if near[0].alike else f"{new.device}, torch {new.versions['torch']}"
        there = f"{old.device}, torch {old.versions.get('torch')}, {old.stacked} in a stack"
        said.append(
            f"{len(near)} trained alone on {here} (the record: {there}), where arithmetic is rounded otherwise: "
            f"accuracy must be within {max(c.allowed for c in near):.1f} points at the chosen and at the last step."
        )
    return said


def _percent(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.2f}"
