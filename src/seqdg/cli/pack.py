"""`seqdg pack`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="Run directories of one benchmark, or packed runs."),
]
Out = Annotated[
    Path,
    typer.Option("--out", metavar="FILE", help="A file that ends in .xz, or a directory to write records.json.xz in."),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Keep every digit of every criterion; the file is about three times as large.")
]

Criteria = Annotated[
    str | None,
    typer.Option(
        "--criteria", metavar="A,B", help="Keep these criteria beside accuracy. Default: all that were measured."
    ),
]


def pack(runs: Runs, out: Out, exact: Exact = False, criteria: Criteria = None) -> None:
    """Pack runs into one compact file to publish. `table`, `report`, `status` and `rerun` read it.

    The same records give the same bytes. It prints what it leaves out.

        seqdg pack runs/rotated-mnist --out docs/results/rotated-mnist
    """
    from seqdg.results.archive.reading import FILE, open_run
    from seqdg.results.archive.writing import pack as pack_runs

    file = out if out.suffix == ".xz" else out / FILE
    opened = [(path, open_run(path)) for path in runs]
    notes = pack_runs(opened, file, exact, options.split_names(criteria))
    count = len(open_run(file).statuses())
    typer.echo(f"{count} trials of {opened[0][1].benchmark} in {file}, {file.stat().st_size / 1e6:.2f} MB.")
    for note in notes:
        typer.echo(note)
