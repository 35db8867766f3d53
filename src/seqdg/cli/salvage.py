"""`seqdg salvage`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options as given


def salvage(
    directory: given.RunDirectory,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A directory to make.")],
    benchmark: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose run it is, where not even that can be read.")
    ] = None,
) -> None:
    """Copy what can be read of a damaged run directory to a new one, where the run can go on."""
    from seqdg.results.salvage import salvage as copied

    count = copied(directory, new, benchmark)
    typer.echo(f"{count} whole records are now in {new}. With --out {new}, the run's command does what is missing.")
