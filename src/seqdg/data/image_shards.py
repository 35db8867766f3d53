"""A data set from pictures inside large files: tar shards, Parquet, and what Hugging Face's `datasets` saves on disk.

A tar shard holds `domain/class/picture`, or samples of WebDataset: files of one name but for what follows its first
dot, such as `0001.jpg`, `0001.cls` and `0001.json`. The class is what `.cls` says, or a key of the `.json`; the domain
a file or a key of that name, or else the shard's name without its number (`photo-000012.tar`, `photo/000012.tar`).

Parquet and Arrow files have a column of pictures as bytes, and columns for label and domain. Numbers of a column that
`datasets` knows as a ClassLabel become its names.

Nothing is unpacked, and no file is read whole: pictures are read one by one where they lie, in the order of the files.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from seqdg.base import UsageError, list_some, refuse_broken
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_rows import Contents, Problem
from seqdg.data.image_folder import list_pictures
from seqdg.data.image_list import choose_rows, describe_rows, make_text
from seqdg.data.pictures import (
    ANY,
    LARGEST,
    PICTURE_SUFFIXES,
    Container,
    File,
    PictureFile,
    fill_pixels,
    get_stem,
    is_junk,
)

ON_DISK = ("state.json", "dataset_dict.json")  # of `datasets`: of a data set, and of several splits
TABLES = (".parquet", ".arrow")
TOGETHER = 32  # rows of a Parquet file that are in memory at once, some times over
KEPT = 8  # so many times
MOST_TEXT = 2**16  # bytes of a file beside a picture


def recognizes(path: Path) -> bool:
    """Recognize tar shards, Parquet and Arrow files with a column of pictures, and folders of them."""
    if path.is_file():
        return path.suffix.lower() == ".tar" or (path.suffix.lower() in TABLES and _has_pictures(path))
    if any((path / name).is_file() for name in ON_DISK) or _list_tars(path):
        return True
    tables = sorted(item for item in path.glob("*.parquet") if item.is_file())
    return bool(tables) and all(_has_pictures(table) for table in tables)


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    return fill_pixels(*describe(path, spec, root), spec, progress)


def describe(path: Path, spec: DataSpec, root: Path) -> tuple[Contents, Container, list[PictureFile]]:
    """Return all that is read of the pictures but their pixels, and where these are."""
    tars = [path] if path.suffix.lower() == ".tar" else _list_tars(path) if path.is_dir() else []
    container: TarContainer | ColumnContainer
    if tars:
        container = TarContainer(path, tars)
        if not container.samples:
            contents, pictures = list_pictures(container, spec)
            return contents, container, pictures
        frame = container.make_frame(spec)
    else:
        container = ColumnContainer(path, _list_tables(path), spec.x_key)
        frame = container.make_frame()
    if not len(frame):
        raise UsageError("\n".join(p.text for p in container.problems) or f"{path} holds no pictures.")
    rows, problems, notes = choose_rows(frame, path, spec)
    return describe_rows(rows, problems, notes, container, spec)


class _Shards:
    """Pictures in some large files."""

    def __init__(self, path: Path, shards: Sequence[Path]) -> None:
        self.path, self.location, self.shards = path, str(path), shards
        self.files: list[File] = []
        self.folders: set[tuple[str, ...]] = set()
        self.problems: list[Problem] = []

    def read(self, file: File) -> bytes:
        raise NotImplementedError

    def checksums(self, files: Sequence[File]) -> list[int]:
        def checksum(file: File) -> int:
            try:
                return zlib.crc32(self.read(file))
            except (OSError, ValueError):  # listed when it is decoded
                return 0

        with ThreadPoolExecutor(1) as pool:  # in the order of the files: disks like it, and Parquet needs it
            return list(pool.map(checksum, files))

    def stamp(self, files: Sequence[File]) -> str:
        """Return what changes whenever a shard does, or other pictures of it are wanted."""
        digest = hashlib.sha256(str(self.path.resolve()).encode(errors=ANY))
        for shard in self.shards:
            known = shard.stat()
            digest.update(f"{shard}\0{known.st_size} {known.st_mtime_ns} {known.st_ctime_ns}\n".encode(errors=ANY))
        for file in files:
            digest.update(f"{file.name}\n".encode(errors=ANY))
        return digest.hexdigest()

    def name_shard(self, shard: Path) -> str:
        """Return the name of a shard below the folder of all, without its suffix."""
        inside = shard.relative_to(self.path) if shard != self.path else Path(shard.name)
        return inside.with_suffix("").as_posix()


class _Member(NamedTuple):
    shard: Path
    start: int
    size: int


class TarContainer(_Shards):
    """Pictures in uncompressed tar files, each known by its offset.

    samples: what is beside the pictures of WebDataset, by the name of the picture; {} where there is nothing.
    """

    def __init__(self, path: Path, shards: Sequence[Path]) -> None:
        super().__init__(path, shards)
        self.samples: dict[str, dict[str, str]] = {}
        self._members: dict[str, _Member] = {}
        listed = [(shard, *item) for shard in shards for item in self._list(shard)]
        is_sampled = any(not name.lower().endswith(PICTURE_SUFFIXES) for _, name, _ in listed)
        others: dict[tuple[Path, str], dict[str, str]] = {}
        for shard, name, member in listed if is_sampled else ():
            if not name.lower().endswith(PICTURE_SUFFIXES):
                key, extension = _split_key(name)
                others.setdefault((shard, key), {}).update(self._read_text(member, extension))
        for shard, name, member in listed:
            if not name.lower().endswith(PICTURE_SUFFIXES):
                continue
            full = f"{self.name_shard(shard)}/{name}" if is_sampled else name
            if full in self._members:
                self.problems.append(Problem(f"{self.location}: '{full}' is there twice."))
                continue
            self._members[full] = member
            self.files.append(File(full, member.size))
            parts = tuple(full.split("/"))[:-1]
            self.folders.update(parts[:i] for i in range(1, len(parts) + 1))
            if is_sampled:
                told = others.get((shard, _split_key(name)[0]), {})
                self.samples[full] = {"domain_of_shard": _find_domain(self.name_shard(shard)), **told}

    def _list(self, shard: Path) -> Iterator[tuple[str, _Member]]:
        """List the files of a shard; one that is cut short is a problem."""
        try:
            with tarfile.open(shard, "r:") as tar:
                for info in tar:
                    name = info.name.removeprefix("./")
                    parts = name.split("/")
                    if not info.isfile():
                        continue
                    if ".." in parts or "" in parts:
                        self.problems.append(Problem(f"{shard}: the path '{info.name}' climbs out of the shard."))
                    elif not is_junk(tuple(parts)):
                        yield name, _Member(shard, info.offset_data, info.size)
        except (tarfile.TarError, OSError, ValueError) as error:
            text = str(error) or type(error).__name__
            with shard.open("rb") as file:
                packed = file.read(4).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd"))
            cure = "unpack it to a plain .tar" if packed else "it is damaged or cut short: download it again"
            self.problems.append(Problem(f"{shard} cannot be read to its end ({text}): {cure}."))

    def _read_text(self, member: _Member, extension: str) -> dict[str, str]:
        """Return what a file beside a picture says, by name: of JSON its keys, of others their content."""
        if member.size > MOST_TEXT:
            return {}
        content = self._read(member)
        if extension != "json":
            return {"label" if extension == "cls" else extension: content.decode(errors="replace").strip()}
        with refuse_broken(f"A .json in {member.shard} cannot be read"):
            values = json.loads(content)
        known = values.items() if isinstance(values, Mapping) else ()
        return {key: str(value) for key, value in known if isinstance(value, str | int | float)}

    def _read(self, member: _Member) -> bytes:
        with member.shard.open("rb") as file:
            file.seek(member.start)
            return file.read(member.size)

    def read(self, file: File) -> bytes:
        return self._read(self._members[file.name])

    def make_frame(self, spec: DataSpec) -> Any:
        """Return a data frame of text with a row for every picture: `file`, and all that is said beside them."""
        import pandas

        frame = pandas.DataFrame(list(self.samples.values()), dtype=object)
        frame.insert(0, "file", list(self.samples))
        if spec.domain_column not in frame.columns and spec.domain_column == "domain":
            frame["domain"] = frame["domain_of_shard"]
        return make_text(frame.drop(columns="domain_of_shard"))


class ColumnContainer(_Shards):
    """Pictures in a column of Parquet or Arrow files; the name of one is its file's, and the number of its row."""

    def __init__(self, path: Path, shards: Sequence[Path], column: str = "") -> None:
        super().__init__(path, shards)
        if not shards:
            raise UsageError(f"{path} holds no .parquet or .arrow files.")
        self.column = column or _find_column(shards[0])
        self._cursors = {self.name_shard(shard): _open_rows(shard, self.column) for shard in shards}
        self._turn = Lock()

    def read(self, file: File) -> bytes:
        shard, _, row = file.name.rpartition("/")
        with self._turn:
            cell = self._cursors[shard](int(row))
        content = cell.get("bytes") if isinstance(cell, Mapping) else cell
        if content is None:
            where = f" ('{cell['path']}')" if isinstance(cell, Mapping) and cell.get("path") else ""
            raise ValueError(f"the column '{self.column}' holds no bytes in this row{where}")
        if len(content) > LARGEST:
            raise ValueError(f"{len(content)} bytes")
        return bytes(content)

    def make_frame(self) -> Any:
        """Return a data frame of text with a row for every picture: `file`, and all columns but that of pictures."""
        import pandas

        frames = []
        for shard in self.shards:
            frame, rows = _read_other_columns(shard, self.column)
            name = self.name_shard(shard)
            for first in _list_cells(shard, self.column, most=1):
                _check_holds_bytes(first, self.column, shard)
            frame = frame.drop(columns="file") if "file" in frame.columns else frame
            frame.insert(0, "file", [f"{name}/{i}" for i in range(rows)])
            if "split" not in frame.columns and (self.path / ON_DISK[1]).is_file():
                frame["split"] = shard.parent.name
            frames.append(frame)
            self.files += [File(f"{name}/{i}", 0) for i in range(rows)]
        return make_text(pandas.concat(frames, ignore_index=True))


def _split_key(name: str) -> tuple[str, str]:
    """Split `a/0001.left.jpg` into the sample's name and what follows its first dot, as WebDataset does."""
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return folder + slash + stem, extension.lower()


def _find_domain(shard: str) -> str:
    """Return the domain that a shard is named after: `photo` of `photo-000012` and of `photo/000012`."""
    folder, _, last = shard.rpartition("/")
    name = re.sub(r"[-_.]?(shard|part)?[-_.]?\d+([-_.]of[-_.]\d+)?$", "", last)
    return name or get_stem(folder) or last


def _list_tars(path: Path) -> list[Path]:
    """List tar shards in a folder, or one folder below."""
    return sorted(item for pattern in ("*.tar", "*/*.tar") for item in path.glob(pattern) if item.is_file())


def _list_tables(path: Path) -> list[Path]:
    """List the files of a data set in their order: of Parquet, or of what `datasets` saved."""
    if path.is_file():
        return [path]
    splits = path / ON_DISK[1]
    if splits.is_file():
        with refuse_broken(f"{splits} cannot be read"):
            names = [str(name) for name in json.loads(splits.read_text(encoding="utf-8"))["splits"]]
        return [file for name in names for file in _list_tables(path / Path(name).name)]
    state = path / ON_DISK[0]
    if state.is_file():
        with refuse_broken(f"{state} cannot be read"):
            files = [path / Path(part["filename"]).name for part in json.loads(state.read_text("utf-8"))["_data_files"]]
        if absent := [file.name for file in files if not file.is_file()]:
            raise UsageError(f"{path} lacks {list_some(absent)}, which its state.json names: copy the whole folder.")
        return files
    return sorted(item for suffix in TABLES for item in path.glob(f"*{suffix}") if item.is_file())


def _read_schema(path: Path) -> Any:
    from pyarrow import OSFile, ipc, parquet

    with refuse_broken(f"{path} cannot be read"):
        if path.suffix.lower() == ".parquet":
            return parquet.read_schema(path)
        with OSFile(str(path)) as file:
            return ipc.open_stream(file).schema


def _is_picture(kind: Any) -> bool:
    from pyarrow import types

    is_struct = types.is_struct(kind) and any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return is_struct or types.is_binary(kind) or types.is_large_binary(kind)


def _has_pictures(path: Path) -> bool:
    try:
        return any(_is_picture(field.type) for field in _read_schema(path))
    except UsageError:  # said by the reader of tables
        return False


def _find_column(path: Path) -> str:
    schema = _read_schema(path)
    names = [field.name for field in schema if _is_picture(field.type)]
    if len(names) == 1:
        return str(names[0])
    if names:
        raise UsageError(
            f"{path.name} has several columns of bytes ({list_some(names)}): name that of pictures in x_key."
        )
    raise UsageError(
        f"{path.name} has no column of pictures as bytes (its columns: {list_some(schema.names)}). Where a column "
        "holds paths, write format = 'list' and file = '{that column}' in [data], or save the bytes."
    )


def _check_holds_bytes(cell: Any, column: str, shard: Path) -> None:
    content = cell.get("bytes") if isinstance(cell, Mapping) else cell
    if content is None and isinstance(cell, Mapping) and cell.get("path"):
        raise UsageError(
            f"The column '{column}' of {shard} holds paths such as '{cell['path']}', and no bytes: save the pictures "
            "themselves, or write format = 'list' in [data] with a table of the paths."
        )


def _list_cells(path: Path, column: str, first: int = 0, most: int | None = None) -> Iterator[Any]:
    """List the cells of a column from one row on, few of them in memory at once."""
    from pyarrow import ipc, memory_map, parquet

    if path.suffix.lower() == ".parquet":
        with parquet.ParquetFile(path, memory_map=True) as file:
            groups, before = list(range(file.num_row_groups)), 0
            while groups and before + file.metadata.row_group(groups[0]).num_rows <= first:
                before += file.metadata.row_group(groups.pop(0)).num_rows
            batches = file.iter_batches(TOGETHER, row_groups=groups, columns=[column], use_threads=False)
            yield from _take_cells((batch.column(0) for batch in batches), first - before, most)
    else:
        with memory_map(str(path)) as source, ipc.open_stream(source) as stream:
            yield from _take_cells((batch.column(column) for batch in stream), first, most)


def _take_cells(arrays: Iterator[Any], first: int, most: int | None) -> Iterator[Any]:
    given = 0
    for array in arrays:
        for i in range(min(first, len(array)), len(array)):
            if given == most:
                return
            given += 1
            yield array[i].as_py()
        first = max(0, first - len(array))


def _open_rows(path: Path, column: str) -> Callable[[int], Any]:
    """Return a function that reads one row, which keeps the last ones: threads ask for rows almost in their order."""
    kept: dict[int, Any] = {}
    state: dict[str, Any] = {"next": 0, "cells": None}

    def read_row(row: int) -> Any:
        if row in kept:
            return kept[row]
        if state["cells"] is None or not state["next"] <= row < state["next"] + TOGETHER * KEPT:
            kept.clear()
            state["cells"], state["next"] = _list_cells(path, column, first=row), row
        while state["next"] <= row:
            with refuse_broken(f"{path} cannot be read"):
                kept[state["next"]] = next(state["cells"])
            state["next"] += 1
            kept.pop(state["next"] - TOGETHER * KEPT, None)
        return kept[row]

    return read_row


def _read_other_columns(path: Path, column: str) -> tuple[Any, int]:
    """Read all columns but one as a data frame, with names for the numbers of a ClassLabel, and count the rows."""
    from pyarrow import ipc, memory_map, parquet, types

    schema = _read_schema(path)
    plain = [f.name for f in schema if f.name != column and not (types.is_nested(f.type) or _is_picture(f.type))]
    with refuse_broken(f"{path} cannot be read"):
        if path.suffix.lower() == ".parquet":
            rows = parquet.read_metadata(path).num_rows
            frame = parquet.read_table(path, columns=plain, memory_map=True).to_pandas(ignore_metadata=True)
        else:
            with memory_map(str(path)) as source, ipc.open_stream(source) as stream:
                table = stream.read_all()
                rows, frame = table.num_rows, table.select(plain).to_pandas(ignore_metadata=True)
    for name, names in _find_class_names(schema).items():
        if name in frame.columns:
            known = dict(enumerate(names))
            frame[name] = frame[name].map(lambda value, known=known: known.get(value, value))
    return frame, rows


def _find_class_names(schema: Any) -> dict[str, list[str]]:
    """Return the names of the classes of every ClassLabel, from what `datasets` keeps in a schema."""
    about = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(about)["info"]["features"] if about else {}
        labels = {name: f["names"] for name, f in features.items() if isinstance(f, dict) and "names" in f}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: [str(n) for n in names] for name, names in labels.items() if isinstance(names, list)}
