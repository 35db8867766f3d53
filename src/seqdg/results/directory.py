"""A run directory, which one run at a time writes to."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqdg.base import UsageError

_LOCK = "lock"


def make_directory(directory: Path, option: str = "--out") -> None:
    """Make the directory where it does not exist, and check that it can be written to."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file. Give {option} a directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}. Give {option} another directory.") from None
    if not os.access(directory, os.W_OK):
        raise UsageError(f"{directory} cannot be written to. Give {option} another directory.")


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory for one writer; refuse a second one."""
    make_directory(directory)
    with (directory / _LOCK).open("a") as lock:
        deadline = time.monotonic() + 0.5
        while not _take_lock(lock.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise UsageError(f"Another run is writing to {directory}. Wait for it, or choose another --out.")
            time.sleep(0.05)
        yield


def is_locked(directory: Path) -> bool:
    """Say whether a run is writing to the directory. The check itself takes the lock for an instant, which is why
    `lock_directory` tries more than once."""
    try:
        with (directory / _LOCK).open() as lock:
            return not _take_lock(lock.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _take_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
