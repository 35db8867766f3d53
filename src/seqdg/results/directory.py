"""A run directory: made where it is not there, and held by one run at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqdg.base.errors import UsageError

_LOCK = "lock"


def make_directory(directory: Path, option: str = "--out") -> None:
    """Makes it where it is not there, and sees that it can be written to."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file. Give {option} a directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}. Give {option} another directory.") from None
    if not os.access(directory, os.W_OK):
        raise UsageError(f"{directory} cannot be written to. Give {option} another directory.")


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Holds the directory for one writer; a second one is refused."""
    make_directory(directory)
    with (directory / _LOCK).open("a") as lock:
        until = time.monotonic() + 0.5
        while not _taken(lock.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > until:
                raise UsageError(f"Another run is writing to {directory}. Wait for it, or choose another --out.")
            time.sleep(0.05)
        yield


def is_written(directory: Path) -> bool:
    """Whether a run holds it now. For an instant, this keeps a new one from doing so: hence its few attempts."""
    try:
        with (directory / _LOCK).open() as lock:
            return not _taken(lock.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _taken(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
