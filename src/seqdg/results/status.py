"""The state of a run: counts of its trials, and the time that it still takes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from seqdg.results.archive.reading import open_run
from seqdg.results.directory import is_locked
from seqdg.results.record import DIVERGED, DONE, FAILED
from seqdg.results.run import RunningGroup

RUNNING, LEFT = "running", "left"


@dataclass(frozen=True)
class Status:
    """Counts of trials of the latest run; `others` are records of earlier runs that the latest did not ask for."""

    benchmark: str
    planned: int
    done: int
    diverged: int
    failed: int
    running: int
    left: int
    others: int
    active: bool  # a run is writing to the directory
    seconds_left: float | None
    groups: tuple[RunningGroup, ...]  # being trained
    error: str  # the last line of the latest failure


def read_status(directory: Path) -> Status:
    """Read the state of a run from its directory or packed file."""
    active = is_locked(directory)
    store = open_run(directory)
    planned, statuses, under_way = store.planned(), store.statuses(), store.running() if active else []
    busy = {group.group for group in under_way}
    counts = Counter(_name_state(statuses.get(key, LEFT), group in busy) for key, group in planned.items())
    errors = [error for key, error in store.failures() if key in planned]
    run, left = store.run(), None
    if active and run is not None:
        left = estimate_seconds_left(run.noted - run.started, run.share)
        left = None if left is None else max(0.0, left - (time.time() - run.noted))
    return Status(
        benchmark=store.benchmark,
        planned=len(planned),
        done=counts[DONE],
        diverged=counts[DIVERGED],
        failed=counts[FAILED],
        running=counts[RUNNING],
        left=counts[LEFT],
        others=len(statuses.keys() - planned.keys()),
        active=active,
        seconds_left=left,
        groups=tuple(under_way),
        error=(errors[0].strip().splitlines() or [""])[-1] if errors else "",
    )


def _name_state(recorded: str, busy: bool) -> str:
    return RUNNING if busy and recorded in (FAILED, LEFT) else recorded


def estimate_seconds_left(elapsed: float, share: float) -> float | None:
    """Return the time that the rest takes at the pace so far; None while that is a guess."""
    return elapsed * (1 - share) / share if elapsed > 2 and share > 0.05 else None


def format_duration(seconds: float) -> str:
    """`about 3 min`"""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {round(seconds / 3600)} h" if seconds < 48 * 3600 else f"about {round(seconds / 86400)} days"
