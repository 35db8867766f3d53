"""Arguments and options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory, as given to `seqdg fit --out`.")]
Algorithms = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Names from `seqdg list algorithms`; your own as module:name or file.py:name. Default: the benchmark's.",
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
        help="Of training. tf32 and bf16 are quicker on a GPU; with float64 every machine comes to the same numbers. "
        "Default: the benchmark's.",
    ),
]
Seed = Annotated[int, typer.Option(help="The first trial's seed; the others follow.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="ALGORITHM.SETTING=VALUE",
        help="For example fo-s-mldg.alpha=0.05,0.6 or agg.lr=0.1; may be repeated.",
    ),
]
Search = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Candidates per algorithm, as many for each: with its settings as they are, and others with settings "
        "drawn from the ranges beside them and the learning rate from a tenth to twice what it is (log-uniform; "
        "lr_search in a benchmark's file says otherwise). What --set gives is not searched.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Run directory. What it holds already is not run again. Default: runs/BENCHMARK."),
]
Data = Annotated[
    Path | None, typer.Option(help="Root folder of the data; the benchmark's file names what lies below it.")
]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to train. auto takes a GPU if there is one.")]
Select = Annotated[
    str,
    typer.Option(
        metavar="source-val|last|leave-one-out|oracle",
        help="Which evaluation of a trial counts. Only oracle looks at the held-out domain.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="Weight file that the net starts from: .safetensors, or .pth as torchvision publishes them."),
]
AllowPartial = Annotated[
    bool,
    typer.Option(
        "--allow-partial", help="Go on where the data differ from the published counts, with a note in the record."
    ),
]
Executor = Annotated[
    str,
    typer.Option("--executor", metavar="local|ray", help="Where workers run: on this machine, or on a Ray cluster."),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes; 0: this process alone. Default: one for each core, or for each GPU."),
]
GpusPerWorker = Annotated[
    float | None, typer.Option(metavar="PART", help="Part of a GPU for each worker: 0.25 puts four on one. Default: 1.")
]
Address = Annotated[
    str | None,
    typer.Option(help="Of a running Ray cluster, or `auto` to find it. Default: a Ray of this machine's own."),
]
Checkpoint = Annotated[
    float, typer.Option(metavar="SECONDS", help="Between checkpoints of trials that take longer; 0: none.")
]
SaveWeights = Annotated[
    bool, typer.Option("--save-weights", help="Keep every trial's deployed weights, in DIR/weights/TRIAL.safetensors.")
]
Format = Annotated[str, typer.Option("--format", metavar="text|markdown|latex|csv|json")]
CRITERIA = "accuracy|balanced_accuracy|log_loss|calibration_error|auroc"
Criterion = Annotated[str, typer.Option(metavar=CRITERIA, help="What is tabled.")]


def names(text: str | None) -> list[str] | None:
    """`a,b` as a list."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
