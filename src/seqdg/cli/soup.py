"""`seqdg soup`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options
from seqdg.cli.bench import quote_command

if TYPE_CHECKING:
    from seqdg.bench import Session
    from seqdg.training import Saving

Kind = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="uniform|greedy|ensemble",
        help="uniform: the mean of the weights of all candidates of a held-out domain and seed. greedy: of those that "
        "do not lower source validation, tried from the best down. ensemble: the mean of the probabilities of the "
        "seeds' models, the best candidate of each.",
    ),
]
Algorithms = Annotated[
    str | None,
    typer.Option("--algorithms", metavar="A,B", help="Of which algorithms; your own as file.py:name. Default: all."),
]
Members = Annotated[
    int, typer.Option("--members", metavar="N", help="Seeds of one ensemble, in their order; 0: all seeds in one.")
]
Criterion = Annotated[
    str | None,
    typer.Option("--criterion", metavar=options.CRITERION_NAMES, help="By what source validation ranks candidates."),
]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Run directory, made with --save-weights.")]
Benchmark = Annotated[
    str | None, typer.Option("--benchmark", metavar="FILE", help="The benchmark's file, if it is your own.")
]


def soup(
    directory: Directory,
    kind: Kind = "uniform",
    algorithms: Algorithms = None,
    members: Members = 0,
    criterion: Criterion = None,
    data: options.Data = None,
    device: options.Device = "auto",
    benchmark: Benchmark = None,
    weights: options.Weights = None,
    allow_partial: options.AllowPartial = False,
) -> None:
    """Mix models that a run has trained into one, as more columns of its table: soups of weights, and ensembles.

    The candidates of a search, for one held-out domain and seed, start from the same weights, so the mean of their
    weights is a model too, often a better one (model soups, DiWA). Seeds start from different weights: of them, take
    the mean of the probabilities; of averaged trainings such as agg+sma this is EoA. The held-out domain chooses
    nothing. Records are added to DIR as agg(soup), agg(greedy-soup) or agg+sma(ensemble); what is there is not made
    again.

        seqdg bench --algorithms agg --search 8 --trials 3 --save-weights --out runs/soup
        seqdg soup runs/soup --kind greedy
        seqdg table runs/soup --baseline agg
    """
    from seqdg.bench import MixtureChoice, Session, load_benchmark, mix_run
    from seqdg.report import Results
    from seqdg.training import choose_device

    def make_session(name: str, saving: Saving, held_out: Sequence[str]) -> Session:
        task = load_benchmark(benchmark or name).with_weights(weights).make_task(data, allow_partial, held_out)
        return Session(task, choose_device(device), saving)

    choice = MixtureChoice(kind, options.split_names(algorithms), members, criterion)
    mix_run(directory, choice, make_session, quote_command(), lambda text: print(text, file=sys.stderr))
    results = Results.open(directory)
    typer.echo(results.table(criterion=criterion))
    results.close()
