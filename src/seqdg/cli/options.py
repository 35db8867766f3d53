"""Options that several commands share, and how the options of a command are made of its signature and docstring.

Parameters
----------
file : DATA
    A table (.csv, .tsv, .parquet, .xlsx, ...), - for one from standard input, or a folder or .zip of images
    <domain>/<class>/<image>.
benchmark : [BENCHMARK]
    A name from `seqdg list benchmarks`, or your own .toml file. NAME:KEY=VALUE,... changes what its [data] has.
directory : DIR
    A run directory, as given to `seqdg bench --out`; or a run packed by `seqdg pack`.
directories : DIR...
    A run directory, as given to `seqdg bench --out`, or a run packed by `seqdg pack`; several are set side by side.
model : MODEL
    A model directory, as given to `seqdg fit --out`.
algorithms : A,B
    Names from `seqdg list algorithms`, alone or with wrappers after a plus, as in fo-s-mldg+mixup+ema; your own as
    module:name or file.py:name. Default: those of the benchmark, or of the analysis.
steps
    Training steps. Default: the benchmark's.
seed
    The first trial's seed; the others follow.
settings : ALGORITHM.SETTING=VALUE
    A setting of an algorithm or of its training, for example fo-s-mldg.alpha=0.05,0.6, agg.lr=0.1 or
    agg.schedule=cosine. It holds for chains such as agg+ema too, unless one is named: agg+ema.decay=0.9. May be
    repeated.
search : N
    Candidates per algorithm. The first keeps its settings as they are. The others draw settings from their ranges
    and the learning rate from a tenth to twice its value (log-uniform; lr_search in a benchmark's file sets another
    range). Settings given with --set are not searched.
out
    Run directory. Trials that it already holds are not run again. Default: runs/BENCHMARK, and another where --steps,
    --net, --rows or --quick say so.
data
    Root folder of the data; the benchmark's file names the folders and files in it.
lr
    Learning rate.
device : auto|cpu|cuda
    Where to train. auto uses a GPU if there is one; cuda:1 is the second of several.
select : source-val|last|leave-one-out|domain-val|oracle|oracle-split
    How the settings and the step that count are chosen. source-val: by validation rows of the sources. last: by the
    same rows, at the last step. leave-one-out: by training without each source and testing on it. domain-val: by
    the validation domains of a fixed split. Only the last two look at the held-out domain: oracle at all of it, an
    upper bound; oracle-split at a fifth of its rows, and it reports the others, as DomainBed's test-domain
    validation does.
net : NAME
    The network in place of the benchmark's: a name such as resnet50 or timm:convnext_tiny, or a function of your own as
    file.py:build, which is called as build(input_shape, classes) and returns an nn.Module. --set net.size=96 sets what
    a benchmark's [net] table has.
weights
    Weight file that the network starts from: .safetensors, or .pth as published by torchvision.
allow_partial
    Continue if the data differ from the published counts, and note it in the record.
domainbed : DIR
    A checkout of DomainBed, for algorithms such as domainbed:CORAL. Default: the environment variable
    SEQDG_DOMAINBED, or else an importable domainbed.
executor : local|ray
    Where workers run: on this machine, or on a Ray cluster.
workers
    Worker processes; 0 trains in this process. Default: one per core, or one per GPU.
address
    Address of a running Ray cluster, or `auto` to find it. Default: start Ray on this machine.
figures : FOLDER
    Folder to write the figures to as well, as SVG, PDF and PNG.
id : A,B
    Columns that name a row: no features, and `seqdg predict` writes them beside its predictions.
types : A=TYPE,B=TYPE
    What columns hold, where it is not as it seems: number, category, date, date:dmy, date:mdy or ignore.
na : A,B
    Text and numbers that stand for a missing value besides NA, ?, - and the like: -999.
drop_unlabeled
    Leave out the rows of a table that have no label.
weight : COLUMN
    The column that says how much each row counts, in training and in every score. It is no feature.
encoding : NAME
    Encoding of a text table, such as cp1252. Default: guessed from the file.
as_json
    Print JSON, for programs.
trust : A,B
    Files and modules whose code may run because a file that is read names them: a benchmark's, a study's, a run's or a
    model's.
    Those that you name in another option need not be here.
force
    Replace what lies at --out already.
criterion : CRITERION
    Which metric to show. Default: accuracy; for regression, rmse.
"""

from __future__ import annotations

import functools
import inspect
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from seqdg import base, bench, training
from seqdg import data as datasets
from seqdg.cli.terminal import end_interrupted
from seqdg.results import CRITERIA

# What follows a type is the name of the option, where it is not that of the parameter.
Settings = Annotated[list[str] | None, "--set"]
AsJson = Annotated[bool, "--json"]
LISTS: set[str] = set()  # options whose value is always a list with commas
SHORT = {  # of the frequent options, which a help has first, in this order
    "label": "-l", "domain": "-d", "algorithms": "-a", "data": "-D", "trials": "-t", "steps": "-n", "out": "-o",
    "force": "-f", "workers": "-j", "quick": "-q",
}  # fmt: skip
SYNONYMS = (  # what is typed for an option that a command has under one of these names
    ("--algorithms", "--algorithm", "--candidates"),
    ("--trials", "--seeds"),
    ("--label", "--target"),
    ("--domain", "--group", "--site"),
    ("--force", "--overwrite"),
    ("--out", "--output", "--onnx"),
    ("--criterion", "--metric"),
)
NUMBERS = {int: ("N", "a whole number"), float: ("X", "a number")}


def split_names(text: str | None) -> list[str] | None:
    """Split `a,b` into a list of names; None where the option is absent."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def split_words(text: str | None) -> tuple[str, ...]:
    """Split `?,-999` into words; none where the option is absent."""
    return tuple(split_names(text) or ())


def use_known_names(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the words of a command with its own names for options in place of synonyms: `--trials` for `--seeds`."""
    names = {
        other: own
        for synonyms in SYNONYMS
        for own in synonyms
        if own in known
        for other in synonyms
        if other not in known
    }
    parts = [word.partition("=") for word in words]
    return ["".join((names.get(name, name), equals, value)) for name, equals, value in parts]


class NotANumber(typer.BadParameter):
    """The value of an option that takes a number."""


def _read_number(option: str, kind: type[int] | type[float]) -> Callable[[Any], int | float]:
    def read(text: Any) -> int | float:
        try:
            return kind(text)
        except ValueError:
            raise NotANumber(f"{option} is '{text}', but it must be {NUMBERS[kind][1]}.") from None

    return read


@contextmanager
def open_data(path: Path) -> Iterator[Path]:
    """Yield where the data lie: at the path, or, for `-`, in a file of what comes from standard input as a .csv."""
    if str(path) != "-":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stdin.csv"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield copy


def is_pictures(data: Path) -> bool:
    """Say whether the user's own data are a folder or archive, which hold pictures, and no table."""
    return data.is_dir() or data.suffix.lower() == ".zip"


@dataclass(frozen=True)
class CellOptions:
    """How the cells of the user's own table are read. What the options list is still text."""

    types: str | None = None
    na: str | None = None
    drop_unlabeled: bool = False
    weight: str | None = None
    encoding: str = ""


@dataclass(frozen=True)
class TableOptions(CellOptions):
    """How the user's own rows are read.

    Parameters
    ----------
    label : COLUMN
        The column of labels, for a table.
    domain : COLUMN
        The column of domains, for a table.
    ignore : A,B
        Columns to leave out.
    text : A,B
        Columns of free text. They become features of --net, a text encoder such as minilm or hf:NAME; without one,
        2048 hashed n-grams of words.
    task : class|number
        What the column of labels holds: classes, or numbers for regression. Default: decided by the column, where it
        is clear.
    """

    label: str | None = None
    domain: str | None = None
    ignore: str | None = None
    id: str | None = None
    text: str | None = None
    task: str | None = None

    def refuse(self, name: str) -> None:
        """Raise a UsageError where the user gave any of these options for what is no table."""
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                option = f"--{field.name.replace('_', '-')}"
                raise base.UsageError(f"{option} is for tables, and {name} is not one: leave it out.")

    def parse(self) -> dict[str, Any]:
        """Return the arguments by which the data package reads rows."""
        values = {**vars(self), "types": datasets.parse_types(split_words(self.types))}
        ids, text = split_words(values.pop("id")), split_words(values.pop("text"))
        if roles := [name for name in text if name in (self.label, self.domain, self.weight, *ids)]:
            raise base.UsageError(
                f"'{roles[0]}' is named with --text, and has another part too: leave out one of them."
            )
        values["types"] = {**values["types"], **dict.fromkeys(text, "category")}
        return {**values, "ignore": split_words(self.ignore), "ids": ids, "na": split_words(self.na)}

    def read(
        self, data: Path, backbone: datasets.FrozenBackbone | None = None, device: str = "auto"
    ) -> datasets.LabeledRows:
        """Read rows, labels, domains and weights of a table or a folder of images.

        backbone: makes features of the images, or of the columns of text.
        """
        arguments, text = self.parse(), split_words(self.text)
        if is_pictures(data):
            self.refuse(str(data))
            if backbone is not None:
                with base.count_files(f"extracting features by {backbone.name}") as on_progress:
                    return datasets.read_frozen(data, backbone, device, on_progress)
        with base.count_files("reading images") as on_progress, open_data(data) as path:
            rows = datasets.read_rows(path, **arguments, progress=on_progress)
        if not text:
            return rows
        with base.count_files("reading texts") as on_progress:
            return datasets.embed_text(rows, text, backbone, device, on_progress)


@dataclass(frozen=True)
class RunOptions:
    """What `seqdg bench` asks of a benchmark: the fields of `bench.Request`, whose lists are still text.

    Parameters
    ----------
    held_out : D,E
        Domains to hold out, one at a time. Default: every domain.
    trials
        Seeds per algorithm and held-out domain. Default: the benchmark's.
    search_space : usual|domainbed
        Where the candidates of --search come from. usual: settings from their ranges, and rates around the
        benchmark's. domainbed: learning rate, weight decay, batch size, dropout and settings as DomainBed's sweeps
        draw them.
    sampler : random|optuna
        How candidates are found: drawn at random, or proposed by Optuna for each held-out domain and seed, from the
        source validation of those before.
    reuse
        Search on the first seed alone; the others use the settings that --select chooses there for each held-out
        domain.
    settings_from : FILE
        Settings that `seqdg table --settings-out` wrote; they come before the benchmark's.
    precision : float32|tf32|bf16|float64
        Precision of training. tf32 and bf16 are faster on a GPU; float64 gives the same numbers everywhere.
        Default: the benchmark's.
    gpus_per_worker : PART
        Share of a GPU for each worker; 0.25 puts four on one. Default: 1.
    compile : auto|on|off
        Compile steps with torch's compiler: it takes ten seconds or more, and then a GPU trains up to a third
        faster. auto: where the training is long enough for that.
    checkpoint : SECONDS
        Seconds between checkpoints of trials that take longer; 0 writes none.
    save_weights : [last|chosen]
        Keep every trial's deployed weights after the last step, in DIR/weights/TRIAL.safetensors; with chosen, also
        those of the step that source validation chose, in DIR/weights/TRIAL.chosen.safetensors.
    save_predictions
        Keep what every trial predicts for every held-out row; `seqdg predictions` writes it as one table.
    log : tensorboard|mlflow|wandb
        Also write the curves of every trial and the table to this tool, below DIR. May be repeated, or several with
        commas.
    shard : I/N
        Train the I-th of N parts of the plan, in the folder shard-I-of-N of --out: for job arrays, whose tasks give
        auto/N and are numbered from 1. `seqdg merge` joins them.
    held_out_together : N
        Hold out N domains at once, every choice of N in turn; a row of the table is their mean. Default: 1.
    single_source
        Train on one domain, each in turn, and test on all others; a row of the table is their mean.
    rows : N
        Train and test on N rows of every domain: a fixed sample, of every class in proportion. Default: all.
    quick
        Run everything once, for two steps, on a few rows of every domain, to see that it works.
    """

    algorithms: str | None = None
    held_out: str | None = None
    trials: int | None = None
    steps: int | None = None
    seed: int = 0
    settings: Settings = None
    search: int = 1
    search_space: str = "usual"
    sampler: str = "random"
    reuse: bool = False
    settings_from: Path | None = None
    precision: str | None = None
    out: Path | None = None
    data: Path | None = None
    device: str = "auto"
    executor: str = "local"
    workers: int | None = None
    gpus_per_worker: float | None = None
    address: str | None = None
    compile: str = "auto"
    checkpoint: float = 60.0
    save_weights: str | None = None
    save_predictions: bool = False
    select: str = "source-val"
    net: str | None = None
    weights: Path | None = None
    allow_partial: bool = False
    domainbed: Path | None = None
    log: list[str] | None = None
    trust: str | None = None
    shard: str | None = None
    held_out_together: int | None = None
    single_source: bool = False
    rows: int | None = None
    quick: bool = False

    def make_request(self) -> bench.Request:
        lists = {"algorithms": split_names(self.algorithms), "held_out": split_names(self.held_out)}
        lists["trust"] = list(split_words(self.trust))
        tools = [name for text in self.log or () for name in split_words(text)]
        return bench.Request(**{**vars(self), **lists, "settings": self.settings or (), "log": tools})


@dataclass(frozen=True)
class SessionOptions:
    """What trains recorded trials again, or evaluates their weights: their task, and a device.

    Parameters
    ----------
    benchmark : FILE
        The benchmark's file, if it is your own.
    """

    data: Path | None = None
    device: str = "auto"
    benchmark: str | None = None
    net: str | None = None
    weights: Path | None = None
    allow_partial: bool = False

    def make_session(self, name: str, saving: training.Saving, held_out: Sequence[str]) -> bench.Session:
        """Make a session on the benchmark of this name, or on the user's own file."""
        chosen = self.benchmark or name
        return bench.make_session(
            chosen, saving, held_out, self.data, self.device, self.weights, self.allow_partial, self.net
        )


def takes(command: Callable[..., None], trusts: bool = False) -> Callable[..., None]:
    """Make of a function what typer reads: parameters before a `/` are arguments, the others options.

    Where a parameter is a dataclass, its fields are options. Each is explained under `Parameters` in the docstring of
    the command or of the dataclass or, where commands share it, of this module: its name, the metavar, and the help.

    trusts: whether the files that it reads may name code to run, so that it has the option --trust.
    """
    text, explained = read_parameters(command)
    hints = inspect.get_annotations(command, eval_str=True)  # get_type_hints hides some from typer, in Python 3.10
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    arguments, described = inspect.signature(command).parameters.values(), list[inspect.Parameter]()
    for argument in arguments:
        kind = groups.get(argument.name)
        if kind is None:
            parameters, types, texts = [argument], hints, explained
        else:
            parameters = list(inspect.signature(kind).parameters.values())
            types, texts = get_type_hints(kind, include_extras=True), read_parameters(kind)[1]
        for p in parameters:
            about = (_SHARED | texts).get(p.name, ("", ""))
            described.append(_describe(p.replace(annotation=types[p.name]), *about))

    described.sort(key=_rank)
    adds_trust = trusts and all(parameter.name != "trust" for parameter in described)
    if adds_trust:
        trust = inspect.Parameter("trust", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=str | None)
        described.append(_describe(trust, *_SHARED["trust"]))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        trusted = split_words(values.pop("trust") if adds_trust else values.get("trust"))
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        positional = [values.pop(p.name) for p in arguments if p.kind is p.POSITIONAL_ONLY]
        try:
            with base.trust_only(sys.argv[1:], trusted):
                command(*positional, **values)
        except KeyboardInterrupt:
            raise end_interrupted() from None

    run.__doc__ = _keep_examples(text)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in described}
    run.__signature__ = inspect.Signature(described)  # type: ignore[attr-defined]  # what typer reads
    return run


def _rank(parameter: inspect.Parameter) -> tuple[bool, int]:
    """Return where a help has a parameter: arguments, then the frequent options, then the others as they come."""
    is_argument = isinstance(parameter.default, typer.models.ArgumentInfo)
    frequent = [*SHORT].index(parameter.name) if parameter.name in SHORT else len(SHORT)
    return (not is_argument, 0 if is_argument else frequent)


def _keep_examples(text: str) -> str:
    """Mark the indented paragraphs of a help, whose lines stay as they are."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(f"\b\n{p}" if p.startswith("    ") else p for p in paragraphs)


def read_parameters(documented: Any) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return a docstring down to its `Parameters`, and of each of these, by name, what stands beside and below it."""
    text, _, section = inspect.cleandoc(documented.__doc__ or "").partition("\nParameters\n----------\n")
    parameters = {}
    for entry in re.split(r"\n(?=\S)", section) if section else ():
        head, *lines = entry.splitlines()
        name, _, line = head.partition(" : ")
        parameters[name] = line, " ".join(map(str.strip, lines))
    return text, parameters


def _describe(parameter: inspect.Parameter, metavar: str, text: str) -> inspect.Parameter:
    """Give a parameter what typer needs for its help."""
    default = ... if parameter.default is parameter.empty else parameter.default
    annotation = parameter.annotation
    kind, *names = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if parameter.kind is parameter.POSITIONAL_ONLY:
        declared = typer.Argument(default, metavar=metavar or None, help=text)
    else:
        usual = [f"--{parameter.name.replace('_', '-')}"]
        if "," in metavar and "|" not in metavar:
            LISTS.update(names or usual)
        if default is False:  # else there would be a --no-... too
            names = names or usual
        parser = None
        for number, (sign, _) in NUMBERS.items():
            if number in (kind, *get_args(kind)):
                metavar, parser = metavar or sign, _read_number((names or usual)[0], number)
        if parameter.name in SHORT:
            names = [SHORT[parameter.name], *(names or usual)]
        if metavar == "CRITERION":
            text = f"{text} One of: {', '.join(CRITERIA)}."
        if not metavar and Path in (kind, *get_args(kind)):
            metavar = "PATH"
        declared = typer.Option(default, *names, metavar=metavar or None, help=text, parser=parser)
    return parameter.replace(default=declared, kind=parameter.KEYWORD_ONLY, annotation=kind)


_SHARED = read_parameters(sys.modules[__name__])[1]  # what commands share
