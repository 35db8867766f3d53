"""Find the reader of a format. Each is a module; CONTRIBUTING.md ("A data reader") says how to add one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from seqdg.base import unknown
from seqdg.data.contents import Contents
from seqdg.data.spec import READERS, DataSpec

ProgressCallback = Callable[[int, int], None]  # done, of how many


class Reader(Protocol):
    """A module with these two functions."""

    def recognizes(self, path: Path) -> bool:
        """Return whether `path` seems to be of this format."""

    def read(self, path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
        """Read all rows at `path`, and all that is wrong with them. root: the folder that `spec` is relative to."""


def find_reader(name: str) -> Reader:
    if name not in READERS:
        raise unknown("data format", name, READERS)
    return cast(Reader, import_module(READERS[name]))


def guess_format(path: Path) -> str:
    """Guess the format of a file or folder."""
    return next(name for name in reversed(READERS) if find_reader(name).recognizes(path))
