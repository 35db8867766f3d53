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
    from seqdg.data import LabeledRows
    from seqdg.estimator.classifier import DomainGeneralizer
    from seqdg.estimator.verdict import Comparison

DataArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="A .csv or .parquet, or a folder or .zip <domain>/<class>/<picture>.")
]

USUAL = "fo-s-mldg"


def fit(
    data: DataArgument,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Directory to save the model in.")],
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: the column of labels.")] = None,
    domain: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: the column of domains.")] = None,
    ignore: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to leave out, such as identifiers.")
    ] = None,
    choose: Annotated[bool, typer.Option("--choose", help="Compare algorithms and take the best.")] = False,
    algorithm: Annotated[
        str | None, typer.Option(help=f"The one to train by, where none is chosen.  [default: {USUAL}]")
    ] = None,
    algorithms: Annotated[str | None, typer.Option(metavar="A,B", help="Those that --choose compares.")] = None,
    settings: given.Settings = None,
    search: given.Search = 1,
    sampler: Annotated[str, typer.Option(metavar="random|optuna", help="What draws the candidates.")] = "random",
    select: Annotated[str, typer.Option(metavar="source-val|leave-one-out", help="How to choose.")] = "source-val",
    criterion: Annotated[
        str, typer.Option(metavar=given.CRITERIA, help="What steps, settings and algorithm are chosen by.")
    ] = "accuracy",
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
    from seqdg.bench.console import count_files
    from seqdg.data import read_rows
    from seqdg.estimator.classifier import DomainGeneralizer
    from seqdg.estimator.model_file import check_place

    _check_choice(choose, algorithm, algorithms, search, select)
    check_place(out)
    with count_files("reading images") as progress:
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
        model = _alone(rows, template, algorithm or USUAL, settings or (), estimate, how)
        if "estimate" in model.model_.facts:
            typer.echo(model.model_.facts["estimate"]["sentence"])
    model.add_facts(data=data.name, label=label, domain=domain)
    model.save(out)
    _say(model, out)


def _check_choice(choose: bool, algorithm: str | None, algorithms: str | None, search: int, select: str) -> None:
    """No option is passed over in silence."""
    from seqdg.base.errors import UsageError

    if choose and algorithm is not None:
        raise UsageError(
            "--choose looks for the algorithm by itself: leave out --algorithm, or name those to choose from with "
            "--algorithms."
        )
    if not choose and algorithms is not None:
        raise UsageError("--algorithms are those to choose from: add --choose, or give one as --algorithm.")
    if not choose and search != 1:
        raise UsageError("--search makes candidates to choose from: add --choose.")
    if not choose and select != "source-val":
        raise UsageError("--select says how to choose: add --choose.")


def _compared(
    rows: LabeledRows,
    template: DomainGeneralizer,
    names: Sequence[str] | None,
    texts: Sequence[str],
    how: dict[str, Any],
) -> Comparison:
    from seqdg.base.machine import count_cores
    from seqdg.bench.console import show_progress
    from seqdg.estimator.compare import USUAL, compare
    from seqdg.training.device import choose_device

    settings = _settings(texts, names or USUAL)
    if how["workers"] is None:
        many = count_cores() if choose_device(template.device) == "cpu" else 0
        how = {**how, "workers": many if many > 1 else 0}
    with show_progress("comparing") as show, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is part of what is printed
        return compare(rows.x, rows.y, rows.domains, names, settings, estimator=template, show=show, **how)


def _alone(
    rows: LabeledRows, template: DomainGeneralizer, name: str, texts: Sequence[str], estimate: bool, how: dict[str, Any]
) -> DomainGeneralizer:
    """One algorithm, with what to expect of it where that can be found out."""
    from seqdg.base.errors import UsageError
    from seqdg.bench.console import show_progress
    from seqdg.estimator.compare import SOURCE_VAL, compare

    settings = _settings(texts, [name])
    own = dict(settings.get(name, {}))
    rate = own.pop("lr", template.lr)
    model: DomainGeneralizer = template.set_params(algorithm=name, settings=own or None, lr=rate)
    model.recipe()
    if estimate:
        alone = {**how, "workers": how["workers"] or 0, "search": 1, "select": SOURCE_VAL}
        try:
            with show_progress("holding out each domain") as show:
                found = compare(
                    rows.x, rows.y, rows.domains, [name], settings, estimator=model, rules=(SOURCE_VAL,), baseline=None,
                    show=show, **alone,
                )  # fmt: skip
            return cast("DomainGeneralizer", found.estimator)
        except UsageError as error:
            model.fit(rows.x, rows.y, domains=rows.domains)  # first: what hinders this too is said once
            print(f"seqdg: no estimate for the next domain: {error}", file=sys.stderr)
            return model
    model.fit(rows.x, rows.y, domains=rows.domains)
    return model


def _settings(texts: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`fo-s-mldg.alpha=0.1` by algorithm and name; `lr` is an algorithm's learning rate."""
    from seqdg.bench.benchmark import split_settings
    from seqdg.core.registry import build
    from seqdg.core.settings import flatten_settings, parse_settings

    found = {}
    for name, own in split_settings(texts, names).items():
        rest = {setting: text for setting, text in own.items() if setting != "lr"}
        found[name] = {setting: flatten_settings(parse_settings(build(name), rest, name))[setting] for setting in rest}
        if "lr" in own:
            found[name]["lr"] = _rate(name, own["lr"])
    return found


def _rate(name: str, text: str) -> float:
    from seqdg.base.errors import UsageError

    try:
        return float(text)
    except ValueError:
        raise UsageError(f"lr of {name} is '{text}', but it must be a number.") from None


def _widths(text: str) -> tuple[int, ...]:
    from seqdg.base.errors import UsageError

    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"--hidden is '{text}', but it must be whole numbers, such as 64,32.") from None


def _say(model: DomainGeneralizer, out: Path) -> None:
    facts = model.model_.facts
    for note in facts["notes"]:
        print(f"note: {note}", file=sys.stderr)
    print(f"The model is in {out}. Next: seqdg show {out}", file=sys.stderr)
