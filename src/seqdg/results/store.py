"""Records in a run directory: one SQLite file with one writer and any number of readers."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, list_some
from seqdg.results.directory import make_directory
from seqdg.results.record import DONE, FAILED, Record
from seqdg.results.record_rows import COLUMNS, make_record, make_row
from seqdg.results.run import Analysis, RunningGroup, RunProgress
from seqdg.results.versions import VERSION

SCHEMA = 3
FILE = "results.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    key TEXT PRIMARY KEY,
    algorithm TEXT NOT NULL, held_out TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL,
    seconds REAL NOT NULL, peak_memory INTEGER NOT NULL, stacked INTEGER NOT NULL, finished REAL NOT NULL,
    device TEXT NOT NULL, versions TEXT NOT NULL, commit_id TEXT NOT NULL, weights TEXT NOT NULL, notes TEXT NOT NULL,
    error TEXT NOT NULL, description TEXT NOT NULL, shape TEXT NOT NULL, history BLOB NOT NULL, losses BLOB NOT NULL,
    digest TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS planned (key TEXT PRIMARY KEY, in_group TEXT NOT NULL, latest INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS running (
    in_group TEXT PRIMARY KEY, algorithm TEXT NOT NULL, trials INTEGER NOT NULL,
    step INTEGER NOT NULL, steps INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS analyses (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, payload TEXT NOT NULL
);
"""


class Store:
    """`Store.create` makes or opens a run directory to write to; `Store.open` opens one to read."""

    def __init__(self, path: Path, readonly: bool = False) -> None:
        self.path = path
        where = f"{path.resolve().as_uri()}?mode=ro" if readonly else str(path)
        if readonly and not path.with_name(f"{FILE}-wal").exists():
            where += "&immutable=1"  # otherwise SQLite makes files beside one that nobody writes to
        # One thread uses it, but the garbage collector may close it in another.
        self._db = sqlite3.connect(where, isolation_level=None, timeout=30, uri=readonly, check_same_thread=False)
        self._db.row_factory = sqlite3.Row

    @classmethod
    def create(cls, directory: Path, benchmark: str) -> Store:
        """Open the store of a run of this benchmark, or make it; refuse that of another benchmark."""
        make_directory(directory)
        store = cls(directory / FILE)
        with store._explaining():
            store._db.execute("PRAGMA journal_mode=WAL")
            store._db.execute("PRAGMA synchronous=FULL")
            with store._transaction():
                if not store._query("SELECT name FROM sqlite_master"):
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
        runs = sorted(str(path.parent) for path in directory.glob(f"*/{FILE}"))
        hint = f"Give a run in it: {list_some(runs)}." if runs else f"`seqdg bench --out {directory}` makes some."
        nothing = UsageError(f"There are no results in {directory}. {hint}")
        if not (directory / FILE).is_file():
            raise nothing
        store = cls(directory / FILE, readonly=not os.access(directory, os.W_OK))
        if not store._query("SELECT name FROM sqlite_master"):  # a run was killed before it made the tables
            raise nothing
        store._check()
        return store

    def _check(self) -> None:
        tables = {row[0] for row in self._query("SELECT name FROM sqlite_master")}
        schema = self.meta("schema") if "meta" in tables else None
        if schema != str(SCHEMA):
            written = f"was written in format {schema}" if schema else "is no store of seqdg"
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
        """Return the status of every trial that has a record, by key."""
        return {row[0]: row[1] for row in self._query("SELECT key, status FROM trials")}

    def finished(self) -> set[str]:
        """Return the keys of the trials that need not run again."""
        return {key for key, status in self.statuses().items() if status != FAILED}

    def count_by_algorithm(self) -> dict[str, int]:
        """Count the finished trials of every algorithm."""
        rows = self._query("SELECT algorithm, COUNT(*) FROM trials WHERE status <> ? GROUP BY algorithm", (FAILED,))
        return {row[0]: row[1] for row in rows}

    def versions(self) -> list[int]:
        """Return the versions of the descriptions of finished trials, the oldest first."""
        rows = self._query("SELECT description FROM trials WHERE status <> ?", (FAILED,))
        return sorted({int(json.loads(row[0]).get("version", VERSION)) for row in rows})

    def begin(self, planned: Mapping[str, str]) -> None:
        """Note that a run begins, with its trials by group; a finished trial keeps the group that it was trained in."""
        with self._transaction():
            self._db.execute("DELETE FROM running")
            self._db.execute("UPDATE planned SET latest = 0")
            self._db.executemany(
                "INSERT INTO planned VALUES (?, ?, 1)"
                " ON CONFLICT (key) DO UPDATE SET latest = 1, in_group = CASE WHEN EXISTS "
                f"(SELECT 1 FROM trials WHERE trials.key = excluded.key AND trials.status <> '{FAILED}')"
                " THEN in_group ELSE excluded.in_group END",
                planned.items(),
            )
            self._db.execute(
                "INSERT OR REPLACE INTO meta VALUES ('run', ?)", (json.dumps(asdict(RunProgress(time.time()))),)
            )

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        """Note how far the run is."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('run', ?)", (json.dumps(asdict(run)),))
            self._db.execute("DELETE FROM running")
            self._db.executemany("INSERT INTO running VALUES (?, ?, ?, ?, ?)", map(astuple, running))

    def run(self) -> RunProgress | None:
        """Return how far the latest run is."""
        text = self.meta("run")
        return None if text is None else RunProgress(**json.loads(text))

    def running(self) -> list[RunningGroup]:
        return [RunningGroup(*row) for row in self._query("SELECT * FROM running")]

    def planned(self) -> dict[str, str]:
        """Return the trials of the latest run by key, each with its group."""
        return {row[0]: row[1] for row in self._query("SELECT key, in_group FROM planned WHERE latest")}

    def groups(self) -> dict[str, str]:
        """Return every trial that was ever planned by key, with its latest group."""
        return {row[0]: row[1] for row in self._query("SELECT key, in_group FROM planned")}

    def pace(self, device: str) -> dict[tuple[str, int, str], float]:
        """Return the seconds that one trial takes per step, from the latest records, by algorithm, number of held-out
        domains and precision. One that diverged may have taken fewer steps than it was to."""
        rows = self._query(
            "SELECT description, seconds FROM trials WHERE device = ? AND status = ? ORDER BY finished DESC LIMIT 1000",
            (device, DONE),
        )
        pace: dict[tuple[str, int, str], float] = {}
        for text, seconds in rows:
            about = json.loads(text)
            kind = about["algorithm"], len(about["held_out"]), about["protocol"]["precision"]
            pace.setdefault(kind, seconds / about["protocol"]["steps"])
        return pace

    def failures(self) -> list[tuple[str, str]]:
        """Return the key and traceback of every failed trial, the latest first."""
        rows = self._query("SELECT key, error FROM trials WHERE status = ? ORDER BY finished DESC", (FAILED,))
        return [(row[0], row[1]) for row in rows]

    def add(self, records: Iterable[Record], group: str = "") -> None:
        """Add these records in one transaction, and note that their group no longer runs."""
        rows = [make_row(record) for record in records]
        with self._transaction():
            places = ", ".join("?" * len(COLUMNS))
            self._db.executemany(f"INSERT OR REPLACE INTO trials ({', '.join(COLUMNS)}) VALUES ({places})", rows)
            self._db.execute("DELETE FROM running WHERE in_group = ?", (group,))
        # Then the one file is complete, should someone copy it alone while the run goes on.
        self._query("PRAGMA wal_checkpoint(PASSIVE)")

    def records(self, criterion: str | None = None) -> list[Record]:
        """Return the records in the order in which they were planned, which no crash changes; unplanned ones come last,
        in the order in which they finished.

        With a criterion, return only what a table of it needs, in a fraction of the time.
        """
        columns = ", ".join(c for c in COLUMNS if criterion is None or c != "losses")
        with pause_garbage_collection():
            order = self._query(
                "SELECT trials.rowid FROM trials LEFT JOIN planned USING (key) "
                "ORDER BY planned.rowid IS NULL, planned.rowid, finished, trials.rowid"
            )
            place = {row[0]: i for i, row in enumerate(order)}  # so that SQLite need not sort whole records
            rows = sorted(self._query(f"SELECT rowid, {columns} FROM trials"), key=lambda row: place[row[0]])
            return [make_record(row, criterion) for row in rows]

    def add_analysis(self, name: str, payload: Any) -> None:
        text = json.dumps(payload)
        self._query("INSERT INTO analyses (name, created, payload) VALUES (?, ?, ?)", (name, time.time(), text))

    def analyses(self, name: str | None = None) -> list[Analysis]:
        """Return all analyses, or those of one name, the oldest first."""
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
        with self._explaining():
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explaining():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn errors of SQLite into sentences that say what to do."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise UsageError(_explain(self.path, error)) from error


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Make many objects at once: the collector would search all of them again and again and find nothing to free."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _explain(path: Path, error: sqlite3.DatabaseError) -> str:
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
