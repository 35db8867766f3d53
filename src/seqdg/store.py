"""Records in a run directory: one SQLite file, one writer, any number of readers."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from seqdg.errors import UsageError
from seqdg.record import FAILED, Evaluation, Record

SCHEMA = 1
FILE = "results.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    key TEXT PRIMARY KEY,
    algorithm TEXT NOT NULL, held_out TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL,
    description TEXT NOT NULL, history TEXT NOT NULL, losses TEXT NOT NULL,
    seconds REAL NOT NULL, peak_memory INTEGER NOT NULL, stacked INTEGER NOT NULL,
    device TEXT NOT NULL, versions TEXT NOT NULL, commit_id TEXT NOT NULL, weights TEXT NOT NULL,
    error TEXT NOT NULL, finished REAL NOT NULL
);
"""
_JSON = ("description", "history", "losses", "versions")


class Store:
    """`Store.create` makes or opens a run directory for writing; `Store.open` reads one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._db.row_factory = sqlite3.Row

    @classmethod
    def create(cls, directory: Path, benchmark: str) -> Store:
        """For a run of this benchmark; a directory of another is refused."""
        make_directory(directory)
        store = cls(directory / FILE)
        store._db.execute("PRAGMA journal_mode=WAL")
        store._db.execute("PRAGMA synchronous=FULL")
        store._db.executescript(_TABLES)
        store._db.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
        store._db.execute("INSERT OR IGNORE INTO meta VALUES ('benchmark', ?)", (benchmark,))
        store._check_schema()
        if store.benchmark != benchmark:
            raise UsageError(
                f"{directory} holds a run of '{store.benchmark}', not of '{benchmark}'. Choose another --out."
            )
        return store

    @classmethod
    def open(cls, directory: Path) -> Store:
        if not (directory / FILE).is_file():
            raise UsageError(f"There are no results in {directory}. `seqdg bench --out {directory}` makes some.")
        store = cls(directory / FILE)
        store._check_schema()
        return store

    def _check_schema(self) -> None:
        found = self.meta("schema")
        if found != str(SCHEMA):
            raise UsageError(
                f"{self.path} was written in format {found}, and this version of seqdg reads format {SCHEMA}. "
                "Use the version that wrote it, or choose another --out."
            )

    def meta(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    @property
    def benchmark(self) -> str:
        return self.meta("benchmark") or ""

    def finished(self) -> set[str]:
        """Keys of the trials that need not run again."""
        return {row[0] for row in self._db.execute("SELECT key FROM trials WHERE status != ?", (FAILED,))}

    def add(self, records: Iterable[Record]) -> None:
        """All or none, in one transaction."""
        rows = [_row(record) for record in records]
        places = ", ".join("?" * 17)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(f"INSERT OR REPLACE INTO trials VALUES ({places})", rows)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def records(self) -> list[Record]:
        """In the order in which they finished."""
        return [_record(row) for row in self._db.execute("SELECT * FROM trials ORDER BY finished, rowid")]

    def close(self) -> None:
        self._db.close()


def _row(record: Record) -> tuple[object, ...]:
    values = asdict(record)
    return (
        record.key, record.algorithm, ",".join(record.held_out), record.seed, record.status,
        *(json.dumps(values[name]) for name in ("description", "history", "losses")),
        record.seconds, record.peak_memory, record.stacked, record.device, json.dumps(record.versions),
        record.commit, record.weights, record.error, time.time(),
    )  # fmt: skip


def _record(row: sqlite3.Row) -> Record:
    read = {name: json.loads(row[name]) for name in _JSON}
    return Record(
        key=row["key"],
        description=read["description"],
        status=row["status"],
        history=[Evaluation(**e) for e in read["history"]],
        losses=read["losses"],
        seconds=row["seconds"],
        peak_memory=row["peak_memory"],
        stacked=row["stacked"],
        device=row["device"],
        versions=read["versions"],
        commit=row["commit_id"],
        weights=row["weights"],
        error=row["error"],
    )


def make_directory(directory: Path) -> None:
    """Makes it where it is not there, and sees that it can be written to."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file. Give --out a directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}. Give --out another directory.") from None
    if not os.access(directory, os.W_OK):
        raise UsageError(f"{directory} cannot be written to. Give --out another directory.")


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Holds the directory for one writer; a second one is refused."""
    make_directory(directory)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"Another run is writing to {directory}. Wait for it, or choose another --out.") from None
        yield
