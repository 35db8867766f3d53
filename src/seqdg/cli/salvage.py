"""`seqdg salvage`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options


def salvage(
    directory: options.RunDirectory,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The directory to create.")],
    benchmark: Annotated[
        str | None, typer.Option(metavar="NAME", help="The benchmark of the run, if even that cannot be read.")
    ] = None,
) -> None:
    """Copy every readable record of a damaged run directory to a new one, where the run can continue."""
    from seqdg.results import salvage as salvage_run

    count = salvage_run(directory, new, benchmark)
    typer.echo(f"{count} whole records are now in {new}. With --out {new}, the run's command does what is missing.")
