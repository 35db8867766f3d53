"""`seqdg table`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.results.record import Record

Against = Annotated[
    str | None,
    typer.Option(metavar="paper", help="Set the paper's published numbers beside these, and say how the two differ."),
]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="ALGORITHM", help="Test every other algorithm against this one, paired over seed and domain."),
]

Cost = Annotated[
    bool,
    typer.Option("--cost", help="Instead, what the run took: time and memory of every algorithm, from its records."),
]


def table(
    directory: given.Results,
    form: given.Format = "text",
    select: given.Select = "source-val",
    criterion: given.Criterion = "accuracy",
    against: Against = None,
    baseline: Baseline = None,
    cost: Cost = False,
) -> None:
    """Print the table of a run: mean ± standard error over trials, the best of every held-out domain marked.

    seqdg table runs/rotated-mnist --baseline agg
    """
    from seqdg.results.archive.reading import open_run
    from seqdg.results.store import pause_garbage_collection

    with pause_garbage_collection():  # the records are needed to the end
        store = open_run(directory)
        records, benchmark = store.records(criterion), store.benchmark
        store.close()
        if cost:
            from seqdg.report.spent import spent_table

            typer.echo(spent_table(records, form, baseline or "agg"), nl=False)
            return
        typer.echo(shown(records, form, select, (), criterion, baseline, against, benchmark), nl=False)


def shown(
    records: Sequence[Record],
    form: str,
    select: str,
    order: Sequence[str] = (),
    criterion: str = "accuracy",
    baseline: str | None = None,
    against: str | None = None,
    benchmark: str = "",
) -> str:
    """The table of some records, in the order of the plan where one is given."""
    from seqdg.report.sheet import sheet
    from seqdg.report.table import table as rendered

    place = {key: i for i, key in enumerate(order)}
    records = sorted(records, key=lambda r: place.get(r.key, len(place)))
    return rendered(sheet(records, select, criterion, baseline, against, benchmark), form)
