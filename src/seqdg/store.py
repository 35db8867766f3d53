"""Records in a run directory: one SQLite file, one run that writes, any number of readers."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqdg.errors import UsageError
from seqdg.packing import pack, pack_history, unpack, unpack_history
from seqdg.record import FAILED, Record

SCHEMA = 2
FILE = "results.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    key TEXT PRIMARY KEY,
    algorithm TEXT NOT NULL, held_out TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL,
    seconds REAL NOT NULL, peak_memory INTEGER NOT NULL, stacked INTEGER NOT NULL, finished REAL NOT NULL,
    device TEXT NOT NULL, versions TEXT NOT NULL, commit_id TEXT NOT NULL, weights TEXT NOT NULL, notes TEXT NOT NULL,
    error TEXT NOT NULL, description TEXT NOT NULL, shape TEXT NOT NULL, history BLOB NOT NULL, losses BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS planned (key TEXT PRIMARY KEY, in_group TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS running (
    in_group TEXT PRIMARY KEY, algorithm TEXT NOT NULL, trials INTEGER NOT NULL,
    step INTEGER NOT NULL, steps INTEGER NOT NULL, since REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS analyses (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, payload TEXT NOT NULL
);
"""
_COLUMNS = (
    "key", "algorithm", "held_out", "seed", "status", "seconds", "peak_memory", "stacked", "finished", "device",
    "versions", "commit_id", "weights", "notes", "error", "description", "shape", "history", "losses",
)  # fmt: skip


@dataclass(frozen=True)
class Analysis:
    """Something else that was found out about a run, kept beside its records."""

    name: str
    created: float  # seconds since 1970
    payload: Any  # what JSON can hold


class Store:
    """`Store.create` makes or opens a run directory for a run; `Store.open` reads one."""

    def __init__(self, path: Path, readonly: bool = False) -> None:
        self.path = path
        where = f"{path.resolve().as_uri()}?mode=ro" if readonly else str(path)
        if readonly and not path.with_name(f"{FILE}-wal").exists():
            where += "&immutable=1"  # without it SQLite wants to make files beside one that nobody is writing
        self._db = sqlite3.connect(where, isolation_level=None, timeout=30, uri=readonly)
        self._db.row_factory = sqlite3.Row

    @classmethod
    def create(cls, directory: Path, benchmark: str) -> Store:
        """For a run of this benchmark; a directory of another is refused."""
        make_directory(directory)
        fresh = not (directory / FILE).exists()
        store = cls(directory / FILE)
        with store._said():
            store._db.execute("PRAGMA journal_mode=WAL")
            store._db.execute("PRAGMA synchronous=FULL")
            with store._transaction():
                if fresh or not store._query("SELECT name FROM sqlite_master"):
                    for statement in _TABLES.split(";"):
                        store._db.execute(statement)
                    store.set_meta("schema", str(SCHEMA))
                    store.set_meta("benchmark", benchmark)
        store._check()
        if store.benchmark != benchmark:
            raise UsageError(
                f"{directory} holds a run of '{store.benchmark}', not of '{benchmark}'. Choose another --out."
            )
        return store

    @classmethod
    def open(cls, directory: Path) -> Store:
        if not (directory / FILE).is_file():
            raise UsageError(f"There are no results in {directory}. `seqdg bench --out {directory}` makes some.")
        store = cls(directory / FILE, readonly=not os.access(directory, os.W_OK))
        store._check()
        return store

    def _check(self) -> None:
        tables = {row[0] for row in self._query("SELECT name FROM sqlite_master")}
        found = self.meta("schema") if "meta" in tables else None
        if found != str(SCHEMA):
            written = f"was written in format {found}" if found else "is no store of seqdg"
            raise UsageError(
                f"{self.path} {written}, and this version of seqdg reads format {SCHEMA}. "
                "Use the version that wrote it, or choose another directory."
            )

    def meta(self, name: str) -> str | None:
        rows = self._query("SELECT value FROM meta WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def set_meta(self, name: str, value: str) -> None:
        self._query("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    @property
    def benchmark(self) -> str:
        return self.meta("benchmark") or ""

    def statuses(self) -> dict[str, str]:
        """By key, of every trial that has a record."""
        return {row[0]: row[1] for row in self._query("SELECT key, status FROM trials")}

    def finished(self) -> set[str]:
        """Keys of the trials that need not run again."""
        return {key for key, status in self.statuses().items() if status != FAILED}

    def add(self, records: Iterable[Record], group: str = "") -> None:
        """All or none, in one transaction; the group is no longer running."""
        rows = [_row(record) for record in records]
        with self._transaction():
            places = ", ".join("?" * len(_COLUMNS))
            self._db.executemany(f"INSERT OR REPLACE INTO trials ({', '.join(_COLUMNS)}) VALUES ({places})", rows)
            self._db.execute("DELETE FROM running WHERE in_group = ?", (group,))

    def records(self) -> list[Record]:
        """In the order in which they finished."""
        return [_record(row) for row in self._query("SELECT * FROM trials ORDER BY finished, rowid")]

    def add_analysis(self, name: str, payload: Any) -> None:
        text = json.dumps(payload)
        self._query("INSERT INTO analyses (name, created, payload) VALUES (?, ?, ?)", (name, time.time(), text))

    def analyses(self, name: str | None = None) -> list[Analysis]:
        """All, or those of one name, the oldest first."""
        rows = self._query(
            "SELECT name, created, payload FROM analyses WHERE ? IN (name, '') ORDER BY id", (name or "",)
        )
        return [Analysis(row[0], row[1], json.loads(row[2])) for row in rows]

    def close(self) -> None:
        self._db.close()

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._said():
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._said():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _said(self) -> Iterator[None]:
        """What SQLite reports, as a sentence that says what to do."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise UsageError(_sentence(self.path, error)) from error


def _sentence(path: Path, error: sqlite3.DatabaseError) -> str:
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return (
            f"Nothing more can be written to {path.parent} ({text}). Make room and run the command again: "
            "what is stored there stays, and is not repeated."
        )
    if "malformed" in text or "not a database" in text:
        return (
            f"{path} is damaged ({text}). `seqdg salvage {path.parent} NEW` copies what can be read to a new "
            "directory, where the run can go on."
        )
    return f"{path} cannot be used: {text}."


def _row(record: Record) -> tuple[object, ...]:
    return (
        record.key, record.algorithm, ",".join(record.held_out), record.seed, record.status,
        record.seconds, record.peak_memory, record.stacked, record.finished or time.time(), record.device,
        json.dumps(record.versions), record.commit, record.weights, json.dumps(record.notes), record.error,
        json.dumps(record.description), *pack_history(record.history), pack(record.losses),
    )  # fmt: skip


def _record(row: sqlite3.Row) -> Record:
    return Record(
        key=row["key"],
        description=json.loads(row["description"]),
        status=row["status"],
        history=unpack_history(row["shape"], row["history"]),
        losses=unpack(row["losses"]),
        seconds=row["seconds"],
        peak_memory=row["peak_memory"],
        stacked=row["stacked"],
        device=row["device"],
        versions=json.loads(row["versions"]),
        commit=row["commit_id"],
        weights=row["weights"],
        error=row["error"],
        notes=json.loads(row["notes"]),
        finished=row["finished"],
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
