"""`seqdg predict`"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options


def predict(
    model: options.Model,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A table (.csv, .tsv, .parquet, .xlsx, ...), - for standard input, or a folder or .zip of images.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Where to write predictions: .csv or .parquet; - for standard output."),
    ],
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="Where to predict. auto uses a GPU if there is one.")
    ] = "auto",
    identifier: options.Identifier = None,
    na: options.Gaps = None,
    encoding: options.Encoding = "",
    force: options.Force = False,
) -> None:
    """Predict every row of a table, or every image of a folder: a label and the probability of every class, or
    a number.

        seqdg predict model new.csv --out predictions.csv

        zcat new.csv.gz | seqdg predict model - --out - | head

    Rows are read, predicted and written some at a time, so a table may be larger than memory. If it has the column of
    labels, the accuracy is printed, and what was expected of it when the model was fitted; of numbers, RMSE and R².
    Of pictures, the folder that each lies in is its label, where the model knows a class of that name.
    """
    from seqdg.bench import count_files
    from seqdg.estimator import predict_file, read_model
    from seqdg.training import choose_device

    loaded = read_model(model, device=choose_device(device))
    with count_files("predicting") as progress, options.open_data(data) as place:
        tally = predict_file(
            loaded,
            place,
            out,
            progress,
            force=force,
            ids=options.split_names(identifier),
            na=options.split_words(na),
            encoding=encoding,
        )
    to_standard = str(out) == "-"
    for note in tally.notes.values():
        print(f"note: {note}", file=sys.stderr)
    weighted = f", weighted by '{tally.weight}'" if tally.weight else ""
    measured: Collection[str] = ()
    if tally.weighed and loaded.is_regression:
        measured = found = tally.measure()
        typer.echo(
            f"On {tally.labelled} rows with a number{weighted}: RMSE {found['rmse']:.4g}, MAE {found['mae']:.4g}, "
            f"R² {100 * found['r2']:.1f}, correlation {100 * found['pearson']:.1f} (points of 100)",
            err=to_standard,
        )
    elif tally.weighed:
        measured = ("accuracy",)
        right = 100 * tally.right / tally.weighed
        typer.echo(f"Accuracy on {tally.labelled} labelled rows{weighted}: {right:.1f} %", err=to_standard)
    estimate = loaded.facts.get("estimate")
    if estimate and estimate["criterion"] in measured and estimate["interval"] is not None:
        typer.echo(estimate["sentence"], err=to_standard)
    if not to_standard:
        print(f"{tally.rows} predictions are in {out}.", file=sys.stderr)
