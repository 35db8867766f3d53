"""Reads packed runs."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from seqdg.base.errors import UsageError
from seqdg.results.archive.columns import decode, decode_numbers
from seqdg.results.record import Evaluation, Record, make_key
from seqdg.results.run import Analysis, RecordSource, RunningGroup, RunProgress
from seqdg.results.store import FILE as STORE
from seqdg.results.store import Store

FILE = "records.json.xz"
FORMAT, VERSION = "seqdg records", 1
PLAIN = ("status", "seconds", "peak_memory", "stacked", "device", "versions", "commit", "weights", "notes", "finished")
PARTS = ("held_out", "held_out_fifth", "held_out_rest")  # of a held-out domain
_MAGIC = b"\xfd7zXZ\x00"


def open_run(path: Path) -> RecordSource:
    """Open a run directory, a packed run, or a directory that holds one."""
    if path.is_file():
        return Archive(path)
    if not (path / STORE).is_file() and (path / FILE).is_file():
        return Archive(path / FILE)
    return Store.open(path)


class Archive:
    """A packed run: the contents of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = _read_content(path)
        try:
            self._check()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise UsageError(f"{path} is no packed run that can be read. `seqdg pack` makes one.") from None

    def _check(self) -> None:
        """Check what is cheap to check, so that no command fails later."""
        for name in ("benchmark", "count", "commands", "analyses", "missing", "description", "history", "losses"):
            self._content[name]
        for name in (*PLAIN, "group", "latest"):
            if len(self._columns[name]) != self._content["count"]:
                raise ValueError(name)

    @property
    def benchmark(self) -> str:
        return str(self._content["benchmark"])

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return {name: decode(column) for name, column in self._content["columns"].items()}

    @cached_property
    def _keys(self) -> list[str]:
        return [str(key) for key in self._columns.get("key") or map(make_key, self._descriptions)]

    @cached_property
    def _descriptions(self) -> list[dict[str, Any]]:
        columns = {name: decode(column) for name, column in self._content["description"].items()}
        rows = (zip(columns, row, strict=True) for row in zip(*columns.values(), strict=True))
        return [{name: value for name, value in row if value is not None} for row in rows]

    def records(self, criterion: str | None = None) -> list[Record]:
        c = self._columns
        histories = self._histories(criterion)
        lengths, points = decode(self._content["losses"]["lengths"]), iter(self._losses)
        return [
            Record(
                key=key,
                description=self._descriptions[i],
                history=next(histories),
                losses=list(islice(points, lengths[i])),
                **{name: c[name][i] for name in PLAIN},
            )
            for i, key in enumerate(self._keys)
        ]

    @cached_property
    def _losses(self) -> list[float]:
        return decode_numbers(self._content["losses"]["values"])

    def _histories(self, criterion: str | None) -> Iterator[list[Evaluation]]:
        """Yield the history of each record; with a criterion, only the values of that criterion."""
        numbers = {
            name: iter(decode_numbers(column))
            for name, column in self._content["history"]["numbers"].items()
            if criterion in (None, name.partition(".")[0])
        }

        def locate(part: str, counts: list[tuple[str, int]]) -> list[tuple[str, Iterator[float], int]]:
            return [(c, numbers[f"{c}.{part}"], n) for c, n in counts if criterion in (None, c)]

        places: dict[tuple[int, int, int], Any] = {}  # by the identity of the shape: most records have the same
        shapes = decode(self._content["history"]["shape"])
        split = decode(self._content["history"]["split"]) if "split" in self._content["history"] else [[]] * len(shapes)
        more = (
            decode(self._content["history"]["outside"]) if "outside" in self._content["history"] else [[]] * len(shapes)
        )
        for shape, has_parts, fixed in zip(shapes, split, more, strict=True):
            key = id(shape), id(has_parts), id(fixed)
            if key not in places:
                places[key] = [
                    (
                        step,
                        {
                            "source": locate("source", inside),
                            **{part: locate(part, out) for part in PARTS[: 3 if has else 1]},
                            "validation": locate("validation", outside),
                            "together": locate("together", joined),
                        },
                    )
                    for (step, inside, out), has, (outside, joined) in zip(
                        shape, has_parts or [False] * len(shape), fixed or [([], [])] * len(shape), strict=True
                    )
                ]
            yield [
                Evaluation(step, **{name: {c: list(islice(x, n)) for c, x, n in part} for name, part in parts.items()})
                for step, parts in places[key]
            ]

    def meta(self, name: str) -> str | None:
        return json.dumps(self._content["commands"]) if name == "commands" else None

    def analyses(self, name: str | None = None) -> list[Analysis]:
        analyses = [Analysis(*entry) for entry in self._content["analyses"]]
        return [a for a in analyses if name in (None, a.name)]

    def statuses(self) -> dict[str, str]:
        return dict(zip(self._keys, self._columns["status"], strict=True))

    def planned(self) -> dict[str, str]:
        known = zip(self._keys, self._columns["group"], self._columns["latest"], strict=True)
        return {**{key: group for key, group, latest in known if latest}, **dict(self._content["missing"])}

    def groups(self) -> dict[str, str]:
        known = {k: g for k, g in zip(self._keys, self._columns["group"], strict=True) if g}
        return {**known, **dict(self._content["missing"])}

    def failures(self) -> list[tuple[str, str]]:
        return []

    def run(self) -> RunProgress | None:
        return None

    def running(self) -> list[RunningGroup]:
        return []

    def close(self) -> None:
        """There is nothing to close."""


def _read_content(path: Path) -> dict[str, Any]:
    """Return the contents of a complete file of a known version; otherwise say what is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    not_packed = UsageError(f"{path} is no packed run: `seqdg pack` makes one, and {FILE} is its usual name.")
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
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise not_packed
    if content.get("version") != VERSION:
        raise UsageError(
            f"{path} was written in format {content.get('version')}, and this version of seqdg reads format {VERSION}. "
            "Use the version that wrote it."
        )
    return content
