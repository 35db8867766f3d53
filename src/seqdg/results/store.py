"""Records in a run directory: one SQLite file with one writer and any number of readers.

A damaged file costs no whole record: each has a digest, and so has all else that the file says of the run, in the row
`sums` of the table `meta`. Who opens it to write gets a new file with all that is whole, and the damaged one is set
aside; who opens it to read gets the same in memory.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import os
import sqlite3
import struct
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, astuple, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, count_things, list_some, refuse_broken
from seqdg.results.record import (
    CLASSES,
    COMMANDS,
    DOMAINS,
    DONE,
    FAILED,
    OPTIONAL,
    TRIAL,
    TRIALS,
    VERSION,
    Analysis,
    Evaluation,
    Record,
    RecordSource,
    RunningGroup,
    RunProgress,
    check_facts,
    is_tabled,
    pack_history,
    pack_numbers,
    read_held_out,
    summarize_trials,
    unpack_history,
    unpack_numbers,
)

SCHEMA = 4
FILE = "results.sqlite"
_LOCK = "lock"
_TYPES = {"string": "TEXT", "int64": "INTEGER", "float64": "REAL", "numbers": "BLOB"}
_COLUMNS = {**TRIAL, "error": "string", "shape": "string", "evaluations": "numbers"}  # of the table of trials
_TRIALS = ", ".join(
    f'"{name}" {_TYPES[kind]} {"" if name in OPTIONAL else "NOT NULL"}' for name, kind in _COLUMNS.items()
)
_TABLES = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials ({_TRIALS}, PRIMARY KEY (key));
CREATE TABLE planned (key TEXT PRIMARY KEY, in_group TEXT NOT NULL, latest INTEGER NOT NULL);
CREATE TABLE running (
    in_group TEXT PRIMARY KEY, algorithm TEXT NOT NULL, trials INTEGER NOT NULL,
    step INTEGER NOT NULL, steps INTEGER NOT NULL
);
CREATE TABLE analyses (id INTEGER PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, payload TEXT NOT NULL)
"""
_SUMS = "sums"  # the name in `meta` of a hash of the plan, of every other row of `meta`, and of every analysis
_PLAN = "the plan"
_LEAST, _MOST = 50, 10**7  # bytes of the smallest row, and how many rows are looked for in a damaged file


class Store(RecordSource):
    """`Store.create` makes or opens a run directory to write to; `Store.open` opens one to read."""

    def __init__(self, path: Path, where: str | None = None) -> None:
        """path: of the file.   where: what SQLite opens instead, such as the same file to read alone."""
        self.path = path
        # One thread uses it, but the garbage collector may close it in another.
        self._db = sqlite3.connect(
            where or str(path), isolation_level=None, timeout=30, uri=where is not None, check_same_thread=False
        )
        self._db.row_factory = sqlite3.Row

    @classmethod
    def create(cls, directory: Path, benchmark: str) -> Store:
        """Open the store of a run of this benchmark, or make it; refuse that of another benchmark."""
        make_directory(directory)
        path, recovered = directory / FILE, directory / f"{FILE}.recovered"
        if recovered.exists() and not path.exists():  # killed while it set a damaged file aside
            recovered.rename(path)
        store = cls(path)
        if damage := store._find_damage():
            store.close()
            recovered.unlink(missing_ok=True)
            store = cls(recovered)
            count = store._recover(path, benchmark)
            store.close()
            aside = _set_aside(path)
            recovered.rename(path)
            text = f"{path} was damaged ({damage}): it is now {aside.name}, and {_count_whole(count)} kept."
            warnings.warn(text, stacklevel=2)
            store = cls(path)
        with store._explaining():
            store._db.execute("PRAGMA journal_mode=WAL")
            store._db.execute("PRAGMA synchronous=FULL")
        store._make_tables(benchmark)
        store._check()
        if store.benchmark != benchmark:
            raise UsageError(
                f"{directory} holds a run of '{store.benchmark}', not of '{benchmark}'. Choose another --out."
            )
        return store

    @classmethod
    def open(cls, directory: Path) -> Store:
        """Open the store of a run to read it; of a damaged one, what is whole."""
        path = directory / FILE
        if not path.is_file():
            raise _explain_nothing(directory)
        store = cls(path, None if os.access(directory, os.W_OK) else _read_only(path))
        if damage := store._find_damage():
            store.close()
            store = cls(path, ":memory:")
            count = store._recover(path, "")
            store._db.execute("PRAGMA query_only=ON")
            text = (
                f"{path} is damaged ({damage}), and {_count_whole(count)} read. The command that made the run sets the "
                "file aside, keeps them and runs what is missing."
            )
            warnings.warn(text, stacklevel=2)
        if not store._query("SELECT name FROM sqlite_master"):  # a run was killed before it made the tables
            raise _explain_nothing(directory)
        store._check()
        return store

    def _make_tables(self, benchmark: str) -> None:
        with self._transaction():
            if not self._query("SELECT name FROM sqlite_master"):
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self.set_meta("schema", str(SCHEMA))
                self.set_meta("benchmark", benchmark)

    def _find_damage(self) -> str:
        """Say what is wrong with the file, if anything."""
        with self._explaining():
            try:
                if self._db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                    return "some of its pages are not as they were written"
                with self._transaction("DEFERRED"):  # a run may be writing meanwhile
                    return self._find_change()
            except UnicodeDecodeError:  # of the name of a column
                return "its tables are not as they were made"
            except sqlite3.DatabaseError as error:
                if not any(part in str(error) for part in ("malformed", "not a database", "not decode")):
                    raise
                return str(error)

    def _find_change(self) -> str:
        """Say what the sums of the store and the digests of its records show to have changed, if anything."""
        layout = _read_layout(self._db)
        if "meta" not in layout:
            return ""
        meta = dict(self._db.execute("SELECT name, value FROM meta").fetchall())
        sums = _read_sums(meta)
        if meta.get("schema") != str(SCHEMA) and sums.get("schema") != _hash(str(SCHEMA)):
            return ""  # of another version, which `_check` refuses
        if layout != _make_layout():
            return "its tables are not as they were made"
        if not sums and _SUMS in meta:
            return "its sums changed on the disk"
        texts = _list_texts(self._db)
        if changed := [name for name, known in sums.items() if _hash(texts.get(name, "")) != known]:
            return f"{list_some(changed)} changed on the disk"
        read = lru_cache(maxsize=None)(json.loads)
        with pause_garbage_collection():
            count = sum(not _is_whole(row, read) for row in self._db.execute("SELECT * FROM trials"))
        return f"{count_things(count, 'record')} changed on the disk" if count else ""

    def _recover(self, path: Path, benchmark: str) -> int:
        """Fill this new store with all that is whole in a damaged file, and return how many records that are."""
        self._make_tables(benchmark)
        count, most = 0, path.stat().st_size // _LEAST
        with closing(sqlite3.connect(_read_only(path), uri=True)) as damaged, self._transaction():
            sums: dict[str, str] = {}
            for table in ("meta", "planned", "analyses", "trials"):
                count, rows = 0, _read_rows(damaged, table, most)
                if table == "meta":
                    rows = iter(facts := list(rows))
                    sums = _read_sums({row[0]: row[1] for row in facts if len(row) == 2})
                for row in rows:
                    # By position: the name of a column may be what changed.
                    record = dict(zip(_COLUMNS, row, strict=False))
                    if _is_whole(record) if table == "trials" else _has_sum(table, row, sums):
                        values = ", ".join("?" * len(row))
                        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({values})", tuple(row))
                        count += 1
            if _PLAN in sums and _hash(_write_plan(self._db)) != sums[_PLAN]:
                self._db.execute("DELETE FROM planned")  # the command that made the run plans it anew
            self._db.execute("DELETE FROM meta WHERE name = ?", (_SUMS,))  # of rows that are lost too
            self.set_meta("schema", str(SCHEMA))
            self._sign(_list_texts(self._db))
        return count

    def _sign(self, texts: Mapping[str, str]) -> None:
        """Note the sums of texts that `_list_texts` returns, or will return."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (_SUMS,)).fetchone()
        sums = _read_sums({_SUMS: row[0]} if row else {}) | {name: _hash(text) for name, text in texts.items()}
        text = json.dumps(sums)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SUMS, f"{_hash(text)} {text}"))

    def _check(self) -> None:
        tables = {row[0] for row in self._query("SELECT name FROM sqlite_master")}
        schema = self.meta("schema") if "meta" in tables else None
        if schema != str(SCHEMA):
            written = f"was written in format {schema}" if schema else "is no store of seqdg"
            raise UsageError(
                f"{self.path} {written}, and this version of seqdg reads format {SCHEMA}. "
                "Use the version that wrote it, or choose another directory."
            )
        with self._reading():
            texts = {name: self.meta(name) for name in (CLASSES, DOMAINS, COMMANDS)}
            check_facts({name: json.loads(text) for name, text in texts.items() if text is not None})

    def _reading(self) -> AbstractContextManager[None]:
        """Refuse what no run writes: somebody else's program may have written it."""
        return refuse_broken(f"{self.path} is no store that seqdg wrote", ": use another copy of it.")

    def meta(self, name: str) -> str | None:
        rows = self._query("SELECT value FROM meta WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def set_meta(self, name: str, value: str) -> None:
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
            self._sign({name: value})

    @property
    def benchmark(self) -> str:
        return self.meta("benchmark") or ""

    def statuses(self) -> dict[str, str]:
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
        rows = self._query("SELECT DISTINCT more FROM trials WHERE status <> ?", (FAILED,))
        return sorted({int(json.loads(row[0]).get("version", VERSION)) for row in rows})

    def fingerprints(self) -> set[str]:
        """Return the fingerprints of the rows that finished trials were trained on, where these are known."""
        return {
            row[0] for row in self._query("SELECT DISTINCT data FROM trials WHERE status <> ?", (FAILED,)) if row[0]
        }

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
            self._sign({_PLAN: _write_plan(self._db)})
            self.set_meta("run", json.dumps(asdict(RunProgress(time.time()))))

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        """Note how far the run is."""
        with self._transaction():
            self.set_meta("run", json.dumps(asdict(run)))
            self._db.execute("DELETE FROM running")
            self._db.executemany("INSERT INTO running VALUES (?, ?, ?, ?, ?)", map(astuple, running))

    def run(self) -> RunProgress | None:
        text = self.meta("run")
        with self._reading():
            progress = None if text is None else RunProgress(**json.loads(text))
            if progress is not None and not all(isinstance(number, float | int) for number in astuple(progress)):
                raise ValueError("its progress is no number")
        return progress

    def running(self) -> list[RunningGroup]:
        return [RunningGroup(*row) for row in self._query("SELECT * FROM running")]

    def planned(self) -> dict[str, str]:
        return {row[0]: str(row[1]) for row in self._query("SELECT key, in_group FROM planned WHERE latest")}

    def groups(self) -> dict[str, str]:
        return {row[0]: str(row[1]) for row in self._query("SELECT key, in_group FROM planned")}

    def pace(self, device: str) -> dict[tuple[str, int, str], float]:
        """Return the seconds that one trial takes per step, from the latest records, by algorithm, number of held-out
        domains and precision. One that diverged may have taken fewer steps than it was to."""
        rows = self._query(
            "SELECT algorithm, held_out, protocol, seconds FROM trials WHERE device = ? AND status = ? "
            "ORDER BY finished DESC LIMIT 1000",
            (device, DONE),
        )
        pace: dict[tuple[str, int, str], float] = {}
        for algorithm, held_out, text, seconds in rows:
            protocol = json.loads(text)
            count = len(read_held_out(held_out, json.loads))
            pace.setdefault((algorithm, count, protocol["precision"]), seconds / protocol["steps"])
        return pace

    def failures(self) -> list[tuple[str, str]]:
        rows = self._query("SELECT key, error FROM trials WHERE status = ? ORDER BY finished DESC", (FAILED,))
        return [(row[0], row[1]) for row in rows]

    def add(self, records: Iterable[Record], group: str = "") -> None:
        """Add these records in one transaction, and note that their group no longer runs."""
        rows = [_make_row(record) for record in records]
        with self._transaction():
            values = ", ".join(f":{name}" for name in _COLUMNS)
            self._db.executemany(f"INSERT OR REPLACE INTO trials VALUES ({values})", rows)
            self._db.execute("DELETE FROM running WHERE in_group = ?", (group,))
        # Then the one file is complete, should someone copy it alone while the run goes on.
        self._query("PRAGMA wal_checkpoint(PASSIVE)")

    def records(self, criterion: str | None = None) -> list[Record]:
        """Return the records in the order in which they were planned, which no crash changes; unplanned ones come last,
        in the order in which they finished.

        With a criterion, return only what a table of it needs, in a fraction of the time.
        """
        columns = ", ".join(f'"{c}"' for c in _COLUMNS if criterion is None or c not in ("losses", "digest"))
        read = lru_cache(maxsize=None)(json.loads)  # most trials have the same; equal ones are one object
        with self._reading(), pause_garbage_collection():
            order = self._query(
                "SELECT trials.rowid FROM trials LEFT JOIN planned USING (key) "
                "ORDER BY planned.rowid IS NULL, planned.rowid, finished, trials.rowid"
            )
            position = {row[0]: i for i, row in enumerate(order)}  # so that SQLite need not sort whole records
            rows = sorted(self._query(f"SELECT rowid, {columns} FROM trials"), key=lambda row: position[row[0]])
            return [
                _read_record(row, unpack_history(row["shape"], row["evaluations"], criterion), read) for row in rows
            ]

    def add_analysis(self, name: str, payload: Any) -> None:
        text = json.dumps(payload)
        with self._transaction():
            row = (name, time.time(), text)
            number = self._db.execute("INSERT INTO analyses (name, created, payload) VALUES (?, ?, ?)", row).lastrowid
            self._sign(_name_text("analyses", (number, *row)))

    def analyses(self, name: str | None = None) -> list[Analysis]:
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
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        """Begin a transaction, or go on with the one that has begun."""
        if self._db.in_transaction:
            yield
            return
        with self._explaining():
            self._db.execute(f"BEGIN {kind}")
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
            text = str(error)
            if "full" in text or "disk I/O" in text:
                raise UsageError(
                    f"Nothing more can be written to {self.path.parent} ({text}). Make room and run the command again: "
                    "what is stored there stays, and is not repeated."
                ) from error
            raise UsageError(f"{self.path} cannot be used: {text}.") from error


def add_command(store: Store, command: str, descriptions: Sequence[Mapping[str, Any]], draws: str = "") -> None:
    """Store a command with the algorithms, held-out domains and seeds of the trials that it asked for.

    A command that runs again is stored once.

    draws: where the candidates of its search come from; "" where it has none.
    """
    single = [d for d in descriptions if is_tabled(d)]
    entry = {"command": command, **summarize_trials(single), **({"draws": draws} if draws else {})}
    commands = store.read_commands()
    if entry not in commands:
        store.set_meta(COMMANDS, json.dumps([*commands, entry]))


def _make_row(record: Record) -> dict[str, Any]:
    """Return the row of a record in SQLite, by column."""
    record = replace(record, seconds=float(record.seconds), finished=float(record.finished or time.time()))
    shape, numbers = pack_history(record.history)
    return {
        **record.make_row(),
        "losses": pack_numbers(record.losses),
        "digest": record.make_digest(shape, numbers + record.error.encode()),
        "error": record.error,
        "shape": shape,
        "evaluations": numbers,
    }


def _read_record(row: sqlite3.Row | dict[str, Any], history: list[Evaluation], read: Callable[[str], Any]) -> Record:
    known = dict(row)
    losses = unpack_numbers(known["losses"]) if "losses" in known else []
    return Record.from_row({**known, "losses": losses}, history, read)


def _explain_nothing(directory: Path) -> UsageError:
    """Say that a directory holds no results, and name the runs in it; where there are none, those in its folders, as a
    study has them."""
    depths = (
        sorted({str(file.parent) for name in (FILE, TRIALS) for file in directory.glob(f"{inside}{name}")})
        for inside in ("*/", "*/*/")
    )
    runs = next(filter(None, depths), [])
    hint = f"Give a run in it: {list_some(runs)}." if runs else f"`seqdg bench --out {directory}` makes some."
    return UsageError(f"There are no results in {directory}. {hint}")


def _is_whole(row: sqlite3.Row | dict[str, Any], read: Callable[[str], Any] = json.loads) -> bool:
    """Say whether a record has the digest that it should have."""
    try:
        record = _read_record(row, [], read)
        return bool(row["digest"] == record.make_digest(row["shape"], row["evaluations"] + record.error.encode()))
    except (TypeError, ValueError, LookupError, AttributeError, struct.error):
        return False


def _read_layout(db: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Return the name, type and constraints of every column, by table."""
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: [tuple(row) for row in db.execute("SELECT * FROM pragma_table_info(?)", (name,))] for name in tables}


@cache
def _make_layout() -> dict[str, list[tuple[Any, ...]]]:
    """Return the layout of a new store."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_TABLES)
        return _read_layout(db)


def _list_texts(db: sqlite3.Connection) -> dict[str, str]:
    """Return what a store says of its run besides records, each with a name for people."""
    texts = dict(db.execute("SELECT name, value FROM meta WHERE name <> ?", (_SUMS,)).fetchall())
    for row in db.execute("SELECT * FROM analyses"):
        texts |= _name_text("analyses", tuple(row))
    return {**texts, _PLAN: _write_plan(db)}


def _write_plan(db: sqlite3.Connection) -> str:
    return json.dumps([tuple(row) for row in db.execute("SELECT * FROM planned ORDER BY rowid")])


def _name_text(table: str, row: Sequence[Any]) -> dict[str, str]:
    """Return the text of a row of `meta` or `analyses`, under its name."""
    return {row[0]: row[1]} if table == "meta" else {f"analysis {row[0]}": json.dumps(row[1:])}


def _has_sum(table: str, row: Sequence[Any], sums: Mapping[str, str]) -> bool:
    """Say whether a row that is no record has the sum that it should have, if there is one."""
    texts = _name_text(table, tuple(row)) if table != "planned" else {}
    return all(sums.get(name) in (None, _hash(text)) for name, text in texts.items())


def _hash(text: str) -> str:
    return hashlib.sha256(str(text).encode(errors="surrogatepass")).hexdigest()


def _read_sums(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the sums that a store has, by name; none where there are none, or they are damaged themselves."""
    digest, _, text = str(meta.get(_SUMS, "")).partition(" ")
    return dict(json.loads(text)) if text and digest == _hash(text) else {}


def _read_rows(damaged: sqlite3.Connection, table: str, most: int) -> Iterator[sqlite3.Row]:
    """Read row by row, so that a broken one costs no other.   most: rows, where their number cannot be read."""

    def fetch(sql: str) -> list[sqlite3.Row]:
        try:
            return damaged.execute(sql).fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
            return []

    last = fetch(f"SELECT max(rowid) FROM {table}")
    until = last[0][0] or 0 if last else most
    for number in range(1, min(until, _MOST) + 1):
        yield from fetch(f"SELECT * FROM {table} WHERE rowid = {number}")


def _set_aside(path: Path) -> Path:
    """Rename a damaged file, with what SQLite keeps beside it, and return its new name."""
    number = 1
    while (aside := path.with_name(f"{FILE}.damaged-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        if path.with_name(f"{FILE}{suffix}").exists():
            path.with_name(f"{FILE}{suffix}").rename(f"{aside}{suffix}")
    return aside


def _read_only(path: Path) -> str:
    """Return the name by which SQLite opens a file to read it alone."""
    # of one that nobody writes to, SQLite would otherwise make files beside it
    immutable = "" if path.with_name(f"{FILE}-wal").exists() else "&immutable=1"
    return f"{path.resolve().as_uri()}?mode=ro{immutable}"


def _count_whole(count: int) -> str:
    return f"{count_things(count, 'whole record')} {'is' if count == 1 else 'are'}"


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
