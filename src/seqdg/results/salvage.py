"""What can still be read of a damaged store, in a new one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from seqdg.base.errors import UsageError
from seqdg.results.directory import is_written
from seqdg.results.record import Record
from seqdg.results.rows import COLUMNS, is_whole, record_of
from seqdg.results.store import FILE, Store

_LEAST = 500  # bytes that a record takes: a bound on how many there are


def salvage(directory: Path, new: Path, benchmark: str | None = None) -> int:
    """Copies every record that is whole, and says how many. `benchmark`: whose run it is, where that cannot be read."""
    if not (directory / FILE).is_file():
        raise UsageError(f"There are no results in {directory} to salvage.")
    if (new / FILE).exists():
        raise UsageError(f"{new} holds a run already. Give a directory that does not.")
    if is_written(directory):
        raise UsageError(f"A run is writing to {directory}. Wait for it.")
    with closing(sqlite3.connect(directory / FILE)) as damaged:
        damaged.row_factory = sqlite3.Row
        name = benchmark or _meta(damaged, "benchmark")
        if name is None:
            raise UsageError(f"Whose run {directory} holds cannot be read. Say so with --benchmark NAME.")
        records = list(_records(damaged, (directory / FILE).stat().st_size // _LEAST))
        store = Store.create(new, name)
        store.add(records)
        commands = _meta(damaged, "commands")
        if commands is not None:
            store.set_meta("commands", commands)
        for name, payload in _rows(damaged, "SELECT name, payload FROM analyses ORDER BY id"):
            with suppress(ValueError):
                store.add_analysis(name, json.loads(payload))
        store.close()
    return len(records)


def _records(damaged: sqlite3.Connection, most: int) -> Iterator[Record]:
    """One by one, so that what is broken takes nothing else with it."""
    last = _rows(damaged, "SELECT max(rowid) FROM trials")
    until = last[0][0] if last else most
    for number in range(1, (until or 0) + 1):
        for row in _rows(damaged, f"SELECT {', '.join(COLUMNS)} FROM trials WHERE rowid = {number}"):
            if is_whole(tuple(row)):
                yield record_of(row)


def _meta(damaged: sqlite3.Connection, name: str) -> str | None:
    rows = _rows(damaged, "SELECT value FROM meta WHERE name = ?", name)
    return str(rows[0][0]) if rows else None


def _rows(damaged: sqlite3.Connection, sql: str, *values: str) -> list[sqlite3.Row]:
    """What is found, or nothing where it cannot be read."""
    try:
        return damaged.execute(sql, values).fetchall()
    except sqlite3.Error:
        return []
