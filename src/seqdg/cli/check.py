"""`seqdg check`"""

from __future__ import annotations

import typer

from seqdg.cli import options as given


def check(
    benchmark: given.BenchmarkName,
    data: given.Data = None,
    allow_partial: given.AllowPartial = False,
) -> None:
    """Is the data on disk right? Shows domains, classes and counts beside the published ones, and all that is wrong.

    seqdg check pacs-lite0 --data ~/data
    """
    from seqdg.benchmark import load_benchmark
    from seqdg.cli.reading import counting
    from seqdg.data.load import BUNDLED
    from seqdg.data.sources import check as checked
    from seqdg.data.spec import DataSpec
    from seqdg.errors import UsageError

    chosen = load_benchmark(benchmark)
    if chosen.data.get("format") in BUNDLED:
        dataset = BUNDLED[chosen.data["format"]]()
        counts = ", ".join(f"{name} {len(dataset.rows(name))}" for name in dataset.domains)
        typer.echo(f"{chosen.name} comes with seqdg: {len(dataset.classes)} classes; rows by domain: {counts}.")
        return
    spec = DataSpec.from_table(chosen.name, chosen.data)
    if data is None:
        raise UsageError(f"Give --data the folder that holds {' or '.join(spec.path)}.")
    with counting("reading images") as progress:
        report = checked(spec, data, allow_partial, progress, chosen.held_out or None)
    typer.echo(report.text())
    if not report.ok:
        raise typer.Exit(2)
