"""`seqdg importance`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options


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
    from seqdg.estimator import importance as measure
    from seqdg.estimator import load_estimator, write_analysis

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
            scoring=scoring, random_state=seed, show=show, sample_weight=rows.weight,
        )  # fmt: skip
    typer.echo(str(found), nl=False)
    if out is not None:
        frames = {"importance": found.frame(), "by_domain": found.by_domain()}
        for path in write_analysis(out, frames, found.figure()):
            print(path, file=sys.stderr)
