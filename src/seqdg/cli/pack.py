"""`seqdg pack`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="Run directories of one benchmark, or runs that were packed before."),
]
To = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FILE", help="Where to write it: a file that ends in .xz, or a directory for records.json.xz."
    ),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Keep every digit of every criterion; the file is about three times as large.")
]


def pack(runs: Runs, out: To, exact: Exact = False) -> None:
    """Pack runs into one compact file to publish, which `table`, `report`, `status` and `rerun` read.

    The same records give the same bytes. What is left out is said.

        seqdg pack runs/rotated-mnist --out docs/results/rotated-mnist
    """
    from seqdg.results.archive.reading import FILE, open_run
    from seqdg.results.archive.writing import pack as packed

    file = out if out.suffix == ".xz" else out / FILE
    found = [(path, open_run(path)) for path in runs]
    said = packed(found, file, exact)
    count = len(open_run(file).statuses())
    typer.echo(f"{count} trials of {found[0][1].benchmark} in {file}, {file.stat().st_size / 1e6:.2f} MB.")
    for sentence in said:
        typer.echo(sentence)
