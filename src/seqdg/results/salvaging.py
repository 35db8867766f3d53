"""Copies the readable records of a damaged store to a new one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from seqdg.base import UsageError
from seqdg.results.directory import is_locked
from seqdg.results.record import Record
from seqdg.results.record_rows import COLUMNS, is_whole, make_record
from seqdg.results.store import FILE, Store

_LEAST = 500  # bytes of the smallest record: bounds how many there can be


def salvage(directory: Path, new: Path, benchmark: str | None = None) -> int:
    """Copy every undamaged record, and return how many. `benchmark` names the benchmark if that cannot be read."""
    if not (directory / FILE).is_file():
        raise UsageError(f"There are no results in {directory} to salvage.")
    if (new / FILE).exists():
        raise UsageError(f"{new} holds a run already. Give a directory that does not.")
    if is_locked(directory):
        raise UsageError(f"A run is writing to {directory}. Wait for it.")
    with closing(sqlite3.connect(directory / FILE)) as damaged:
        damaged.row_factory = sqlite3.Row
        name = benchmark or _read_meta(damaged, "benchmark")
        if name is None:
            raise UsageError(f"Whose run {directory} holds cannot be read. Say so with --benchmark NAME.")
        records = list(_read_records(damaged, (directory / FILE).stat().st_size // _LEAST))
        store = Store.create(new, name)
        store.add(records)
        for fact in ("commands", "own_code"):
            value = _read_meta(damaged, fact)
            if value is not None:
                store.set_meta(fact, value)
        for name, payload in _query(damaged, "SELECT name, payload FROM analyses ORDER BY id"):
            with suppress(ValueError):
                store.add_analysis(name, json.loads(payload))
        store.close()
    return len(records)


def _read_records(damaged: sqlite3.Connection, most: int) -> Iterator[Record]:
    """Read record by record, so that a broken one costs no other."""
    last = _query(damaged, "SELECT max(rowid) FROM trials")
    until = last[0][0] if last else most
    for number in range(1, (until or 0) + 1):
        for row in _query(damaged, f"SELECT {', '.join(COLUMNS)} FROM trials WHERE rowid = {number}"):
            if is_whole(tuple(row)):
                yield make_record(row)


def _read_meta(damaged: sqlite3.Connection, name: str) -> str | None:
    rows = _query(damaged, "SELECT value FROM meta WHERE name = ?", name)
    return str(rows[0][0]) if rows else None


def _query(damaged: sqlite3.Connection, sql: str, *values: str) -> list[sqlite3.Row]:
    """Return the rows, or none where they cannot be read."""
    try:
        return damaged.execute(sql, values).fetchall()
    except sqlite3.Error:
        return []
