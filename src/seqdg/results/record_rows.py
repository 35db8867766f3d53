"""Records as rows of a database table. Numbers are stored as bytes: exact, and ten times faster to read than text."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache

from seqdg.results.record import Evaluation, Record

COLUMNS = (
    "key", "algorithm", "held_out", "seed", "status", "seconds", "peak_memory", "stacked", "finished", "device",
    "versions", "commit_id", "weights", "notes", "error", "description", "shape", "history", "losses", "digest",
)  # fmt: skip
_Slices = list[tuple[str, int, int]]  # criterion, start, stop


def pack_numbers(numbers: Iterable[float]) -> bytes:
    """Return doubles with the lowest byte first."""
    return _swap_bytes(array("d", numbers)).tobytes()


def unpack_numbers(data: bytes) -> list[float]:
    return _swap_bytes(array("d", data)).tolist()


def _swap_bytes(numbers: array[float]) -> array[float]:
    """Turn between the order of bytes in a file and that of this machine, where they differ."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def pack_history(history: Iterable[Evaluation]) -> tuple[str, bytes]:
    """Return the shape of a history as JSON, the same for most records of a run, and its numbers as bytes."""
    shape, numbers = [], []
    for e in history:
        parts = [e.source, e.held_out]
        if e.held_out_rest or e.together:  # older records have neither, and most are of no fixed split
            parts += [e.held_out_fifth, e.held_out_rest, *([e.validation, e.together] if e.together else [])]
        shape.append((e.step, *([(c, len(v)) for c, v in part.items()] for part in parts)))
        numbers += [x for part in parts for values in part.values() for x in values]
    return json.dumps(shape), pack_numbers(numbers)


def unpack_history(shape: str, data: bytes, criterion: str | None = None) -> list[Evaluation]:
    """Return the history; with a criterion, only the values of that criterion."""
    numbers = unpack_numbers(data)
    return [
        Evaluation(step, *[{name: numbers[start:stop] for name, start, stop in part} for part in parts])
        for step, parts in _locate(shape, criterion)
    ]


@lru_cache(maxsize=256)
def _locate(shape: str, criterion: str | None) -> list[tuple[int, list[_Slices]]]:
    """Return for each evaluation its step, and where the numbers of its criteria are."""
    place, evaluations = 0, []
    for step, *parts in json.loads(shape):
        slices: list[_Slices] = []
        for part in parts:
            slices.append([])
            for name, count in part:
                if criterion in (None, name):
                    slices[-1].append((name, place, place + count))
                place += count
        evaluations.append((step, slices))
    return evaluations


def make_row(record: Record) -> tuple[object, ...]:
    """Return the values in the order of `COLUMNS`; the last is a digest of the others, which reveals damage."""
    row = (
        record.key, record.algorithm, ",".join(record.held_out), record.seed, record.status,
        float(record.seconds), record.peak_memory, record.stacked, float(record.finished or time.time()),
        record.device, json.dumps(record.versions), record.commit, record.weights, json.dumps(record.notes),
        record.error, json.dumps(record.description), *pack_history(record.history), pack_numbers(record.losses),
    )  # fmt: skip
    return (*row, _make_digest(row))


def is_whole(row: Sequence[object]) -> bool:
    """Say whether a row has the digest that it should have."""
    return row[-1] == _make_digest(tuple(row[:-1]))


def _make_digest(row: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(row).encode()).hexdigest()


def make_record(row: sqlite3.Row, criterion: str | None = None) -> Record:
    """Return the record of a row; with a criterion, only what a table of it needs: its values and no loss curve."""
    return Record(
        key=row["key"],
        description=json.loads(row["description"]),
        status=row["status"],
        history=unpack_history(row["shape"], row["history"], criterion),
        losses=unpack_numbers(row["losses"]) if criterion is None else [],
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
