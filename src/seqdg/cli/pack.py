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
    typer.Option("--out", metavar="DIR", help="The directory to write trials.parquet and evaluations.parquet in."),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Keep loss curves as they are, of trials with two domains held out, too.")
]

Criteria = Annotated[
    str | None,
    typer.Option(
        "--criteria", metavar="A,B", help="Keep these criteria beside accuracy. Default: all that were measured."
    ),
]


def pack(runs: Runs, out: Out, exact: Exact = False, criteria: Criteria = None) -> None:
    """Pack runs into two Parquet files to publish. `table`, `report`, `status` and `rerun` read them.

    So do pandas, polars and DuckDB: a row for each trial, and one for each domain of each evaluation, with every digit.
    The same records give the same bytes. It prints what it leaves out. It needs pyarrow: pip install 'seqdg[tables]'.

        seqdg pack runs/rotated-mnist --out docs/results/rotated-mnist
    """
    from seqdg.base import UsageError
    from seqdg.results import EVALUATIONS, TRIALS, open_run
    from seqdg.results import pack as pack_runs

    if out.suffix in (".xz", ".parquet"):
        raise UsageError(f"A packed run is two files: give --out a directory for them, such as {out.with_suffix('')}.")
    opened = [(path, open_run(path)) for path in runs]
    notes = pack_runs(opened, out, exact, options.split_names(criteria))
    count = len(open_run(out).statuses())
    size = sum((out / name).stat().st_size for name in (TRIALS, EVALUATIONS))
    typer.echo(f"{count} trials of {opened[0][1].benchmark} in {out}: {TRIALS} and {EVALUATIONS}, {size / 1e6:.2f} MB.")
    for note in notes:
        typer.echo(note)
