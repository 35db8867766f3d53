"""`seqdg analyze`"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options

if TYPE_CHECKING:
    from seqdg.report import Section

Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND", help="Which analysis, such as invariance, tsne or cost; the documentation lists all."
    ),
]
Domain = Annotated[
    str | None,
    typer.Option("--domain", metavar="D", help="The domain of interest, for ranks. Default: the first source."),
]
Figures = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder to write the figures to: SVG, PDF, PNG.")]
FirstSteps = Annotated[
    int | None,
    typer.Option(
        "--first-steps",
        metavar="N",
        help="Training steps of the first phase, for invariance. Default: as many as of the second (--steps).",
    ),
]
OneHeldOut = Annotated[
    str | None, typer.Option(metavar="D", help="The domain to hold out. Default: the last; for ensemble, each in turn.")
]
Trials = Annotated[int | None, typer.Option(help="Number of seeds. Default: one or two, depending on the analysis.")]


def analyze(
    kind: Kind,
    benchmark: options.BenchmarkName = "rotated-mnist",
    algorithms: options.Algorithms = None,
    held_out: OneHeldOut = None,
    trials: Trials = None,
    steps: options.Steps = None,
    first_steps: FirstSteps = None,
    seed: options.Seed = 0,
    settings: options.Settings = None,
    domain: Domain = None,
    out: options.Out = None,
    data: options.Data = None,
    device: options.Device = "auto",
    figures: Figures = None,
) -> None:
    """Analyze what algorithms learn: train them, keep the numbers in the run directory, and print them.

    `seqdg report` shows the pictures of the same directory.

        seqdg analyze alignment --algorithms agg,fo-s-mldg
    """
    from seqdg.base import UsageError, unknown
    from seqdg.bench import ExecutorChoice, Session, choose_executor, default_directory, load_benchmark, prepare_process
    from seqdg.cli.bench import quote_command
    from seqdg.paper import Study
    from seqdg.report import find_analysis, list_analyses, show_analysis
    from seqdg.results import Store, lock_directory, make_directory

    analysis = find_analysis(kind)
    if analysis is None:
        raise unknown("analysis", kind, list_analyses())
    if first_steps is not None and not analysis.has_first_phase:
        raise UsageError(f"{kind} has one phase. Give its length with --steps, without --first-steps.")
    chosen = load_benchmark(benchmark)
    directory = out or default_directory(chosen)
    make_directory(directory)
    if figures is not None:
        make_directory(figures, "--figures")  # now, not after the training
    executor, device = choose_executor(ExecutorChoice(), device)
    session = Session(chosen.make_task(data), device)
    prepare_process()
    with lock_directory(directory):
        store = Store.create(directory, chosen.name)
        with _count_steps(f"{kind} on {chosen.name}") as on_progress:
            study = Study(
                chosen, session, options.split_names(algorithms) or analysis.algorithms,
                held_out or session.task.dataset().domains[-1],
                analysis.trials if trials is None else trials, seed, analysis.steps if steps is None else steps,
                settings or (), first_steps=first_steps, domain=domain,
                everywhere=analysis.everywhere and held_out is None, executor=executor, on_progress=on_progress,
            )  # fmt: skip
            payload = {
                "of": {**study.describe(), "domain": domain},
                "numbers": analysis.compute(study),
                "command": quote_command(),
            }
        store.add_analysis(kind, payload)
        store.close()
    section = show_analysis(kind, payload)
    typer.echo(_format_section(section), nl=False)
    print(f"The numbers are kept. `seqdg report {directory}` shows the picture.", file=sys.stderr)
    if figures is not None:
        from seqdg.report import write_figures

        for path in write_figures(section.figures, figures):
            typer.echo(path)


@contextmanager
def _count_steps(label: str) -> Iterator[Callable[[int], None]]:
    """Count steps on a terminal; yield a function to call with the number of new ones."""
    from rich.console import Console

    taken = 0
    with Console(stderr=True).status(label) as status:

        def on_progress(steps: int) -> None:
            nonlocal taken
            taken += steps
            status.update(f"{label}: {taken} steps")

        yield on_progress


def _format_section(section: Section) -> str:
    """Format its sentences, then its tables, for a terminal."""
    from seqdg.report import HOW, draw_table

    lines = [section.title, *section.text]
    for table in [*section.tables, *(t for t in section.aside if t.caption != HOW)]:
        grid = [list(table.head), *([name, *cells] for name, cells in table.rows)]
        lines += ["", table.caption, *draw_table([[cell.removeprefix("*") for cell in line] for line in grid])]
    return "\n".join(lines) + "\n"
