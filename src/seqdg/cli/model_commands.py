"""Commands that use a fitted model: predict, show, export, importance."""

from __future__ import annotations

import json
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


def show(
    model: options.Model,
    as_json: options.AsJson = False,
) -> None:
    """Show a model's card: what it was trained on, how it was chosen, what to expect, and which versions made it."""
    from seqdg.estimator import read_description, read_model, render_card

    description = read_description(model)
    if description.get("net") is not None or "learner" in description:
        read_model(model)  # which checks that the weights are complete and unchanged
    typer.echo(json.dumps(description, indent=1) if as_json else render_card(description), nl=as_json)


def export(
    model: options.Model,
    onnx: Annotated[Path, typer.Option("--onnx", "--out", metavar="FILE", help="The ONNX file to write.")],
) -> None:
    """Write a model and its preprocessing as one ONNX file, and check it with onnxruntime.

    seqdg export model --onnx model.onnx
    """
    from seqdg.estimator import describe_signature, export_onnx, list_outputs, read_model

    loaded = read_model(model)
    gap = export_onnx(loaded, onnx)
    shape = "(row,)" if loaded.is_regression else f"(row, {len(loaded.classes)})"
    typer.echo(f"{onnx}: reads {describe_signature(loaded)}; gives {' and '.join(list_outputs(loaded))} {shape}.")
    what, unit = ("predictions", " deviations") if loaded.is_regression else ("probabilities", "")
    typer.echo(f"Checked against onnxruntime: {what} agree to {max(gap, 1e-16):.0e}{unit}.")


def importance(
    model: options.Model,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="The table that the model was fitted on, or one like it.")
    ],
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="The columns to shuffle. Default: all.")] = None,
    repeats: Annotated[int, typer.Option(help="Shuffles of every column.")] = 5,
    scoring: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A score of scikit-learn, such as balanced_accuracy. Default: accuracy or R²."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write importance.csv, by_domain.csv and importance.svg."),
    ] = None,
    types: options.Types = None,
    na: options.Gaps = None,
    drop_unlabeled: options.DropUnlabeled = False,
    weight: options.Weight = None,
    encoding: options.Encoding = "",
    seed: Annotated[int, typer.Option(help="Random seed. The same seed gives the same numbers.")] = 0,
    device: options.Device = "auto",
) -> None:
    """Say which columns help on domains that the model has not seen, and which only where it was trained.

        seqdg importance model patients.csv --out importance

    The model is fitted anew with each domain held out in turn. Each column is then shuffled within its domain: how much
    the score drops on the held-out domain, and on rows of the others that were set aside, is what the column is worth.
    The table is read as in `seqdg fit`, whose --label, --domain, --types, --na and --weight the model remembers.
    """
    from seqdg.base import UsageError
    from seqdg.bench import count_files
    from seqdg.data import Frame, parse_types, read_rows
    from seqdg.estimator import load_estimator
    from seqdg.estimator.inspect import importance as measure
    from seqdg.estimator.inspect import write_analysis

    fitted = load_estimator(model, device)
    facts = fitted.model_.facts
    preprocessing = getattr(fitted.model_.input, "preprocessing", None)
    known = getattr(fitted, "feature_names_in_", None)
    with options.open_data(data) as place:
        rows = read_rows(
            place, facts.get("label"), facts.get("domain"), only=None if known is None else list(known),
            types={**facts.get("types", {}), **parse_types(options.split_words(types))}, encoding=encoding,
            na=(*(preprocessing.na if preprocessing else ()), *options.split_words(na)),
            task="number" if fitted.is_regressor else "class", weight=weight or facts.get("weight"),
            drop_unlabeled=drop_unlabeled,
        )  # fmt: skip
    if not isinstance(rows.x, Frame):
        raise UsageError(f"Columns are shuffled, and {data} holds images: give a table.")
    if rows.domains is None:
        raise UsageError(f"The model in {model} was fitted without --domain: fit it with one.")
    with count_files("holding out each domain") as show:
        found = measure(
            fitted, rows.x, rows.y, rows.domains, columns=options.split_names(columns), repeats=repeats,
            scoring=scoring, random_state=seed, on_progress=show, sample_weight=rows.weight,
        )  # fmt: skip
    typer.echo(str(found), nl=False)
    if out is not None:
        frames = {"importance": found.frame(), "by_domain": found.by_domain()}
        for path in write_analysis(out, frames, found.figure()):
            print(path, file=sys.stderr)
