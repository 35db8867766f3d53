"""`seqdg report`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options

Figures = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder to write every figure to as well, as SVG, PDF and PNG, for a paper."),
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
) -> None:
    """Write DIR/report.html: one page with tables, figures, tests and how to reproduce them. It needs no network.

    seqdg report runs/rotated-mnist --figures figures
    """
    from seqdg.report.results import Results

    results = Results.open(*directories)
    typer.echo(results.report(None, select, criterion, baseline))
    if figures is not None:
        from seqdg.report.charts import write_figures

        for path in write_figures(results.page(select, criterion, baseline).figures, figures):
            typer.echo(path)
    results.close()
