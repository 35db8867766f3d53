"""Reads packed runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, list_some
from seqdg.results.archive.layout import (
    EVALUATIONS,
    FORMAT,
    PARTS,
    SEAL,
    TRIAL,
    TRIALS,
    VERSION,
    import_pyarrow,
    make_digest,
    make_seal,
    read_trial_row,
)
from seqdg.results.archive.old import OLD_FILE, OldArchive
from seqdg.results.archive.packed import PackedRun
from seqdg.results.record import Evaluation, Record
from seqdg.results.run import RecordSource
from seqdg.results.store import FILE as STORE
from seqdg.results.store import Store, pause_garbage_collection


def open_run(path: Path) -> RecordSource:
    """Open a run directory, a packed run, by its directory or either of its files, or a file that 0.1 packed."""
    if path.is_file():
        return Archive(path.parent) if path.name in (TRIALS, EVALUATIONS) else OldArchive(path)
    if not (path / STORE).is_file():
        if (path / TRIALS).is_file():
            return Archive(path)
        if (path / OLD_FILE).is_file():
            return OldArchive(path / OLD_FILE)
        if runs := _list_runs(path):
            raise UsageError(f"There are no results in {path}. Give a run in it: {list_some(runs)}.")
    return Store.open(path)


def has_run(path: Path) -> bool:
    """Whether a directory holds a run or a packed run."""
    return (path / STORE).is_file() or (path / TRIALS).is_file()


def _list_runs(folder: Path) -> list[str]:
    """List the runs in a folder; where it holds none, those in its folders, as a study has them."""
    depths = (
        sorted({str(file.parent) for name in (STORE, TRIALS) for file in folder.glob(f"{inside}{name}")})
        for inside in ("*/", "*/*/")
    )
    return next(filter(None, depths), [])


class Archive(PackedRun):
    """A packed run: the contents of two files.

    When it is opened, hashes say whether its facts and evaluations are those that were packed; and when whole records
    are read, whether the numbers of every trial are.
    """

    def __init__(self, directory: Path) -> None:
        self._places = directory / TRIALS, directory / EVALUATIONS
        import_pyarrow()
        text, seal = _read_facts(self._places[0])
        facts = json.loads(text)
        self._trials: list[dict[str, Any]] = _read_table(self._places[0], list(TRIAL)).to_pylist()
        if make_seal(text, self._trials) != seal:
            raise UsageError(f"{self._places[0]} is damaged. Fetch it again, or pack the run again.")
        evaluations = _read_bytes(self._places[1])
        if hashlib.sha256(evaluations).hexdigest() != facts["evaluations"]:
            raise UsageError(
                f"{self._places[1]} is not the one that was packed with {TRIALS}: it is damaged, or of another run. "
                "Fetch both again, or pack the run again."
            )
        self._evaluations = evaluations
        columns = ([row[name] for row in self._trials] for name in ("key", "status", "group", "latest"))
        super().__init__(facts, *columns)

    def records(self, criterion: str | None = None) -> list[Record]:
        read = lru_cache(maxsize=None)(json.loads)  # most trials have the same; equal ones are one object
        with pause_garbage_collection():
            histories = self._read_histories(criterion)
            records = [read_trial_row(row, histories.get(row["key"], []), read) for row in self._trials]
        for record, row in zip(records if criterion is None else (), self._trials, strict=criterion is None):
            if make_digest(record) != row["digest"]:
                raise UsageError(
                    f"Trial {record.key} in {self._places[0].parent} does not have the numbers that were packed: its "
                    "digest is another. Fetch both files again, or pack the run again."
                )
        return records

    def _read_histories(self, criterion: str | None) -> dict[str, list[Evaluation]]:
        """Return the history of each trial by key; with a criterion, only the values of that criterion."""
        import numpy as np

        names = [name for name in self.facts["criteria"] if criterion in (None, name)]
        table = _read_table(self._places[1], ["key", "step", "part", *names], self._evaluations)
        if not table.num_rows:
            return {}
        key, part = (table[name].combine_chunks().dictionary_encode() for name in ("key", "part"))
        place = [key.indices.to_numpy(), table["step"].to_numpy(), part.indices.to_numpy()]
        changes = np.any([np.diff(column) != 0 for column in place], axis=0)
        starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
        ends = [*starts[1:], table.num_rows]
        columns = [_Column(name, table[name], starts) for name in names]
        keys, parts = key.dictionary.to_pylist(), part.dictionary.to_pylist()
        histories: dict[str, list[Evaluation]] = {}
        latest: tuple[int, int] | None = None
        values: dict[str, dict[str, list[float]]] = {}
        at = zip(*(column[starts].tolist() for column in place), strict=True)
        for i, (start, stop, (trial, step, kind)) in enumerate(zip(starts, ends, at, strict=True)):
            if (trial, step) != latest:
                latest, values = (trial, step), {part: {} for part in PARTS}
                histories.setdefault(keys[trial], []).append(Evaluation(step, **values))
            for column in columns:
                column.add(values[parts[kind]], i, start, stop)
        return histories


class _Column:
    """The values of a criterion, and how many are missing in each stretch of rows."""

    def __init__(self, name: str, column: Any, starts: Sequence[int]) -> None:
        import numpy as np

        self._name = name
        is_missing = column.is_null().to_numpy()
        self._missing: list[int] = np.add.reduceat(is_missing.astype(int), starts).tolist()
        self._is_missing: list[bool] = is_missing.tolist()
        self._values: list[float] = column.to_numpy(zero_copy_only=False).tolist()

    def add(self, part: dict[str, list[float]], i: int, start: int, stop: int) -> None:
        """Add what was measured in the i-th stretch of rows, if anything was."""
        if not self._missing[i]:
            part[self._name] = self._values[start:stop]
        elif self._missing[i] < stop - start:
            part[self._name] = [self._values[k] for k in range(start, stop) if not self._is_missing[k]]


def _read_facts(path: Path) -> tuple[str, str]:
    """Return the facts of a run, JSON in the metadata of the file, and the hash that they should have."""
    _, parquet = import_pyarrow()
    if _read_bytes(path)[:4] != b"PAR1":
        raise UsageError(f"{path} is no Parquet file. `seqdg pack` makes one.")
    with _explaining(path):
        metadata = parquet.read_metadata(path).metadata or {}
        text, seal = (metadata.get(name.encode(), b"").decode() for name in (FORMAT, SEAL))
    if not text or not seal:
        raise UsageError(f"{path} is no file of `seqdg pack`: the facts of a run are not in its metadata.")
    with _explaining(path):
        version = json.loads(text)["version"]
    if version != VERSION:
        raise UsageError(
            f"{path} was written in format {version}, and this version of seqdg reads format {VERSION}. "
            "Use the version that wrote it."
        )
    return text, seal


def _read_table(path: Path, names: Sequence[str], data: bytes | None = None) -> Any:
    """Read these columns, and check the sums of the pages that they are in."""
    arrow, parquet = import_pyarrow()
    with _explaining(path):
        source = path if data is None else arrow.BufferReader(data)
        file = parquet.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
        return file.read(columns=list(names), use_threads=False)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}. A packed run is this and the file beside it."
        ) from None


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    arrow, _ = import_pyarrow()
    try:
        yield
    except (arrow.ArrowException, OSError, KeyError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(f"{path} is damaged or cut short ({first}). Fetch it again, or pack the run again.") from None
