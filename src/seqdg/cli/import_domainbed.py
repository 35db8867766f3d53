"""`seqdg import-domainbed`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options

Sweep = Annotated[
    Path,
    typer.Argument(metavar="SWEEP", help="The --output_dir of a DomainBed sweep, or the train_output of a fork."),
]
Out = Annotated[
    Path, typer.Option(help="Run directory to write. Of several data sets, one below it for each, by name.")
]
Domains = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Names of the environments in their order, to match those of another run. Default: DomainBed's.",
    ),
]
AllowPartial = Annotated[bool, typer.Option("--allow-partial", help="Leave out trainings that were cut short.")]


def import_domainbed(sweep: Sweep, out: Out, domains: Domains = None, allow_partial: AllowPartial = False) -> None:
    """Read the results of DomainBed, SWAD, MIRO, SAGM or GGA into a run directory, for `table`, `report` and `status`.

    seqdg import-domainbed sweep --out runs/theirs

    seqdg table runs/theirs --select oracle-split --spread stderr-ddof0
    """
    from seqdg.cli.bench import quote_command
    from seqdg.interop import describe_import, import_sweep

    for found in import_sweep(sweep, out, options.split_names(domains), allow_partial, quote_command()):
        typer.echo(describe_import(found))
