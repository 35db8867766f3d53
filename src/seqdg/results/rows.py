"""Records as rows of a table. Numbers are bytes: exact, and read back ten times faster than as text."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from seqdg.results.record import Evaluation, Record

COLUMNS = (
    "key", "algorithm", "held_out", "seed", "status", "seconds", "peak_memory", "stacked", "finished", "device",
    "versions", "commit_id", "weights", "notes", "error", "description", "shape", "history", "losses", "digest",
)  # fmt: skip
_Slices = list[tuple[str, int, int]]  # criterion, start, stop


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


def unpack_history(shape: str, data: bytes, criterion: str | None = None) -> list[Evaluation]:
    """With a criterion, its values alone."""
    numbers = unpack(data)
    return [
        Evaluation(
            step,
            {name: numbers[start:stop] for name, start, stop in source},
            {name: numbers[start:stop] for name, start, stop in held_out},
        )
        for step, source, held_out in _places(shape, criterion)
    ]


@lru_cache(maxsize=256)
def _places(shape: str, criterion: str | None) -> list[tuple[int, _Slices, _Slices]]:
    """Per evaluation its step, and where the numbers of its criteria lie."""
    place, found = 0, []
    for step, *parts in json.loads(shape):
        slices: list[_Slices] = []
        for part in parts:
            slices.append([])
            for name, count in part:
                if criterion in (None, name):
                    slices[-1].append((name, place, place + count))
                place += count
        found.append((step, slices[0], slices[1]))
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


def record_of(row: sqlite3.Row, criterion: str | None = None) -> Record:
    """With a criterion, what a table of it needs: its values alone, and no loss curve."""
    return Record(
        key=row["key"],
        description=json.loads(row["description"]),
        status=row["status"],
        history=unpack_history(row["shape"], row["history"], criterion),
        losses=unpack(row["losses"]) if criterion is None else [],
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
