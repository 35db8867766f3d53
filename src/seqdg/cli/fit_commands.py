"""Commands for your own data and the models of it: fit, features, predict, show, export, learning-curve, importance."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from seqdg import base, bench, estimator, nets
from seqdg import data as datasets
from seqdg.cli import options
from seqdg.cli.terminal import Announcement, explain_interruption, note_task, say
from seqdg.estimator import compare as comparing

SELECT = "both-near"
TRAINED = ("mlp",)  # nets that a table trains, whatever makes its features
CURVE_FILES = ("learning-curve.csv", "by_training.csv")
IMPORTANCE_FILES = ("importance.csv", "by_domain.csv")


def fit(
    file: Path,
    /,
    table: options.TableOptions,
    out: Path,
    choose: bool = False,
    algorithms: str | None = None,
    single: bool = False,
    settings: options.Settings = None,
    search: int = 1,
    sampler: str = "random",
    select: str = SELECT,
    nested: bool | None = None,
    loss: str = "squared",
    criterion: str | None = None,
    trials: int | None = None,
    steps: str = "auto",
    domains_per_step: str = "auto",
    lr: float = 0.003,
    schedule: str = "constant",
    warmup: float = 0.0,
    scaling: str = "quantile",
    members: str = "auto",
    calibrate: bool = True,
    class_weight: str | None = None,
    net: str | None = None,
    weights: Path | None = None,
    finetune: bool | None = None,
    hidden: str = "auto",
    image_size: int | None = None,
    estimate: bool = True,
    workers: int | None = None,
    executor: str = "local",
    address: str | None = None,
    minutes: float | None = None,
    runs: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    force: bool = False,
) -> None:
    """Train a model, and estimate its accuracy on a new domain.

        seqdg fit patients.csv --label ill --domain hospital --out model

    For a table, a few candidates (a linear model, gradient boosting, a forest, a neural network) are compared and
    combined in a weighted ensemble; with --choose, all usual ones. The model is a directory: `seqdg predict`, `seqdg
    export` and `seqdg show` read it. Interrupt it whenever you like: the same command continues to the same model.

    Most tables need no other options. --minutes limits the time; --id, --ignore, --types and --na say how columns are
    read.

        seqdg fit photos/ --choose --net dinov2-small --weights dinov2_vits14_pretrain.pth --out model

    Pictures pass once through a frozen network, if its weights are given or on this machine, and its features are
    compared and combined as a table is. The model holds the network, and predicts from pictures.

    Parameters
    ----------
    out : MODEL
        Directory to save the model in.
    choose
        Compare all usual candidates, or --algorithms, and combine them.
    algorithms : A,B
        What to train: one name trains it alone; several are compared, beside agg. They are algorithms (fo-s-mldg+ema)
        and learners (logistic, xgboost); `seqdg list algorithms` shows all. Default: of a table, a few of both kinds,
        or eleven with --choose; of images, fo-s-mldg+ema.
    single
        Keep the one candidate that --select chooses, in place of the ensemble.
    sampler : random|optuna
        How --search draws candidates.
    select : source-val|leave-one-out|leave-one-out-stopped|both[-1se|-near]
        The rule that --choose follows: validation rows of the sources, sources held out in turn (-stopped: they
        choose the number of steps too), or the mean of both; with -1se, the simplest candidate within one standard
        error of the best; with -near, within a point of it too.
    nested
        Hold out pairs of domains, so that --choose is judged on domains that it has not seen.  [default: up to 6
        domains]
    loss : squared|absolute|huber
        The loss, for regression.
    criterion : CRITERION
        The metric by which steps, settings and the algorithm are chosen. Default: accuracy; for regression, rmse.
    trials
        Trials of every candidate and held-out domain. Default: 3; of the few candidates without --choose, 1.
    steps : N|auto
        Training steps. auto: as many as meet all rows three times, 500 to 5000.
    domains_per_step : N|auto
        Domains per step; 0 is all. auto: at most 8, where the algorithm allows it.
    schedule : constant|cosine|steps
        The learning rate schedule.
    warmup
        Share of the steps over which the rate first rises.
    scaling : quantile|standard
        How numbers of a table are scaled for a neural network.
    members : N|auto
        Networks trained from other seeds, whose probabilities are averaged. auto: 4 for a table.
    calibrate
        Calibrate probabilities on rows of the same domains that were not trained on.
    class_weight : balanced
        Weight classes so that all count the same.
    net
        The network: mlp, resnet18, efficientnet-lite0, ...; of pictures and --text also those of `seqdg features`, as
        dinov2-small and minilm. Default: an mlp; of pictures dinov2-small if its weights are on this machine, else
        efficientnet-lite0.
    weights : FILE
        The weight file of --net. Default: that of an installed package, or of the hub.
    finetune
        Train the whole network on pictures; --no-finetune: keep it frozen, and train on its features.  [default:
        dinov2-small and others of `seqdg features` are frozen]
    hidden : W,W|auto
        Widths of the hidden layers of an mlp.
    image_size
        Side of the images that enter the network.
    estimate
        Hold out every domain in turn to estimate accuracy on a new one.
    workers
        Processes that --choose trains in. Default: one per core.
    minutes
        About how long it may all take. The cheapest candidates are tried first, on at most 20,000 rows; the output
        says what was left out; the winner is fitted on all rows, the heaviest members of an ensemble first.
    runs : DIR
        Keep what is trained for the comparison in DIR. Default: in MODEL.partial, until the model is saved.
    seed
        Random seed. The same seed gives the same model.
    """
    names = options.split_names(algorithms)
    choose = choose or len(names or ()) > 1
    algorithm = names[0] if names and not choose else None
    _check_choice(choose, algorithm, search, select, minutes, single, estimate, trials)
    estimator.check_destination(out, force)
    backbone, net_to_train, advice = _choose_backbone(file, table.text, net, weights, finetune, image_size)
    rows = table.read(file, backbone, device)
    if backbone is not None:
        image_size = None
    compares = choose or (algorithm is None and isinstance(rows.x, datasets.Frame))
    announcement = Announcement(rows, minutes)
    announcement.sentences += advice
    note_task(rows, table.task, str(table.label))
    template = _make_template(
        rows, loss, calibrate, class_weight, criterion, net=net_to_train, hidden=_parse_widths(hidden),
        steps=_parse_count("--steps", steps), lr=lr, schedule=schedule, warmup=warmup, scaling=scaling,
        domains_per_step=_parse_count("--domains-per-step", domains_per_step), image_size=image_size,
        members=_parse_count("--members", members), device=device, random_state=seed,
    )  # fmt: skip
    trained = names or ([] if choose else [algorithm or str(template.algorithm)])
    estimator.check_saving(trained, combined=compares and not single)
    partial = runs or out.with_name(f"{out.name}.partial")
    few = compares and not choose
    how: dict[str, Any] = {
        "seeds": (1 if few else 3) if trials is None else trials, "workers": workers, "executor": executor,
        "address": address, "runs": partial, "on_message": announcement.add, "sample_weight": rows.weight,
    }  # fmt: skip
    notes = announcement.notes
    with explain_interruption(partial, "training"):
        if compares and (not few or len(set(rows.domains)) > 1):
            names = list(comparing.list_quick(rows.is_regression)) if few else names
            comparison = _compare(
                announcement, rows, template, names, settings or (), search=search, sampler=sampler, select=select,
                nested=nested, minutes=minutes, ensemble=not single, **({"baseline": None} if few else {}), **how,
            )  # fmt: skip
            typer.echo(str(comparison), nl=False)
            model, notes = comparison.estimator, [*notes, *comparison.notes]
        else:
            name = algorithm or str(template.algorithm)
            model = _fit_one(announcement, rows, template, name, settings or (), estimate, **how)
            if "estimate" in model.model_.facts:
                typer.echo(model.model_.facts["estimate"]["sentence"])
                typer.echo(model.model_.facts["estimate"]["drivers"])
        arguments = table.parse()
        columns = {"id": arguments["ids"], "types": arguments["types"], "weight": table.weight}
        model.add_facts(
            data="standard input" if str(file) == "-" else base.make_printable(file.name),  # it need not be text
            label=table.label, domain=table.domain, **{name: value for name, value in columns.items() if value},
        )  # fmt: skip
        model.save(out)
    if runs is None:
        comparing.remove_kept(partial)
    announcement.say()
    for note in model.model_.facts["notes"]:
        if note not in notes:
            say(f"note: {note}")
    page = f", or seqdg report {out} for a page" if {"comparison", "estimate"} <= model.model_.facts.keys() else ""
    say(f"The model is in {out}. Next: seqdg show {out}{page}")


FROZEN = "dinov2-small"  # makes the features of pictures, where its weights are on this machine
ADVICE = (
    f"note: EfficientNet-Lite0 is fine-tuned, as no weights of {FROZEN} are on this machine. Its frozen features "
    f"usually predict far better: add --net {FROZEN}, and --weights FILE if it cannot be fetched."
)


def _choose_backbone(
    file: Path, text: str | None, net: str | None, weights: Path | None, finetune: bool | None, size: int | None
) -> tuple[datasets.FrozenBackbone | None, str | nets.NetSpec | None, list[str]]:
    """Choose the frozen backbone of pictures or text, or none; the network to train; and what to say of the choice."""
    pictures = options.is_pictures(file)
    if not pictures:
        if finetune is not None or (weights is not None and not text):
            option = "--weights" if finetune is None else "--finetune"
            raise base.UsageError(f"{option} is for pictures, and {file} is a table: leave it out.")
        frozen = None if not text or net in (None, *TRAINED) else datasets.FrozenBackbone(str(net), weights)
        return frozen, net if frozen is None else None, []
    if weights is not None and net is None:
        raise base.UsageError(f"Of which network is {weights.name}? Name it with --net, such as --net {FROZEN}.")
    if finetune or (finetune is None and net is not None and net not in nets.RECIPES):
        trained = net if net is None or weights is None else nets.NetSpec(net, pretrained=True, weights=weights)
        return None, trained, []
    known = nets.find_weights_at_hand(FROZEN) if net is None else weights
    if net is None and known is None:
        if finetune is None:
            return None, None, [ADVICE]
        net = estimator.IMAGE_NET
    backbone = datasets.FrozenBackbone(net or FROZEN, known, size)
    sentence = f"{backbone.name} is frozen, and its features are trained on; --finetune trains it."
    return backbone, None, [sentence]


def _make_template(
    rows: datasets.LabeledRows,
    loss: str,
    calibrate: bool,
    class_weight: str | None,
    criterion: str | None,
    **parameters: Any,
) -> estimator.DomainEstimator:
    """Make the estimator of classes or of numbers; refuse options of the other one."""
    if criterion is not None:
        parameters["criterion"] = criterion
    if rows.is_regression:
        if class_weight is not None:
            raise base.UsageError("--class-weight weighs classes, and this is regression: leave it out.")
        return estimator.DomainRegressor(loss=loss, **parameters)
    if loss != "squared":
        raise base.UsageError(f"--loss {loss} is a loss of numbers, and classes are predicted: leave it out.")
    return estimator.DomainClassifier(calibrate=calibrate, class_weight=class_weight, **parameters)


def _check_choice(
    choose: bool,
    algorithm: str | None,
    search: int,
    select: str,
    minutes: float | None,
    single: bool,
    estimate: bool,
    trials: int | None,
) -> None:
    """Refuse options that would have no effect, and numbers that cannot be."""
    if algorithm is not None and single:
        raise base.UsageError("--single keeps one of several candidates, and --algorithms names one: leave it out.")
    if algorithm is not None and minutes is not None:
        raise base.UsageError("--minutes is how long a comparison may take, and --algorithms names one: leave it out.")
    if algorithm is None and not estimate:
        raise base.UsageError(
            "--no-estimate holds out no domain, and then nothing can be compared: name one algorithm with --algorithms."
        )
    if trials is not None and trials < 1:
        raise base.UsageError(f"--trials is {trials}, but at least 1 is needed.")
    refusals = {
        "--search makes candidates to choose from: add --choose.": search != 1,
        "--select says how to choose: add --choose.": select != SELECT and not single,
    }
    for sentence, has_no_effect in refusals.items():
        if has_no_effect and not choose:
            raise base.UsageError(sentence)


def _compare(
    announcement: Announcement,
    rows: datasets.LabeledRows,
    template: estimator.DomainEstimator,
    names: Sequence[str] | None,
    texts: Sequence[str],
    **how: Any,
) -> comparing.Comparison:
    settings = comparing.parse_settings_texts(texts, names)
    with bench.show_progress("comparing") as on_progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", comparing.DoubtfulChoice)  # the comparison prints what they say
        return comparing.compare(
            rows.x, rows.y, rows.domains, names, settings, estimator=template,
            on_progress=announcement.wrap(on_progress), **how,
        )  # fmt: skip


def _fit_one(
    announcement: Announcement,
    rows: datasets.LabeledRows,
    template: estimator.DomainEstimator,
    name: str,
    texts: Sequence[str],
    estimate: bool,
    *,
    workers: int | None,
    **how: Any,
) -> estimator.DomainEstimator:
    """Fit one algorithm, and estimate how it will do on the next domain where that is possible."""
    settings = comparing.parse_settings_texts(texts, [name]).get(name, {})
    rate = settings.pop("lr", template.lr)
    model: estimator.DomainEstimator = template.set_params(algorithm=name, settings=settings or None, lr=rate)
    if not estimate:
        return model.fit(rows.x, rows.y, domains=rows.domains, sample_weight=rows.weight)
    with bench.show_progress("holding out each domain") as on_progress:
        model, reason = comparing.fit_and_estimate(
            rows.x, rows.y, rows.domains, model, on_progress=announcement.wrap(on_progress), workers=workers or 0, **how
        )
    if reason:
        say(f"seqdg: no estimate for the next domain: {reason}")
    return model


def _parse_count(option: str, text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise base.UsageError(f"{option} is '{text}', but it must be a whole number or auto.") from None


def _parse_widths(text: str) -> tuple[int, ...] | str:
    try:
        return text if text == "auto" else tuple(map(int, options.split_words(text)))
    except ValueError:
        raise base.UsageError(f"--hidden is '{text}', but it must be auto or whole numbers, such as 64,32.") from None


def predict(
    model: Path,
    data: Path,
    /,
    out: Path,
    device: str = "auto",
    id: str | None = None,
    na: str | None = None,
    encoding: str = "",
    force: bool = False,
    label_shift: bool = False,
    strict: bool = False,
) -> None:
    """Predict the rows of a table, or the images of a folder.

    It writes a label and the probability of every class or, for regression, a number.

        seqdg predict model new.csv --out predictions.csv

        zcat new.csv.gz | seqdg predict model - --out - | head

    Rows are read, predicted and written some at a time, so a table may be larger than memory. If it has the column of
    labels, the accuracy is printed, and what was expected of it when the model was fitted; for regression, RMSE and R².
    The folder of an image is its label, where the model knows a class of that name.

    Parameters
    ----------
    data : DATA
        A table (.csv, .tsv, .parquet, .xlsx, ...), - for standard input, or a folder or .zip of images.
    out : FILE
        Where to write predictions: .csv or .parquet; - for standard output.
    device : auto|cpu|cuda
        Where to predict. auto uses a GPU if there is one.
    label_shift
        Correct the probabilities for how frequent the classes are in this table, as its rows tell without labels: for
        one domain, where classes are more or less frequent than in training and otherwise look the same.
    strict
        Refuse a table with a column that is distributed unlike in every training domain. Default: a note names it.
    """
    loaded = estimator.read_model(model, device=base.choose_device(device))
    ids, missing_values = options.split_names(id), options.split_words(na)
    with base.count_files("predicting") as on_progress, options.open_data(data) as path:
        tally = estimator.predict_file(
            loaded,
            path,
            out,
            on_progress,
            force=force,
            ids=ids,
            na=missing_values,
            encoding=encoding,
            label_shift=label_shift,
            strict=strict,
        )
    to_standard = str(out) == "-"
    for note in tally.notes.values():
        say(f"note: {note}")
    weighted = f", weighted by '{tally.weight}'" if tally.weight else ""
    measured: dict[str, float] = {}
    if tally.weighed and loaded.is_regression:
        measured = tally.measure()
        typer.echo(
            f"On {tally.labelled} rows with a number{weighted}: RMSE {measured['rmse']:.4g}, MAE {measured['mae']:.4g},"
            f" R² {measured['r2']:.3f}, correlation {measured['pearson']:.3f}",
            err=to_standard,
        )
    elif tally.weighed:
        measured = {"accuracy": tally.right / tally.weighed}
        accuracy = f"{100 * measured['accuracy']:.1f} %"
        typer.echo(f"Accuracy on {tally.labelled} labelled rows{weighted}: {accuracy}", err=to_standard)
    if tally.weighed:
        typer.echo(tally.describe_constant(loaded), err=to_standard)
    estimate = loaded.facts.get("estimate")
    if estimate and estimate["criterion"] in measured and estimate["interval"] is not None:
        typer.echo(estimate["sentence"], err=to_standard)
    if not to_standard:
        say(f"{tally.rows} predictions are in {out}.")


def features(
    file: str,
    /,
    net: str,
    out: Path,
    weights: Path | None = None,
    data: Path | None = None,
    label: str | None = None,
    domain: str | None = None,
    text: str | None = None,
    images: str = "",
    splits: str = "",
    size: int | None = None,
    batch: int = 32,
    device: str = "auto",
    allow_partial: bool = False,
    force: bool = False,
) -> None:
    """Extract features with a frozen backbone, once, to a file.

    `seqdg bench` and `seqdg fit` read the features of pictures or texts from it.

        seqdg features photos/ --net dinov2-small --weights dinov2_vits14_pretrain.pth --out photos.safetensors

    What was extracted is kept in the cache, by content: interrupt it whenever you like, the same command goes on where
    it stopped, and a second use costs nothing.

    Parameters
    ----------
    file : DATA
        A folder or .zip of pictures, <domain>/<class>/<picture>; a list of pictures (.json, or a table with a column
        file); a table with a column of --text; or a name from `seqdg list benchmarks` or a .toml file, with --data.
    net
        The backbone: dinov2-small, clip-vit-b16, efficientnet-lite0, timm:NAME, hf:NAME, open_clip:NAME, ...
    out : FILE
        The features file to write: .safetensors.
    weights
        Its weight file. Default: that of an installed package, or of the hub.
    label : COLUMN
        The column of labels of a table or list.  [default: label]
    domain : COLUMN
        The column of domains of a table or list.  [default: domain]
    text : A,B
        Columns of texts, for a text encoder such as minilm or hf:NAME.
    images : FOLDER
        The folder or .zip with the pictures of a list. Default: the folder of the list.
    splits : FOLDER
        The folder of official split lists beside a folder of pictures.
    size
        Side of the pictures that enter the network. Default: what the backbone was made for.
    batch
        How many it reads at once.
    """
    if out.suffix != ".safetensors":
        raise base.UsageError(f"Features are kept in a .safetensors file: end {out.name} in it.")
    base.check_output(out, force)
    path = Path(file)
    if path.exists() and path.suffix != ".toml":
        if data is not None:
            raise base.UsageError(f"--data is of a benchmark, and {file} is a file or folder: leave it out.")
        names = options.split_words(text)
        spec, root = datasets.make_spec(path, label, domain, names, images, splits), path.absolute().parent
    else:
        benchmark = bench.load_benchmark(file)
        spec = datasets.DataSpec.from_table(benchmark.name, benchmark.data)
        if data is None:
            raise base.UsageError(f"Where are the data of {benchmark.name}? Give their folder with --data DIR.")
        root = data
    backbone = datasets.FrozenBackbone(net, weights, size)
    began = time.monotonic()
    with base.count_files("extracting features") as on_progress:
        extracted = datasets.extract_dataset(
            spec, root, backbone, allow_partial=allow_partial, batch=batch, device=device, on_progress=on_progress
        )
    extracted.save(out)
    seconds = max(time.monotonic() - began, 1e-3)
    rows, width = extracted.x.shape
    say(f"{rows} rows of {width} features of {backbone.name} are in {out} ({rows / seconds:.1f} a second).")


def export(
    model: Path,
    /,
    out: Path,
    force: bool = False,
) -> None:
    """Write a model as one ONNX file.

    It includes the preprocessing, and is checked with onnxruntime.

        seqdg export model --out model.onnx

    Parameters
    ----------
    out : FILE
        The ONNX file to write.
    """
    base.check_output(out, force)
    loaded = estimator.read_model(model)
    difference = max(estimator.export_onnx(loaded, out), 1e-16)
    shape = "(row,)" if loaded.is_regression else f"(row, {len(loaded.classes)})"
    outputs = " and ".join(estimator.list_outputs(loaded))
    typer.echo(f"{out}: reads {estimator.describe_signature(loaded)}; gives {outputs} {shape}.")
    what, unit = ("predictions", " deviations") if loaded.is_regression else ("probabilities", "")
    typer.echo(f"Checked against onnxruntime: {what} agree to {difference:.0e}{unit}.")


def learning_curve(
    file: Path,
    /,
    table: options.TableOptions,
    algorithm: str | None = None,
    criterion: str | None = None,
    steps: int = 500,
    lr: float = 0.003,
    trials: int = 1,
    subsets: int = 12,
    workers: int | None = None,
    out: Path | None = None,
    force: bool = False,
    seed: int = 0,
    device: str = "auto",
) -> None:
    """Estimate what one more domain would be worth.

        seqdg learning-curve patients.csv --label ill --domain hospital

    It trains on 1, 2, ... of your domains, and tests on those left out. The last sentence says what one more domain
    than you have would be worth, if the curve continues.

    Parameters
    ----------
    algorithm
        The algorithm to train. Default: fo-s-mldg+ema; for regression, agg+ema.
    criterion : CRITERION
        The metric on unseen domains. Default: accuracy; for regression, rmse.
    seed
        Random seed. The same seed gives the same numbers.
    steps
        Training steps.
    trials
        Trainings of every choice of domains, each with another seed.
    subsets
        Choices of every number of domains, at most.
    workers
        Processes to train in. Default: one per core.
    out : DIR
        Where to write learning-curve.csv, by_training.csv and a figure.
    """
    if out is not None:
        base.check_output(out, force, CURVE_FILES)
    rows = table.read(file)
    note_task(rows, table.task, str(table.label))
    Announcement(rows).say()
    options_of_model = {"algorithm": algorithm, "criterion": criterion}
    parameters: dict[str, Any] = {name: value for name, value in options_of_model.items() if value is not None}
    kind = estimator.DomainRegressor if rows.is_regression else estimator.DomainClassifier
    model = kind(steps=steps, lr=lr, random_state=seed, device=device, **parameters)
    with bench.show_progress("training") as on_progress:
        curve = estimator.learning_curve(
            model, rows.x, rows.y, rows.domains, seeds=trials, subsets=subsets, on_progress=on_progress,
            workers=comparing.count_workers(device) if workers is None else workers, on_message=say,
            sample_weight=rows.weight,
        )  # fmt: skip
    typer.echo(str(curve), nl=False)
    _write_analysis(out, CURVE_FILES, [curve.frame(), curve.by_training()], curve.figure())


def importance(
    model: Path,
    data: Path,
    /,
    columns: str | None = None,
    repeats: int = 5,
    scoring: str | None = None,
    out: Path | None = None,
    force: bool = False,
    seed: int = 0,
    device: str = "auto",
    *,
    cells: options.CellOptions,
) -> None:
    """Measure which columns help on a new domain.

        seqdg importance model patients.csv --out importance

    It shows too which columns help only where the model was trained. The model is fitted again with each domain held
    out in turn. Each column is then shuffled within its domain: how much the score drops on the held-out domain, and on
    rows of the others that were set aside, is what the column is worth. The table is read as in `seqdg fit`, whose
    --label, --domain, --types, --na and --weight the model remembers.

    Parameters
    ----------
    data : DATA
        The table that the model was fitted on, or one like it.
    seed
        Random seed. The same seed gives the same numbers.
    columns : A,B
        The columns to shuffle. Default: all.
    repeats
        Shuffles of every column.
    scoring : NAME
        A score of scikit-learn, such as balanced_accuracy. Default: accuracy or R².
    out : DIR
        Where to write importance.csv, by_domain.csv and importance.svg.
    """
    if out is not None:
        base.check_output(out, force, IMPORTANCE_FILES)
    names = options.split_names(columns)
    measured = _measure_columns(
        model, data, cells, device, columns=names, repeats=repeats, scoring=scoring, random_state=seed
    )
    typer.echo(str(measured), nl=False)
    _write_analysis(out, IMPORTANCE_FILES, [measured.frame(), measured.by_domain()], measured.figure())


def report_model(model: Path, data: Path | None) -> Path:
    """Write the report of a model into its directory; with its table, also which columns transfer."""
    description = estimator.read_description(model)
    measured = None if data is None else _measure_columns(model, data, options.CellOptions(), "auto")
    return estimator.write_model_report(description, model / "report.html", measured)


def _measure_columns(
    model: Path, data: Path, cells: options.CellOptions, device: str, **how: Any
) -> estimator.Importance:
    fitted = estimator.load_estimator(model, device)
    facts = fitted.model_.facts
    known = getattr(fitted, "feature_names_in_", None)
    with options.open_data(data) as path:
        rows = datasets.read_rows(
            path, facts.get("label"), facts.get("domain"), only=None if known is None else list(known),
            types={**facts.get("types", {}), **datasets.parse_types(options.split_words(cells.types))},
            na=(*getattr(fitted.model_.input, "na", ()), *options.split_words(cells.na)), encoding=cells.encoding,
            task="number" if fitted.is_regressor else "class", weight=cells.weight or facts.get("weight"),
            drop_unlabeled=cells.drop_unlabeled,
        )  # fmt: skip
    if not isinstance(rows.x, datasets.Frame):
        raise base.UsageError(f"Columns are shuffled, and {data} holds images: give a table.")
    with base.count_files("holding out each domain") as on_progress:
        return estimator.importance(
            fitted, rows.x, rows.y, rows.domains, on_progress=on_progress, sample_weight=rows.weight, **how
        )


def _write_analysis(out: Path | None, files: Sequence[str], frames: Sequence[Any], figure: Any) -> None:
    if out is not None:
        names = [Path(file).stem for file in files]
        for path in estimator.write_analysis(out, dict(zip(names, frames, strict=True)), figure):
            say(str(path))
