"""Arguments and options that commands share, and the lists in their values."""

from __future__ import annotations

import functools
import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from seqdg import base, bench, training
from seqdg import data as datasets
from seqdg.results import CRITERIA

DataFile = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A table (.csv, .tsv, .parquet, .xlsx, ...), - for one from standard input, or a folder or .zip of images "
        "<domain>/<class>/<image>.",
    ),
]
BenchmarkName = Annotated[
    str, typer.Argument(metavar="[BENCHMARK]", help="A name from `seqdg list benchmarks`, or your own .toml file.")
]
RunDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, as given to `seqdg bench --out`.")]
Results = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="A run directory, as given to `seqdg bench --out`; or a run packed by `seqdg pack`."
    ),
]
SeveralResults = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR...",
        help="A run directory, as given to `seqdg bench --out`, or a run packed by `seqdg pack`; several are set side "
        "by side.",
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory, as given to `seqdg fit --out`.")]
Algorithms = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Names from `seqdg list algorithms`, alone or with wrappers after a plus, as in fo-s-mldg+mixup+ema; your "
        "own as module:name or file.py:name. Default: those of the benchmark, or of the analysis.",
    ),
]
HeldOut = Annotated[
    str | None, typer.Option(metavar="D,E", help="Domains to hold out, one at a time. Default: every domain.")
]
Trials = Annotated[int | None, typer.Option(help="Seeds per algorithm and held-out domain. Default: the benchmark's.")]
Steps = Annotated[int | None, typer.Option(help="Training steps. Default: the benchmark's.")]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="float32|tf32|bf16|float64",
        help="Precision of training. tf32 and bf16 are faster on a GPU; float64 gives the same numbers everywhere. "
        "Default: the benchmark's.",
    ),
]
Compile = Annotated[
    str,
    typer.Option(
        metavar="auto|on|off",
        help="Compile each stack's step with torch's compiler: it takes some ten seconds and then trains up to a third "
        "faster on a GPU. auto: where the training is long enough for that.",
    ),
]
Seed = Annotated[int, typer.Option(help="The first trial's seed; the others follow.")]
RandomSeed = Annotated[int, typer.Option(help="Random seed. The same seed gives the same numbers.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="ALGORITHM.SETTING=VALUE",
        help="A setting of an algorithm or of its training, for example fo-s-mldg.alpha=0.05,0.6, agg.lr=0.1 or "
        "agg.schedule=cosine. It holds for chains such as agg+ema too, unless one is named: agg+ema.decay=0.9. May be "
        "repeated.",
    ),
]
Search = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Candidates per algorithm. The first keeps its settings as they are. The others draw settings from their "
        "ranges and the learning rate from a tenth to twice its value (log-uniform; lr_search in a benchmark's file "
        "sets another range). Settings given with --set are not searched.",
    ),
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse",
        help="Search on the first seed alone; the others use the settings that --select chooses there for each "
        "held-out domain.",
    ),
]
SettingsFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Settings that `seqdg table --settings-out` wrote; they come before the benchmark's."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Run directory. Trials that it already holds are not run again. Default: runs/BENCHMARK."),
]
Data = Annotated[
    Path | None, typer.Option(help="Root folder of the data; the benchmark's file names the folders and files in it.")
]
USUAL = "fo-s-mldg+ema", "agg+ema"  # what the estimators of classes and of numbers train; help imports neither
USUAL_ALGORITHM = f"[default: {USUAL[0]}; of numbers {USUAL[1]}]"
LearningRate = Annotated[float, typer.Option(help="Learning rate.")]
Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda",
        help="Where to train. auto uses a GPU if there is one; cuda:1 is the second of several.",
    ),
]
Select = Annotated[
    str,
    typer.Option(
        metavar="source-val|last|leave-one-out|domain-val|oracle|oracle-split",
        help="How the settings and the step that count are chosen. source-val: by validation rows of the sources. "
        "last: by the same rows, at the last step. leave-one-out: by training without each source and testing on it. "
        "domain-val: by the validation domains of a fixed split. Only the last two look at the held-out domain: oracle "
        "at all of it, an upper bound; oracle-split at a fifth of its rows, and it reports the others, as DomainBed's "
        "test-domain validation does.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="Weight file that the network starts from: .safetensors, or .pth as published by torchvision."),
]
AllowPartial = Annotated[
    bool,
    typer.Option(
        "--allow-partial", help="Continue if the data differ from the published counts, and note it in the record."
    ),
]
DomainBed = Annotated[
    Path | None,
    typer.Option(
        "--domainbed",
        metavar="DIR",
        help="A checkout of DomainBed, for algorithms such as domainbed:CORAL. Default: the environment variable "
        "SEQDG_DOMAINBED, or else an importable domainbed.",
    ),
]
Executor = Annotated[
    str,
    typer.Option("--executor", metavar="local|ray", help="Where workers run: on this machine, or on a Ray cluster."),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes; 0 trains in this process. Default: one per core, or one per GPU."),
]
GpusPerWorker = Annotated[
    float | None,
    typer.Option(metavar="PART", help="Share of a GPU for each worker; 0.25 puts four on one. Default: 1."),
]
Address = Annotated[
    str | None,
    typer.Option(help="Address of a running Ray cluster, or `auto` to find it. Default: start Ray on this machine."),
]
Checkpoint = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="Seconds between checkpoints of trials that take longer; 0 writes none."),
]
SaveWeights = Annotated[
    str | None,
    typer.Option(
        "--save-weights",
        metavar="[last|chosen]",
        help="Keep every trial's deployed weights after the last step, in DIR/weights/TRIAL.safetensors; with chosen, "
        "also those of the step that source validation chose, in DIR/weights/TRIAL.chosen.safetensors.",
    ),
]
SavePredictions = Annotated[
    bool,
    typer.Option(
        "--save-predictions",
        help="Keep what every trial predicts for every held-out row; `seqdg predictions` writes it as one table.",
    ),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="tensorboard|mlflow|wandb",
        help="Also write the curves of every trial and the table to this tool, below DIR. May be repeated, or several "
        "with commas.",
    ),
]
Figures = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder to write the figures to as well, as SVG, PDF and PNG.")
]
Format = Annotated[str, typer.Option("--format", metavar="text|markdown|latex|csv|json", help="Format of the table.")]
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of labels, for a table.")]
Domain = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of domains, for a table.")]
Ignore = Annotated[str | None, typer.Option(metavar="A,B", help="Columns to leave out.")]
Identifier = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="A,B",
        help="Columns that name a row: no features, and `seqdg predict` writes them beside its predictions.",
    ),
]
Types = Annotated[
    str | None,
    typer.Option(
        metavar="A=TYPE,B=TYPE",
        help="What columns hold, where it is not as it seems: number, words, date, date:dmy, date:mdy or ignore.",
    ),
]
MissingValues = Annotated[
    str | None,
    typer.Option(
        "--na",
        metavar="A,B",
        help="Words and numbers that stand for a missing value besides NA, ?, - and the like: -999.",
    ),
]
DropUnlabeled = Annotated[
    bool, typer.Option("--drop-unlabeled", help="Leave out the rows of a table that have no label.")
]
Weight = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column that says how much each row counts, in training and in every score. It is no feature.",
    ),
]
Encoding = Annotated[
    str, typer.Option(metavar="NAME", help="Encoding of a text table, such as cp1252. Default: guessed from the file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
BenchmarkFile = Annotated[
    str | None, typer.Option("--benchmark", metavar="FILE", help="The benchmark's file, if it is your own.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what lies at --out already.")]
Task = Annotated[
    str | None,
    typer.Option(
        metavar="class|number",
        help="What the column of labels holds: classes, or numbers to predict. Default: decided by the column, where "
        "it is clear.",
    ),
]
CRITERION_NAMES = "|".join(CRITERIA)
Criterion = Annotated[
    str | None,
    typer.Option(
        metavar=CRITERION_NAMES, help="Which metric to show.  [default: accuracy; where numbers are predicted, rmse]"
    ),
]


def split_names(text: str | None) -> list[str] | None:
    """Split `a,b` into a list of names; None where the option is absent."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def split_words(text: str | None) -> tuple[str, ...]:
    """Split `?,-999` into words; none where the option is absent."""
    return tuple(split_names(text) or ())


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


@dataclass(frozen=True)
class TableOptions:
    """How the user's own rows are read. What the options list is still text."""

    label: Label = None
    domain: Domain = None
    ignore: Ignore = None
    id: Identifier = None
    types: Types = None
    na: MissingValues = None
    drop_unlabeled: DropUnlabeled = False
    weight: Weight = None
    encoding: Encoding = ""
    task: Task = None

    def refuse(self, name: str) -> None:
        """Raise a UsageError where the user gave any of these options for what is no table."""
        for field in fields(self):
            if getattr(self, field.name) != field.default:
                option = f"--{field.name.replace('_', '-')}"
                raise base.UsageError(f"{option} is of a table, and {name} is none: leave it out.")

    def parse(self) -> dict[str, Any]:
        """Return the arguments by which the data package reads rows."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {"ignore": split_words(self.ignore), "ids": split_words(values.pop("id")), "na": split_words(self.na)}
        return {**values, **lists, "types": datasets.parse_types(split_words(self.types))}

    def read(self, data: Path) -> datasets.LabeledRows:
        """Read rows, labels, domains and weights of a table or a folder of images."""
        arguments = self.parse()
        if data.exists() and not datasets.is_table(data):
            self.refuse(str(data))
        with bench.count_files("reading images") as progress, open_data(data) as path:
            return datasets.read_rows(path, **arguments, progress=progress)


@dataclass(frozen=True)
class RunOptions:
    """What `seqdg bench` asks of a benchmark: the fields of `bench.Request`, whose lists are still text."""

    algorithms: Algorithms = None
    held_out: HeldOut = None
    trials: Trials = None
    steps: Steps = None
    seed: Seed = 0
    settings: Settings = None
    search: Search = 1
    reuse: Reuse = False
    settings_from: SettingsFrom = None
    precision: Precision = None
    out: Out = None
    data: Data = None
    device: Device = "auto"
    executor: Executor = "local"
    workers: Workers = None
    gpus_per_worker: GpusPerWorker = None
    address: Address = None
    compile: Compile = "auto"
    checkpoint: Checkpoint = 60.0
    save_weights: SaveWeights = None
    save_predictions: SavePredictions = False
    select: Select = "source-val"
    weights: Weights = None
    allow_partial: AllowPartial = False
    domainbed: DomainBed = None
    log: Log = None

    def make_request(self) -> bench.Request:
        lists = {"algorithms": split_names(self.algorithms), "held_out": split_names(self.held_out)}
        tools = [name for text in self.log or () for name in split_words(text)]
        return bench.Request(**{**vars(self), **lists, "settings": self.settings or (), "log": tools})


@dataclass(frozen=True)
class SessionOptions:
    """What trains recorded trials again, or evaluates their weights: their task, and a device."""

    data: Data = None
    device: Device = "auto"
    benchmark: BenchmarkFile = None
    weights: Weights = None
    allow_partial: AllowPartial = False

    def make_session(self, name: str, saving: training.Saving, held_out: Sequence[str]) -> bench.Session:
        """Make a session on the benchmark of this name, or on the user's own file."""
        benchmark = bench.load_benchmark(self.benchmark or name).with_weights(self.weights)
        task = benchmark.make_task(self.data, self.allow_partial, held_out)
        return bench.Session(task, training.choose_device(self.device), saving)


def takes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of each dataclass among its parameters as options, in place of that parameter."""
    hints = inspect.get_annotations(command, eval_str=True)  # get_type_hints hides some from typer, in Python 3.10
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = groups.get(parameter.name)
        if kind is None:
            parameters.append(parameter)
        else:
            hints |= get_type_hints(kind, include_extras=True)
            parameters += inspect.signature(kind).parameters.values()

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    run.__annotations__ = {parameter.name: hints[parameter.name] for parameter in parameters}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what typer reads
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in parameters]
    )
    return run
