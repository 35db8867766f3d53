"""Records as rows of a table. Numbers are bytes: exact, and read back ten times faster than as text."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from seqdg.record import Evaluation, Record

COLUMNS = (
    "key", "algorithm", "held_out", "seed", "status", "seconds", "peak_memory", "stacked", "finished", "device",
    "versions", "commit_id", "weights", "notes", "error", "description", "shape", "history", "losses", "digest",
)  # fmt: skip
_Shape = list[tuple[int, list[tuple[str, int]], list[tuple[str, int]]]]  # per evaluation: step, criteria with counts


def pack(numbers: Iterable[float]) -> bytes:
    return np.fromiter(numbers, dtype="<f8").tobytes()


def unpack(data: bytes) -> list[float]:
    found: list[float] = np.frombuffer(data, dtype="<f8").tolist()
    return found


def pack_history(history: Iterable[Evaluation]) -> tuple[str, bytes]:
    """Its shape as JSON, alike for most records of a run, and its numbers."""
    shape, numbers = [], []
    for e in history:
        shape.append((e.step, *([(c, len(v)) for c, v in part.items()] for part in (e.source, e.held_out))))
        numbers += [x for part in (e.source, e.held_out) for values in part.values() for x in values]
    return json.dumps(shape), pack(numbers)


def unpack_history(shape: str, data: bytes) -> list[Evaluation]:
    numbers, place, found = unpack(data), 0, []
    for step, *parts in _shape(shape):
        read: list[dict[str, list[float]]] = []
        for part in parts:
            values = {}
            for criterion, count in part:
                values[criterion] = numbers[place : place + count]
                place += count
            read.append(values)
        found.append(Evaluation(step, *read))
    return found


@lru_cache(maxsize=256)
def _shape(text: str) -> _Shape:
    found: _Shape = json.loads(text)
    return found


def row_of(record: Record) -> tuple[object, ...]:
    """In the order of `COLUMNS`; the last is a digest of the others, by which damage can be told."""
    row = (
        record.key, record.algorithm, ",".join(record.held_out), record.seed, record.status,
        float(record.seconds), record.peak_memory, record.stacked, float(record.finished or time.time()),
        record.device, json.dumps(record.versions), record.commit, record.weights, json.dumps(record.notes),
        record.error, json.dumps(record.description), *pack_history(record.history), pack(record.losses),
    )  # fmt: skip
    return (*row, _digest(row))


def is_whole(row: Sequence[object]) -> bool:
    return row[-1] == _digest(tuple(row[:-1]))


def _digest(row: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(row).encode()).hexdigest()


def record_of(row: sqlite3.Row) -> Record:
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
