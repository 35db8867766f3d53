"""Files in a folder or in a zip, read in the same way. Nothing is unpacked."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from seqdg.data.checks import Problem

DEPTH = 6  # folders below the root that are looked into; also ends a loop of links
LARGEST = 256 * 2**20  # bytes of one file; no picture is larger, a zip bomb may be
JUNK = ("__MACOSX", "Thumbs.db", "desktop.ini")


def get_stem(name: str) -> str:
    """Return `dog_1` of `photo/dog/dog_1.jpg`. (pathlib's is ten times slower, and a set may have a million files.)"""
    last = name.rpartition("/")[2]
    return last.rpartition(".")[0] or last


class File(NamedTuple):
    name: str  # with slashes, as the container calls it
    size: int

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("/"))

    @property
    def stem(self) -> str:
        return get_stem(self.name)


class Container(Protocol):
    place: str  # what to call it in a sentence
    files: list[File]
    folders: set[tuple[str, ...]]  # parts of every folder's path
    problems: list[Problem]

    def read(self, file: File) -> bytes: ...
    def checksums(self, files: Sequence[File]) -> list[int]: ...
    def stamp(self, files: Sequence[File]) -> str: ...


def is_junk(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") or part in JUNK for part in parts)


class FolderContainer:
    """The files below a folder: all of them, or those of `names` that are there."""

    def __init__(self, path: Path, names: Iterable[str] | None = None) -> None:
        self.path, self.place = path, str(path)
        self.files: list[File] = []
        self.folders: set[tuple[str, ...]] = set()
        self.problems: list[Problem] = []
        self._stats: dict[str, os.stat_result] = {}
        if names is None:
            self._list(path, ())
        for name in names or ():
            with suppress(OSError, ValueError):
                self._add(name, (path / name).stat())

    def _add(self, name: str, stat: os.stat_result) -> None:
        self.files.append(File(name, stat.st_size))
        self._stats[name] = stat

    def _list(self, folder: Path, parts: tuple[str, ...]) -> None:
        try:
            items = sorted(os.scandir(folder), key=lambda item: item.name)
        except OSError as error:
            self.problems.append(Problem(f"The folder {folder} cannot be listed ({error.strerror})."))
            return
        for item in items:
            here = (*parts, item.name)
            if is_junk((item.name,)):
                continue
            if item.is_dir():
                self.folders.add(here)
                if len(here) < DEPTH:
                    self._list(Path(item.path), here)
            elif not item.is_file():
                self.problems.append(Problem(f"{self.place}: '{'/'.join(here)}' is no file: a link to nothing?"))
            else:
                self._add("/".join(here), item.stat())

    def read(self, file: File) -> bytes:
        return (self.path / file.name).read_bytes()

    def checksums(self, files: Sequence[File]) -> list[int]:
        with ThreadPoolExecutor() as pool:
            return list(pool.map(self._checksum, files))

    def _checksum(self, file: File) -> int:
        try:
            return zlib.crc32(self.read(file))
        except OSError:  # listed when it is decoded
            return 0

    def stamp(self, files: Sequence[File]) -> str:
        """Return what changes whenever a file does: its path, size and times, which cost no reading."""
        digest = hashlib.sha256(str(self.path.resolve()).encode())
        for file in files:
            stat = self._stats[file.name]
            digest.update(f"{file.name}\0{file.size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n".encode())
        return digest.hexdigest()


class ZipContainer:
    def __init__(self, path: Path) -> None:
        self.path, self.place = path, str(path)
        self.files: list[File] = []
        self.folders: set[tuple[str, ...]] = set()
        self.problems: list[Problem] = []
        self._infos: dict[str, zipfile.ZipInfo] = {}
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            self.problems.append(Problem(f"{path} cannot be read as a zip ({error}): download it again."))
            return
        for info in self._zip.infolist():
            self._add(info)

    def _add(self, info: zipfile.ZipInfo) -> None:
        parts = tuple(part for part in info.filename.replace("\\", "/").split("/") if part != ".")
        name = "/".join(parts)
        if ".." in parts or "" in parts[:-1] or parts[0][1:2] == ":":  # .., /root, C:
            self.problems.append(Problem(f"{self.place}: the path '{info.filename}' climbs out of the zip."))
            return
        if is_junk(parts):
            return
        above = parts[:-1]  # a folder's name ends in a slash
        self.folders.update(above[:i] for i in range(1, len(above) + 1))
        if info.is_dir():
            return
        if name in self._infos:
            self.problems.append(Problem(f"{self.place}: '{name}' is in the zip twice."))
        elif info.flag_bits & 1:
            self.problems.append(Problem(f"{self.place}: '{name}' is encrypted: make a zip without a password."))
        else:
            self._infos[name] = info
            self.files.append(File(name, info.file_size))

    def read(self, file: File) -> bytes:
        return self._zip.read(self._infos[file.name])

    def checksums(self, files: Sequence[File]) -> list[int]:
        return [self._infos[file.name].CRC for file in files]

    def stamp(self, files: Sequence[File]) -> str:
        """Return nothing: no stamp is needed, because the directory of the zip has the checksums."""
        return ""


def open_container(path: Path) -> Container:
    return FolderContainer(path) if path.is_dir() else ZipContainer(path)
