"""`seqdg study`"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options

File = Annotated[Path, typer.Argument(metavar="FILE", help="The study's file, such as benchmarks/study.toml.")]
Out = Annotated[Path, typer.Option(help="Where the run directories of its parts are, one for each: DIR/SET/KIND.")]
Parts = Annotated[
    str | None, typer.Option(metavar="A,B", help="Parts to run, by name; a set stands for all its parts, and * works.")
]
Minutes = Annotated[
    float,
    typer.Option(
        metavar="N",
        help="Stop when so many minutes are over, between groups or, with workers, within. Default: no limit.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and what is done.")]
AnswersOnly = Annotated[bool, typer.Option("--answers", help="Print the answers to the hypotheses.")]
Publish = Annotated[
    bool,
    typer.Option("--publish", help="Pack the run directories of the parts into the folder that the file names."),
]
Restore = Annotated[
    bool, typer.Option("--restore", help="Copy the published records into the run directories, and train nothing.")
]
FromNothing = Annotated[
    bool,
    typer.Option(
        "--from-nothing",
        help="As if nothing were published: what is in --out alone counts as done, or is answered from. Where --out is "
        "empty, everything is trained again.",
    ),
]
Prepare = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the tables and features of its parts below DIR, for --data DIR where pyarrow is missing.",
    ),
]
Format = Annotated[str, typer.Option("--format", metavar="text|markdown|json", help="Format of the answers.")]
Figures = Annotated[
    Path | None, typer.Option(metavar="DIR", help="With --answers: draw them, as SVG, PDF and PNG files in DIR.")
]

Select = Annotated[
    str | None,
    typer.Option(
        metavar="source-val|last|oracle|oracle-split",
        help="With --answers: how the step that counts is chosen, as by `seqdg table`. Settings stay those that source "
        "validation chose.  [default: source-val]",
    ),
]


def study(
    file: File,
    out: Out = Path("runs/study"),
    data: options.Data = None,
    device: options.Device = "auto",
    parts: Parts = None,
    minutes: Minutes = math.inf,
    workers: options.Workers = None,
    dry_run: DryRun = False,
    answers: AnswersOnly = False,
    publish: Publish = False,
    restore: Restore = False,
    from_nothing: FromNothing = False,
    prepare: Prepare = None,
    format: Format = "text",
    figures: Figures = None,
    select: Select = None,
) -> None:
    """Run a study, part by part, or print its answers.

    Interrupt it whenever you like: the same command continues where it stopped. Trials in the published records that
    the file names count as done.

        seqdg study benchmarks/study.toml --data DIR --minutes 9
    """
    from seqdg.base import UsageError
    from seqdg.study import load_study

    read = load_study(file)
    if from_nothing:
        if publish or restore:
            raise UsageError(
                "--from-nothing goes with running, --dry-run and --answers, not with --publish or --restore."
            )
        read = replace(read, published=None)
    if select is not None and not answers:
        raise UsageError("--select goes with --answers: what is trained is always chosen by source validation.")
    chosen = read.select_parts(options.split_names(parts))
    if dry_run:
        from seqdg.study import describe_plan

        typer.echo(describe_plan(read, chosen, out, data, workers or 1))
    elif answers:
        from seqdg.study import USUAL, answer_study, render_answers

        found = answer_study(read, out, select or USUAL)
        typer.echo(render_answers(found, format).rstrip("\n"))
        if figures is not None:
            from seqdg.report import write_figures
            from seqdg.study import make_answers_figure

            for path in write_figures([make_answers_figure(found)], figures):
                print(path, file=sys.stderr)
    elif restore:
        from seqdg.study import StudyWhere, restore_parts

        typer.echo(f"{restore_parts(read, chosen, StudyWhere(out, data))} trials are in {out}.")
    elif prepare is not None:
        from seqdg.study import prepare_data

        for path in prepare_data(chosen, data, prepare):
            typer.echo(f"{path}, {path.stat().st_size / 1e6:.2f} MB.")
    elif publish:
        from seqdg.study import publish_parts

        for line in publish_parts(read, chosen, out):
            typer.echo(line)
    else:
        from seqdg.study import OutOfTime, StudyWhere, run_study

        try:
            failed = run_study(read, chosen, StudyWhere(out, data, device, workers, minutes))
        except OutOfTime:
            typer.echo("The minutes are over. The same command goes on where this one stopped.")
            return
        except KeyboardInterrupt:
            print("seqdg: interrupted; the same command goes on where this one stopped.", file=sys.stderr)
            raise typer.Exit(130) from None
        if failed:
            reason = failed[0].error.strip().splitlines()[-1]
            print(
                f"seqdg: {len(failed)} trials failed, the first ({failed[0].algorithm}) by: {reason}", file=sys.stderr
            )
            raise typer.Exit(1)
        typer.echo("All parts are done.")
