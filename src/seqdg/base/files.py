"""Files and folders that are written whole or not at all: readers see the old content or all of the new."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

UNFINISHED = ".part"  # how the name of a file or folder ends while it is being written


class Files(Protocol):
    """Named blocks of bytes. In a worker without the directory, they go to and come from the process that has it."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes) -> None: ...


@dataclass(frozen=True)
class Folder:
    """Files below a folder of this machine; a name may hold a slash."""

    root: Path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            file.write(data)

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder. Files that a crash left half written are removed."""
        names = []
        for path in sorted((self.root / folder).glob("*")):
            if path.name.endswith(UNFINISHED):
                path.unlink(missing_ok=True)
            else:
                names.append(f"{folder}/{path.name}")
        return names


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends, even through a power loss.

    If the block raises, `path` stays as it was.
    """
    unfinished = _name_unfinished(path)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_folder(path.parent)


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder that takes the place of `path` when the block ends. If the block raises, nothing changes."""
    path = path.resolve()
    unfinished, previous = _name_unfinished(path), _name_unfinished(path)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        if path.exists():
            path.rename(previous)
        try:
            unfinished.rename(path)
        except OSError:
            if previous.exists():
                previous.rename(path)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(previous, ignore_errors=True)
    _sync_folder(path.parent)


def _name_unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}")


def _sync_folder(folder: Path) -> None:
    """Force a rename to disk. Windows opens no folders, and needs none of this."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
