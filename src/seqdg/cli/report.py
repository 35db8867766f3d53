"""`seqdg report`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options

Figures = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder to write every figure to as well, as SVG, PDF and PNG, for a paper."),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="While a run goes on, write the page anew as trials finish; it reloads itself.")
]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="ALGORITHM", help="The algorithm that others are compared with. Default: agg, if it ran."),
]


def report(
    directories: options.SeveralResults,
    select: options.Select = "source-val",
    criterion: options.Criterion = None,
    baseline: Baseline = None,
    figures: Figures = None,
    watch: Watch = False,
) -> None:
    """Write DIR/report.html: one page with tables, figures, tests and how to reproduce them. It needs no network.

        seqdg report runs/rotated-mnist --figures figures

    What is given here is shown at first. On the page, choose another criterion, rule or baseline, follow an algorithm
    through all figures, sort tables, and save them as CSV or LaTeX.
    """
    from seqdg.report import Results

    if watch:
        from seqdg.report import watch_run

        watch_run(directories, lambda results, version: results.report(None, select, criterion, baseline, version),
                  lambda line: print(line, file=sys.stderr))  # fmt: skip
    results = Results.open(*directories)
    typer.echo(directories[0] / "report.html" if watch else results.report(None, select, criterion, baseline))
    if figures is not None:
        from seqdg.report import write_figures

        for path in write_figures(results.page(select, criterion, baseline).figures, figures):
            typer.echo(path)
    results.close()
