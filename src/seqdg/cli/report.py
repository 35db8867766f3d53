"""`seqdg report`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options as given

Figures = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Also write every figure there, as SVG and PDF, for a paper.")
]
Baseline = Annotated[
    str | None, typer.Option(metavar="ALGORITHM", help="What differences are taken from. Default: agg where it ran.")
]


def report(
    directory: given.Results,
    select: given.Select = "source-val",
    criterion: given.Criterion = "accuracy",
    baseline: Baseline = None,
    figures: Figures = None,
) -> None:
    """Write DIR/report.html: one page with tables, pictures, tests and how to reproduce it. Needs no network.

    seqdg report runs/rotated-mnist --figures figures
    """
    from seqdg.report.results import Results

    results = Results.open(directory)
    typer.echo(results.report(None, select, criterion, baseline))
    if figures is not None:
        from seqdg.report.draw.files import write_figures

        for path in write_figures(results.page(select, criterion, baseline).figures, figures):
            typer.echo(path)
    results.close()
