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
    from seqdg.base.errors import UsageError
    from seqdg.report.page import page
    from seqdg.report.page import report as made
    from seqdg.report.run import read_run
    from seqdg.results.archive.reading import open_run

    store = open_run(directory)
    run = read_run(store)
    store.close()
    content = made(run, select, criterion, baseline)
    path = (directory.parent if directory.is_file() else directory) / "report.html"
    try:
        path.write_text(page(content), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}. Make room for it, or free its name.") from None
    typer.echo(path)
    if figures is not None:
        from seqdg.report.draw.files import write_figures

        for written in write_figures(content.figures, figures):
            typer.echo(written)
