"""How far a run is, on the console: a live bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from seqdg.bench.progress import Progress
from seqdg.results import format_duration

EVERY = 10.0  # seconds between plain lines, at first
SELDOM = 0.05  # of the time so far lies between them later: a run of hours says less


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows how far a run is."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_lines(label)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[trials]}"),
               TimeElapsedColumn(), TextColumn("{task.fields[left]}"))  # fmt: skip
    with _make_bar(*columns, console=console) as bar:
        task = bar.add_task(label, total=1.0, trials="", left="")
        yield lambda p: bar.update(task, completed=p.share, trials=_count_trials(p), left=_say_left(p))


@contextmanager
def count_files(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is called with how many are done, of how many, and shows a bar on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("left:"))
    with _make_bar(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _make_bar(*columns: ProgressColumn, console: Console, disable: bool = False) -> Bar:
    """Make a bar that goes when it is done. It takes over what is printed on a terminal, but leaves a file alone."""
    return Bar(
        *columns, console=console, disable=disable, transient=True,
        redirect_stdout=sys.stdout.isatty(), redirect_stderr=sys.stderr.isatty(),
    )  # fmt: skip


def _print_lines(label: str) -> Callable[[Progress], None]:
    began = last = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= max(EVERY, SELDOM * (now - began)):
            last = now
            parts = [f"{100 * progress.share:.0f} %", _count_trials(progress), _say_left(progress)]
            print(f"{label}: {', '.join(part for part in parts if part)}", file=sys.stderr, flush=True)

    return show


def _count_trials(progress: Progress) -> str:
    return f"{progress.trials_done} of {progress.trials} trials"


def _say_left(progress: Progress) -> str:
    left = progress.left
    return "" if left is None or progress.share >= 1 else f"{format_duration(left)} left"
