"""`seqdg table`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options

Against = Annotated[
    str | None,
    typer.Option(
        metavar="paper|domainbed",
        help="Show published numbers beside these, and how the two differ: the paper's, or those of DomainBed's suite "
        "(PACS with ResNet-50).",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="ALGORITHM", help="Test every other algorithm against this one, paired over seed and domain."),
]

Cost = Annotated[
    bool,
    typer.Option("--cost", help="Show the time and memory of every algorithm instead, from its records."),
]

Spread = Annotated[
    str,
    typer.Option(
        metavar="stderr|stderr-ddof0",
        help="What ± means: the standard error over n trials, its squares divided by n - 1, or by n (ddof 0), as "
        "DomainBed's tables have it.",
    ),
]
SettingsOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Also write the chosen settings, a TOML file for each held-out domain, for `seqdg bench --settings-from`.",
    ),
]


def table(
    directories: options.SeveralResults,
    form: options.Format = "text",
    select: options.Select = "source-val",
    criterion: options.Criterion = None,
    against: Against = None,
    baseline: Baseline = None,
    cost: Cost = False,
    spread: Spread = "stderr",
    settings_out: SettingsOut = None,
) -> None:
    """Print the table of a run: mean ± standard error over trials, with the best of every held-out domain marked.

    seqdg table runs/rotated-mnist --baseline agg
    """
    from seqdg.report import Results

    results = Results.open(*directories)
    if cost:
        from seqdg.report import render_costs

        typer.echo(render_costs(results.records(criterion), form, baseline or "agg"), nl=False)
    else:
        typer.echo(results.table(select, criterion, baseline, form, against, spread))
    if settings_out is not None:
        from seqdg.bench import write_settings

        for path in write_settings(results.records(), settings_out, select, criterion):
            typer.echo(path)
    results.close()
