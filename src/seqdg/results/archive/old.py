"""Reads runs that 0.1 packed: one file of JSON columns, compressed with xz. Nothing writes it any more."""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from seqdg.base import UsageError
from seqdg.results.archive.packed import PackedRun
from seqdg.results.record import Evaluation, Record, make_key

OLD_FILE = "records.json.xz"
_FORMAT, _VERSION = "seqdg records", 1
_PLAIN = ("status", "seconds", "peak_memory", "stacked", "device", "versions", "commit", "weights", "notes", "finished")
_PARTS = ("held_out", "held_out_fifth", "held_out_rest")  # of a held-out domain
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for these
_MAGIC = b"\xfd7zXZ\x00"


class OldArchive(PackedRun):
    """A packed run of 0.1: the contents of one file."""

    def __init__(self, path: Path) -> None:
        content = _read_content(path)
        try:
            self._columns = {name: _decode(column) for name, column in content["columns"].items()}
            self._descriptions = _read_descriptions(content["description"])
            self._history, self._losses = content["history"], content["losses"]
            keys = [str(key) for key in self._columns.get("key") or map(make_key, self._descriptions)]
            if any(len(self._columns[name]) != content["count"] for name in (*_PLAIN, "group", "latest")):
                raise ValueError
            facts = {name: content[name] for name in ("benchmark", "commands", "analyses", "missing")}
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise UsageError(f"{path} is no packed run that can be read. `seqdg pack` makes one.") from None
        super().__init__(facts, keys, *(self._columns[name] for name in ("status", "group", "latest")))

    def records(self, criterion: str | None = None) -> list[Record]:
        histories = self._read_histories(criterion)
        lengths, points = _decode(self._losses["lengths"]), iter(_decode_numbers(self._losses["values"]))
        return [
            Record(
                key=key,
                description=self._descriptions[i],
                history=next(histories),
                losses=list(islice(points, lengths[i])),
                **{name: self._columns[name][i] for name in _PLAIN},
            )
            for i, key in enumerate(self._keys)
        ]

    def _read_histories(self, criterion: str | None) -> Iterator[list[Evaluation]]:
        """Yield the history of each record; with a criterion, only the values of that criterion.

        A shape says how many values of which criteria an evaluation has on sources and on held-out domains; `split`,
        whether the latter are also measured in two parts; `outside`, what a fixed split adds.
        """
        numbers = {name: iter(_decode_numbers(column)) for name, column in self._history["numbers"].items()}
        shapes = _decode(self._history["shape"])
        nothing: list[Any] = [[]] * len(shapes)
        split, outside = (
            _decode(self._history[name]) if name in self._history else nothing for name in ("split", "outside")
        )

        def take(part: str, counts: list[tuple[str, int]]) -> dict[str, list[float]]:
            values = {c: list(islice(numbers[f"{c}.{part}"], n)) for c, n in counts}
            return {c: v for c, v in values.items() if criterion in (None, c)}

        for shape, halves, fixed in zip(shapes, split, outside, strict=True):
            yield [
                Evaluation(
                    step,
                    source=take("source", inside),
                    **{part: take(part, out) for part in _PARTS[: 3 if has_halves else 1]},
                    validation=take("validation", beside),
                    together=take("together", joined),
                )
                for (step, inside, out), has_halves, (beside, joined) in zip(
                    shape, halves or [False] * len(shape), fixed or [([], [])] * len(shape), strict=True
                )
            ]


def _read_descriptions(content: dict[str, Any]) -> list[dict[str, Any]]:
    columns = {name: _decode(column) for name, column in content.items()}
    rows = (zip(columns, row, strict=True) for row in zip(*columns.values(), strict=True))
    return [{name: value for name, value in row if value is not None} for row in rows]


def _decode(column: dict[str, Any]) -> list[Any]:
    """Return the values of a column: each, or the distinct ones and where each stands. Equal ones are one object."""
    if "each" in column:
        return list(column["each"])
    values = column["values"]
    return [values[i] for i in column["at"]]


def _decode_numbers(column: dict[str, Any]) -> list[float]:
    return [_WORDS[x] if isinstance(x, str) else x for x in _decode(column)]


def _read_content(path: Path) -> dict[str, Any]:
    """Return the contents of a complete file of a known version; otherwise say what is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    not_packed = UsageError(f"{path} is no packed run: `seqdg pack` makes one, a directory of two Parquet files.")
    if not data.startswith(_MAGIC[: len(data)]) or not data:
        raise not_packed
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        text = reader.decompress(data)
    except lzma.LZMAError as error:
        raise UsageError(f"{path} is damaged ({error}). Fetch it again, or pack the run again.") from None
    if not reader.eof:
        raise UsageError(f"{path} is cut short. Fetch it again, or pack the run again.")
    try:
        content = json.loads(text)
    except ValueError:
        raise not_packed from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise not_packed
    if content.get("version") != _VERSION:
        raise UsageError(
            f"{path} was written in format {content.get('version')}, and this version of seqdg reads format {_VERSION} "
            "of such files. Use the version that wrote it."
        )
    return content
