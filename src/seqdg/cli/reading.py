"""A bar that appears while files are read: pictures that are decoded, a table that is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields what to call with how many are done, of how many."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("left:"))
    shown = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True)
    with shown as progress:
        task = progress.add_task(label, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)
