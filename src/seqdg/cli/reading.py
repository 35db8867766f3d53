"""A bar that appears when a data set has to be decoded, which happens once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields what to call with how many are done, of how many."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("left:"))
    shown = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True)
    with shown as progress:
        task = progress.add_task(label, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)
