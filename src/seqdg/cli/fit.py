"""`seqdg fit`"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.estimator import DomainGeneralizer
    from seqdg.fitting.files import Rows
    from seqdg.fitting.verdict import Comparison

DataArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="A .csv or .parquet, or a folder or .zip <domain>/<class>/<picture>.")
]


def fit(
    data: DataArgument,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Directory to save the model in.")],
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: the column of labels.")] = None,
    domain: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: the column of domains.")] = None,
    ignore: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to leave out, such as identifiers.")
    ] = None,
    choose: Annotated[bool, typer.Option("--choose", help="Compare algorithms and take the best.")] = False,
    algorithm: Annotated[str, typer.Option(help="The one to train by, where none is chosen.")] = "fo-s-mldg",
    algorithms: Annotated[str | None, typer.Option(metavar="A,B", help="Those to choose from.")] = None,
    settings: given.Settings = None,
    search: given.Search = 1,
    sampler: Annotated[str, typer.Option(metavar="random|optuna", help="What draws the candidates.")] = "random",
    select: Annotated[str, typer.Option(metavar="source-val|leave-one-out", help="How to choose.")] = "source-val",
    criterion: given.Criterion = "accuracy",
    seeds: Annotated[int, typer.Option(help="Trials of everything that is compared.")] = 3,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 500,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.003,
    class_weight: Annotated[str | None, typer.Option(metavar="balanced", help="Give all classes the same say.")] = None,
    net: Annotated[str | None, typer.Option(help="mlp, resnet18, efficientnet-lite0, ...")] = None,
    hidden: Annotated[str, typer.Option(metavar="W,W", help="Widths of an mlp's hidden layers.")] = "64,32",
    image_size: Annotated[int | None, typer.Option(help="Side of the images that enter the net.")] = None,
    estimate: Annotated[bool, typer.Option(help="Hold out every domain in turn to say what to expect.")] = True,
    workers: Annotated[int | None, typer.Option(help="Processes to compare in. Default: one per core.")] = None,
    seed: Annotated[int, typer.Option(help="The same one gives the same model.")] = 0,
    device: given.Device = "auto",
) -> None:
    """Train a model on your own domains, and say what to expect of it on the next one.

        seqdg fit patients.csv --label ill --domain hospital --choose --out model

    The model is a directory: `seqdg predict`, `seqdg export` and `seqdg show` read it.
    """
    from seqdg.cli.reading import counting
    from seqdg.estimator import DomainGeneralizer
    from seqdg.fitting.files import read_rows

    with counting("reading images") as progress:
        rows = read_rows(data, label, domain, given.names(ignore) or (), progress)
    template = DomainGeneralizer(
        net=net, hidden=_widths(hidden), steps=steps, lr=lr, criterion=criterion, class_weight=class_weight,
        image_size=image_size, device=device, random_state=seed,
    )  # fmt: skip
    how = {"search": search, "sampler": sampler, "select": select, "seeds": seeds, "workers": workers}
    if choose:
        found = _compared(rows, template, given.names(algorithms), settings or (), how)
        typer.echo(str(found), nl=False)
        model = found.estimator
    else:
        model = _alone(rows, template, algorithm, settings or (), estimate, how)
        if "estimate" in model.model_.facts:
            typer.echo(model.model_.facts["estimate"]["sentence"])
    model.add_facts(data=data.name, label=label, domain=domain)
    model.save(out)
    _say(model, out)


def _compared(
    rows: Rows, template: DomainGeneralizer, names: Sequence[str] | None, texts: Sequence[str], how: dict[str, Any]
) -> Comparison:
    from seqdg.cli.progress import shown
    from seqdg.comparison import USUAL, compare
    from seqdg.executors.choice import device_of
    from seqdg.executors.process import cores

    settings = _settings(texts, names or USUAL)
    if how["workers"] is None:
        many = cores() if device_of(template.device) == "cpu" else 0
        how = {**how, "workers": many if many > 1 else 0}
    with shown("comparing") as show, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is part of what is printed
        return compare(rows.x, rows.y, rows.domains, names, settings, estimator=template, show=show, **how)


def _alone(
    rows: Rows, template: DomainGeneralizer, name: str, texts: Sequence[str], estimate: bool, how: dict[str, Any]
) -> DomainGeneralizer:
    """One algorithm, with what to expect of it where that can be found out."""
    from seqdg.cli.progress import shown
    from seqdg.comparison import SOURCE_VAL, compare
    from seqdg.errors import UsageError

    settings = _settings(texts, [name])
    model: DomainGeneralizer = template.set_params(algorithm=name, settings=settings.get(name))
    model.recipe()
    if estimate:
        own = {**how, "workers": how["workers"] or 0, "search": 1, "select": SOURCE_VAL}
        try:
            with shown("holding out each domain") as show:
                found = compare(
                    rows.x, rows.y, rows.domains, [name], settings, estimator=model, rules=(SOURCE_VAL,), baseline=None,
                    show=show, **own,
                )  # fmt: skip
            return cast("DomainGeneralizer", found.estimator)
        except UsageError as error:
            print(f"seqdg: no estimate for the next domain: {error}", file=sys.stderr)
    model.fit(rows.x, rows.y, domains=rows.domains)
    return model


def _settings(texts: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`fo-s-mldg.alpha=0.1` by algorithm and name."""
    from seqdg.benchmark import given_settings
    from seqdg.registry import build
    from seqdg.settings import flat, parsed

    return {
        name: {setting: flat(parsed(build(name), own))[setting] for setting in own}
        for name, own in given_settings(texts, names).items()
    }


def _widths(text: str) -> tuple[int, ...]:
    from seqdg.errors import UsageError

    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"--hidden is '{text}', but it must be whole numbers, such as 64,32.") from None


def _say(model: DomainGeneralizer, out: Path) -> None:
    facts = model.model_.facts
    for note in facts["notes"]:
        print(f"note: {note}", file=sys.stderr)
    print(f"The model is in {out}. Next: seqdg show {out}", file=sys.stderr)
