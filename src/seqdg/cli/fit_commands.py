"""Commands that train on your own rows: fit, learning-curve."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqdg.cli import options
from seqdg.cli.options import AskedRows, takes_rows
from seqdg.cli.terminal import Announcement, note_task, quote_command

if TYPE_CHECKING:
    from seqdg.data import LabeledRows
    from seqdg.estimator import DomainEstimator
    from seqdg.estimator.compare import Comparison

SELECT = "both-near"


@takes_rows
def fit(
    asked: AskedRows,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Directory to save the model in.")],
    choose: Annotated[bool, typer.Option("--choose", help="Compare candidates and use the best.")] = False,
    algorithm: Annotated[
        str | None, typer.Option(help=f"The algorithm to train, without --choose.  {options.USUAL_ALGORITHM}")
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="What --choose compares beside agg: algorithms (fo-s-mldg+ema) and learners (logistic, svc). "
            "`seqdg list algorithms` shows all.  [default: eleven of both kinds]",
        ),
    ] = None,
    settings: options.Settings = None,
    search: options.Search = 1,
    sampler: Annotated[str, typer.Option(metavar="random|optuna", help="How --search draws candidates.")] = "random",
    select: Annotated[
        str,
        typer.Option(
            metavar="source-val|leave-one-out|leave-one-out-stopped|both[-1se|-near]",
            help="The rule that --choose follows: validation rows of the sources, sources held out in turn (-stopped: "
            "they choose the number of steps too), or the mean of both; with -1se, the simplest candidate within one "
            "standard error of the best; with -near, within a point of it too.",
        ),
    ] = SELECT,
    nested: Annotated[
        bool | None,
        typer.Option(
            help="Hold out pairs of domains, so that --choose is judged on domains that it has not seen.  [default: up "
            "to 6 domains]"
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(metavar="squared|absolute|huber", help="The loss, where a number is predicted.")
    ] = "squared",
    criterion: Annotated[
        str | None,
        typer.Option(
            metavar=options.CRITERION_NAMES,
            help="The metric by which steps, settings and the algorithm are chosen. "
            "[default: accuracy; of numbers, rmse]",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trials of every candidate and held-out domain.")] = 3,
    steps: Annotated[
        str,
        typer.Option(metavar="N|auto", help="Training steps. auto: as many as meet all rows three times, 500 to 5000."),
    ] = "auto",
    domains_per_step: Annotated[
        str, typer.Option(metavar="N|auto", help="Domains that a step meets; 0 is all. auto: 8, of more.")
    ] = "auto",
    lr: options.LearningRate = 0.003,
    schedule: Annotated[
        str, typer.Option(metavar="constant|cosine|steps", help="What becomes of the learning rate.")
    ] = "constant",
    warmup: Annotated[float, typer.Option(help="Share of the steps over which the rate first rises.")] = 0.0,
    scaling: Annotated[
        str, typer.Option(metavar="quantile|standard", help="How numbers of a table are scaled for a net.")
    ] = "quantile",
    members: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Nets that are trained from other seeds and whose probabilities are averaged. auto: 4 for a table.",
        ),
    ] = "auto",
    calibrate: Annotated[
        bool, typer.Option(help="Fit how sure the model is to rows of the same domains that were not trained on.")
    ] = True,
    class_weight: Annotated[
        str | None, typer.Option(metavar="balanced", help="Weight classes so that all count the same.")
    ] = None,
    net: Annotated[str | None, typer.Option(help="The net: mlp, resnet18, efficientnet-lite0, ...")] = None,
    hidden: Annotated[str, typer.Option(metavar="W,W|auto", help="Widths of the hidden layers of an mlp.")] = "auto",
    image_size: Annotated[int | None, typer.Option(help="Side of the images that enter the net.")] = None,
    estimate: Annotated[
        bool, typer.Option(help="Hold out every domain in turn to estimate accuracy on a new one.")
    ] = True,
    workers: Annotated[
        int | None, typer.Option(help="Processes that --choose trains in. Default: one per core.")
    ] = None,
    executor: options.Executor = "local",
    address: options.Address = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="About how long --choose may take. It tries the most promising candidates first, on at most 20,000 "
            "rows, says what it left out, and fits the winner on all rows."
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep what is trained for the comparison in DIR. Default: in MODEL.partial, until the model is saved.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed. The same seed gives the same model.")] = 0,
    device: options.Device = "auto",
    force: options.Force = False,
) -> None:
    """Train a model on your own domains, and estimate how well it will do on a new one.

        seqdg fit patients.csv --label ill --domain hospital --choose --out model

    The model is a directory: `seqdg predict`, `seqdg export` and `seqdg show` read it. Interrupt it whenever you like:
    the same command goes on where it stopped, to the same model.
    """
    from seqdg.base import UsageError
    from seqdg.data import parse_types
    from seqdg.estimator import check_destination, check_saving
    from seqdg.estimator.compare import remove_kept

    _check_choice(choose, algorithm, candidates, search, select)
    if minutes is not None and not choose:
        raise UsageError("--minutes is how long --choose may take: add --choose.")
    check_destination(out, force)
    check_saving(options.split_names(candidates) or _list_saved(asked.data, choose, algorithm or options.USUAL[0]))
    rows = asked.read()
    announcement = Announcement(rows, minutes)
    note_task(rows, asked.task, str(asked.label))
    parameters = {
        "net": net, "hidden": _parse_widths(hidden), "steps": _parse_count("--steps", steps), "lr": lr,
        "domains_per_step": _parse_count("--domains-per-step", domains_per_step), "schedule": schedule,
        "warmup": warmup, "scaling": scaling, "members": _parse_count("--members", members), "image_size": image_size,
        "device": device,
        "random_state": seed,
        **({} if criterion is None else {"criterion": criterion}),
    }  # fmt: skip
    template = _make_template(rows, parameters, loss, calibrate, class_weight)
    partial = runs or out.with_name(f"{out.name}.partial")
    where: dict[str, Any] = {"executor": executor, "address": address, "runs": partial}
    said: Sequence[str] = announcement.notes
    with _explain_interruption(partial):
        if choose:
            comparison = _compare(
                announcement, rows, template, options.split_names(candidates), settings or (), search=search,
                sampler=sampler, select=select, seeds=seeds, workers=workers, nested=nested, minutes=minutes, **where,
            )  # fmt: skip
            typer.echo(str(comparison), nl=False)
            model, said = comparison.estimator, [*said, *comparison.notes]
        else:
            model = _fit_one(
                announcement, rows, template, algorithm or str(template.algorithm), settings or (), estimate,
                seeds=seeds, workers=workers or 0, **where,
            )  # fmt: skip
            if "estimate" in model.model_.facts:
                typer.echo(model.model_.facts["estimate"]["sentence"])
                typer.echo(model.model_.facts["estimate"]["drivers"])
        columns = {
            "id": options.split_names(asked.identifier),
            "types": parse_types(options.split_words(asked.types)),
            "weight": asked.weight,
        }
        source = "standard input" if str(asked.data) == "-" else asked.data.name
        facts = {"label": asked.label, "domain": asked.domain, **{k: v for k, v in columns.items() if v}}
        model.add_facts(data=source, **facts)
        model.save(out)
    if runs is None:
        remove_kept(partial)
    announcement.say()
    _say_done(model, out, said)


def _make_template(
    rows: LabeledRows, parameters: dict[str, Any], loss: str, calibrate: bool, class_weight: str | None
) -> DomainEstimator:
    """Make the estimator of the task; refuse options of the other one."""
    from seqdg.base import UsageError
    from seqdg.estimator import DomainClassifier, DomainRegressor

    if rows.is_regression:
        if class_weight is not None:
            raise UsageError("--class-weight weighs classes, and a number is predicted: leave it out.")
        return DomainRegressor(loss=loss, **parameters)
    if loss != "squared":
        raise UsageError(f"--loss {loss} is a loss of numbers, and classes are told apart: leave it out.")
    return DomainClassifier(calibrate=calibrate, class_weight=class_weight, **parameters)


def _check_choice(choose: bool, algorithm: str | None, candidates: str | None, search: int, select: str) -> None:
    """Refuse options that would have no effect."""
    from seqdg.base import UsageError

    if choose and algorithm is not None:
        raise UsageError(
            "--choose looks for the algorithm by itself: leave out --algorithm, or name those to choose from with "
            "--candidates."
        )
    if not choose and candidates is not None:
        raise UsageError("--candidates are those to choose from: add --choose, or give one as --algorithm.")
    if not choose and search != 1:
        raise UsageError("--search makes candidates to choose from: add --choose.")
    if not choose and select != SELECT:
        raise UsageError("--select says how to choose: add --choose.")


def _list_saved(data: Path, choose: bool, algorithm: str) -> tuple[str, ...]:
    """List what may have to be saved, where the user named no candidates."""
    from seqdg.data import is_table
    from seqdg.estimator.compare import ALL_USUAL, NETS

    if not choose:
        return (algorithm,)
    return ALL_USUAL if is_table(data) else NETS


def _compare(
    announcement: Announcement,
    rows: LabeledRows,
    template: DomainEstimator,
    names: Sequence[str] | None,
    texts: Sequence[str],
    **how: Any,
) -> Comparison:
    from seqdg.bench import show_progress
    from seqdg.estimator.compare import DoubtfulChoice, compare, count_workers, parse_settings_texts

    settings = parse_settings_texts(texts, names)
    if how["workers"] is None:
        how["workers"] = 0 if how["executor"] == "ray" else count_workers(template.device)
    with show_progress("comparing") as show, warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulChoice)  # the comparison prints what they say
        return compare(
            rows.x,
            rows.y,
            rows.domains,
            names,
            settings,
            estimator=template,
            show=announcement.wrap(show),
            say=announcement.add,
            sample_weight=rows.weight,
            **how,
        )


def _fit_one(
    announcement: Announcement,
    rows: LabeledRows,
    template: DomainEstimator,
    name: str,
    texts: Sequence[str],
    estimate: bool,
    **how: Any,
) -> DomainEstimator:
    """Fit one algorithm, and estimate how it will do on the next domain where that is possible."""
    from seqdg.bench import show_progress
    from seqdg.estimator.compare import fit_and_estimate, parse_settings_texts

    settings = parse_settings_texts(texts, [name]).get(name, {})
    rate = settings.pop("lr", template.lr)
    model: DomainEstimator = template.set_params(algorithm=name, settings=settings or None, lr=rate)
    if not estimate:
        return model.fit(rows.x, rows.y, domains=rows.domains, sample_weight=rows.weight)
    with show_progress("holding out each domain") as show:
        model, reason = fit_and_estimate(
            rows.x, rows.y, rows.domains, model, show=announcement.wrap(show), say=announcement.add,
            sample_weight=rows.weight, **how,
        )  # fmt: skip
    if reason:
        print(f"seqdg: no estimate for the next domain: {reason}", file=sys.stderr)
    return model


@contextmanager
def _explain_interruption(partial: Path) -> Iterator[None]:
    """Say after Ctrl-C what is kept, and how to go on."""
    from seqdg.base import count_things
    from seqdg.estimator.compare import count_kept

    try:
        yield
    except KeyboardInterrupt:
        kept = count_things(count_kept(partial), "training")
        print(f"seqdg: interrupted; {kept} kept in {partial}. To go on: {quote_command()}", file=sys.stderr)
        raise typer.Exit(130) from None


def _parse_count(option: str, text: str) -> int | str:
    from seqdg.base import UsageError

    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise UsageError(f"{option} is '{text}', but it must be a whole number or auto.") from None


def _parse_widths(text: str) -> tuple[int, ...] | str:
    from seqdg.base import UsageError

    if text == "auto":
        return text
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"--hidden is '{text}', but it must be auto or whole numbers, such as 64,32.") from None


def _say_done(model: DomainEstimator, out: Path, said: Sequence[str]) -> None:
    for note in model.model_.facts["notes"]:
        if note not in said:
            print(f"note: {note}", file=sys.stderr)
    print(f"The model is in {out}. Next: seqdg show {out}", file=sys.stderr)


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
    from seqdg.estimator import DomainClassifier, DomainRegressor
    from seqdg.estimator.compare import count_workers
    from seqdg.estimator.inspect import learning_curve as trace
    from seqdg.estimator.inspect import write_analysis

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
            model, rows.x, rows.y, rows.domains, seeds=seeds, subsets=subsets, on_progress=show,
            workers=count_workers(device) if workers is None else workers,
            on_message=lambda sentence: print(sentence, file=sys.stderr), sample_weight=rows.weight,
        )  # fmt: skip
    typer.echo(str(curve), nl=False)
    if out is not None:
        frames = {"learning-curve": curve.frame(), "by_training": curve.by_training()}
        for path in write_analysis(out, frames, curve.figure()):
            print(path, file=sys.stderr)
