"""`seqdg table`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from seqdg.cli import options as given

if TYPE_CHECKING:
    from seqdg.record import Record


def table(
    directory: given.RunDirectory,
    form: given.Format = "text",
    select: given.Select = "source-val",
    criterion: given.Criterion = "accuracy",
) -> None:
    """Print the table of a run: mean ± standard error over trials, the best of every held-out domain marked."""
    from seqdg.store import Store

    store = Store.open(directory)
    typer.echo(shown(store.records(), form, select, criterion=criterion), nl=False)


def shown(
    records: Sequence[Record], form: str, select: str, order: Sequence[str] = (), criterion: str = "accuracy"
) -> str:
    """The table of some records, in the order of the plan where one is given."""
    from seqdg.errors import UsageError
    from seqdg.evaluate import HIGHER_IS_BETTER
    from seqdg.report.select import outcomes
    from seqdg.report.summary import summarize
    from seqdg.report.table import table as rendered

    place = {key: i for i, key in enumerate(order)}
    chosen = outcomes(sorted(records, key=lambda r: place.get(r.key, len(place))), select, criterion)
    if not chosen:
        raise UsageError("The run holds no finished trial yet, so there is no table to print.")
    return rendered(summarize(chosen), form, select, HIGHER_IS_BETTER[criterion])
