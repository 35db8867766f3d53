"""`seqdg learning-curve`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seqdg.cli import options
from seqdg.cli.rows import AskedRows, takes_rows


@takes_rows
def learning_curve(
    asked: AskedRows,
    algorithm: Annotated[str | None, typer.Option(help=f"The algorithm to train.  {options.USUAL_ALGORITHM}")] = None,
    criterion: Annotated[
        str | None, typer.Option(metavar=options.CRITERION_NAMES, help="The metric on unseen domains.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 500,
    lr: options.LearningRate = 0.003,
    seeds: Annotated[int, typer.Option(help="Trainings of every choice of domains.")] = 1,
    subsets: Annotated[int, typer.Option(help="Choices of every number of domains, at most.")] = 12,
    workers: Annotated[int | None, typer.Option(help="Processes to train in. Default: one per core.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write learning-curve.csv, by_training.csv and a picture."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed. The same seed gives the same numbers.")] = 0,
    device: options.Device = "auto",
) -> None:
    """Would one more domain help? Train on 1, 2, ... of your domains, and test on those left out.

        seqdg learning-curve patients.csv --label ill --domain hospital

    The last sentence says what one more domain than you have would be worth, if the curve goes on as it went.
    """
    from seqdg.base import UsageError
    from seqdg.bench import show_progress
    from seqdg.cli.announce import Announcement, note_task
    from seqdg.estimator import DomainClassifier, DomainRegressor, write_analysis
    from seqdg.estimator import learning_curve as trace
    from seqdg.estimator.compare import count_workers

    rows = asked.read()
    note_task(rows, asked.task, str(asked.label))
    Announcement(rows).say()
    if rows.domains is None:
        raise UsageError("A learning curve over domains needs to know them: give --domain.")
    asked_for = {"algorithm": algorithm, "criterion": criterion}
    given: dict[str, Any] = {name: value for name, value in asked_for.items() if value is not None}
    kind = DomainRegressor if rows.is_regression else DomainClassifier
    model = kind(steps=steps, lr=lr, random_state=seed, device=device, **given)
    with show_progress("training") as show:
        curve = trace(
            model, rows.x, rows.y, rows.domains, seeds=seeds, subsets=subsets, show=show,
            workers=count_workers(device) if workers is None else workers,
            say=lambda sentence: print(sentence, file=sys.stderr), sample_weight=rows.weight,
        )  # fmt: skip
    typer.echo(str(curve), nl=False)
    if out is not None:
        frames = {"learning-curve": curve.frame(), "by_training": curve.by_training()}
        for path in write_analysis(out, frames, curve.figure()):
            print(path, file=sys.stderr)
