"""Files of a run directory beside its store: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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
        """Whoever reads it, even after a power loss, finds the whole of it or what was there before."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """Of the files in a folder, without those that a crash left half written: these are removed."""
        found = []
        for path in sorted((self.root / folder).glob("*")):
            if path.name.endswith(".part"):
                path.unlink(missing_ok=True)
            else:
                found.append(f"{folder}/{path.name}")
        return found


def _sync(folder: Path) -> None:
    """Makes a rename last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
