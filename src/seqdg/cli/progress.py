"""How far a run is: a live bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from seqdg.bench.progress import Progress

EVERY = 10.0  # seconds between plain lines, at first; a run of hours says less


@contextmanager
def shown(label: str) -> Iterator[Callable[[Progress], None]]:
    """Yields what to call as a run goes on."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(label)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[trials]}"),
               TimeElapsedColumn(), TextColumn("{task.fields[left]}"))  # fmt: skip
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=1.0, trials="", left="")
        yield lambda p: bar.update(task, completed=p.share, trials=_trials(p), left=_left(p))


def _lines(label: str) -> Callable[[Progress], None]:
    began = said = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= max(EVERY, (now - began) / 20):
            said = now
            parts = [f"{100 * progress.share:.0f} %", _trials(progress), _left(progress)]
            print(f"{label}: {', '.join(part for part in parts if part)}", file=sys.stderr, flush=True)

    return show


def _trials(progress: Progress) -> str:
    return f"{progress.trials_done} of {progress.trials} trials"


def _left(progress: Progress) -> str:
    from seqdg.results.status import format_duration

    left = progress.left
    return "" if left is None else f"{format_duration(left)} left"
