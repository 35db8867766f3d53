"""`seqdg predictions`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options

Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="A file that ends in .csv or .parquet.")]
Step = Annotated[
    str,
    typer.Option(metavar="chosen|last", help="The step that source validation chose for a trial, or its last."),
]


def predictions(directory: options.RunDirectory, out: Out, step: Step = "chosen") -> None:
    """Write what every trial says of every held-out row, of a run that `seqdg bench --save-predictions` made.

    seqdg predictions runs/rotated-mnist --out predictions.csv
    """
    from seqdg.base import count_things
    from seqdg.results import write_predictions

    written = write_predictions(directory, out, step)
    typer.echo(f"{written.rows} rows of {count_things(written.trials, 'trial')} are in {out}.")
    if written.lacking:
        typer.echo(f"Of {written.lacking} trials no predictions were kept.")
