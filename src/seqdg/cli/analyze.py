"""`seqdg analyze`"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.report.section import Section

Which = Annotated[
    str,
    typer.Argument(metavar="KIND", help="What to look into, such as invariance, tsne or cost; see the documentation."),
]
Interest = Annotated[
    str | None,
    typer.Option("--domain", metavar="D", help="The domain of interest, for ranks. Default: the first source."),
]
Figures = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write the figures there, as SVG and PDF.")]
OneHeldOut = Annotated[
    str | None, typer.Option(metavar="D", help="The domain to hold out. Default: the last; for ensemble, each in turn.")
]
Trials = Annotated[int | None, typer.Option(help="Seeds. Default: the analysis's own, one or two.")]


def analyze(
    kind: Which,
    benchmark: given.BenchmarkName = "rotated-mnist",
    algorithms: given.Algorithms = None,
    held_out: OneHeldOut = None,
    trials: Trials = None,
    steps: given.Steps = None,
    seed: given.Seed = 0,
    settings: given.Settings = None,
    domain: Interest = None,
    out: given.Out = None,
    data: given.Data = None,
    device: given.Device = "auto",
    figures: Figures = None,
) -> None:
    """Look into what algorithms learn: train what it takes, keep the numbers in the run directory, print them.

    `seqdg report` of that directory shows the picture.

        seqdg analyze alignment --algorithms agg,fo-s-mldg
    """
    from seqdg.base.errors import unknown
    from seqdg.bench.benchmark import load_benchmark
    from seqdg.bench.executors.choice import ExecutorChoice, choose_executor
    from seqdg.bench.executors.process import prepare_process
    from seqdg.bench.executors.session import Session
    from seqdg.bench.run import default_directory
    from seqdg.cli.bench import command
    from seqdg.paper.study import Study
    from seqdg.report.analyses import find_analysis, list_analyses, show_analysis
    from seqdg.results.directory import lock_directory, make_directory
    from seqdg.results.store import Store

    asked = find_analysis(kind)
    if asked is None:
        raise unknown("analysis", kind, list_analyses())
    chosen = load_benchmark(benchmark)
    directory = out or default_directory(chosen)
    make_directory(directory)
    if figures is not None:
        make_directory(figures, "--figures")  # now, not after the training
    executor, kind_of_device = choose_executor(ExecutorChoice(), device)
    session = Session(chosen.make_task(data), kind_of_device)
    prepare_process()
    with lock_directory(directory):
        store = Store.create(directory, chosen.name)
        with _working(f"{kind} on {chosen.name}") as tick:
            study = Study(
                chosen, session, given.names(algorithms) or asked.algorithms,
                held_out or session.task.dataset().domains[-1],
                asked.trials if trials is None else trials, seed, asked.steps if steps is None else steps,
                settings or (), domain=domain, everywhere=asked.everywhere and held_out is None,
                executor=executor, tick=tick,
            )  # fmt: skip
            payload = {
                "of": {**study.describe(), "domain": domain},
                "numbers": asked.compute(study),
                "command": command(),
            }
        store.add_analysis(kind, payload)
        store.close()
    shown = show_analysis(kind, payload)
    typer.echo(_printed(shown), nl=False)
    print(f"The numbers are kept. `seqdg report {directory}` shows the picture.", file=sys.stderr)
    if figures is not None:
        from seqdg.report.draw.files import write_figures

        for written in write_figures(shown.figures, figures):
            typer.echo(written)


@contextmanager
def _working(label: str) -> Iterator[Callable[[int], None]]:
    """On a terminal, how many steps have been taken; yields what to call with how many more."""
    from rich.console import Console

    taken = 0
    with Console(stderr=True).status(label) as status:

        def tick(steps: int) -> None:
            nonlocal taken
            taken += steps
            status.update(f"{label}: {taken} steps")

        yield tick


def _printed(shown: Section) -> str:
    """Its sentences, then its tables, for a terminal."""
    from seqdg.report.analyses import HOW
    from seqdg.report.text import draw_table

    lines = [shown.title, *shown.text]
    for table in [*shown.tables, *(t for t in shown.aside if t.caption != HOW)]:
        grid = [list(table.head), *([name, *cells] for name, cells in table.rows)]
        lines += ["", table.caption, *draw_table([[cell.removeprefix("*") for cell in line] for line in grid])]
    return "\n".join(lines) + "\n"
