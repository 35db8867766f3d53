"""A packed run: its two tables as two Parquet files, for publishing, which pandas, polars and DuckDB read too.

`trials.parquet` has a row for each trial, in the order in which they were planned, and the facts of the run in its
metadata. `evaluations.parquet` has a row for each trial, step, part and domain, and a column for each criterion, empty
where a criterion was not measured. The same records give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqdg.base import Folder, UsageError, unknown
from seqdg.results.criteria import CRITERIA, USUAL
from seqdg.results.record import (
    FAILED,
    PARTS,
    TRIAL,
    Evaluation,
    Record,
    flatten_history,
    gather_rows,
    list_rows,
    make_digest,
    make_trial_row,
    pack_history,
    read_trial_row,
    sort_criteria,
    thin,
    unpack_history,
)
from seqdg.results.source import CLASSES, COMMANDS, DOMAINS, Analysis, RecordSource, read_commands
from seqdg.results.store import pause_garbage_collection
from seqdg.results.versions import find_versions

if TYPE_CHECKING:  # pyarrow and numpy are imported where they are used: a run directory is read without them
    import pyarrow
    from pyarrow import parquet

TRIALS, EVALUATIONS = "trials.parquet", "evaluations.parquet"
FORMAT, VERSION = "seqdg records", 2
SEAL = f"{FORMAT}, sha256"
CURVE, CURVE_DIGITS = 20, 3  # points of a loss curve, and their digits
LEVEL = 19  # of zstd; packing is rare, and reading is as fast at every level
_LAST = ("losses", "digest")
_COLUMNS = (*(name for name in TRIAL if name not in _LAST), "group", "latest", *_LAST)


class _Entry(NamedTuple):
    """A record, its group in the plan, and whether the latest run asked for it."""

    record: Record
    group: str
    latest: bool


def pack(
    runs: Sequence[tuple[Path, RecordSource]],
    directory: Path,
    exact: bool = False,
    criteria: Sequence[str] | None = None,
) -> list[str]:
    """Write the records of these runs into a directory, and return sentences that say what was left out.

    Every criterion is kept with every digit. Loss curves are thinned, and left out of trials that no table shows; with
    `exact` they are kept as they are. criteria: those to keep beside accuracy and rmse; None: all.
    """
    for name in criteria or ():
        if name not in CRITERIA:
            raise unknown("criterion", name, CRITERIA)
    entries, facts, notes = _gather(runs)
    if not entries:
        raise UsageError(f"{runs[0][0]} holds no finished trial, so there is nothing to pack.")
    if len(find_versions(e.record for e in entries)) > 1:
        raise UsageError("These trials were described by different versions of seqdg: pack those of one together.")
    points = 0 if exact else max(len(e.record.losses) for e in entries)
    kept = None if criteria is None else {*USUAL, *criteria}
    entries = [e._replace(record=_prepare(e.record, exact, kept)) for e in entries]
    evaluations, facts["criteria"] = _make_evaluations([e.record for e in entries], facts[DOMAINS])
    facts["evaluations"] = hashlib.sha256(evaluations).hexdigest()
    _write(directory / EVALUATIONS, evaluations)
    _write(directory / TRIALS, _make_trials(entries, facts))
    if criteria is not None:
        notes.append(f"Kept are these criteria: {', '.join(facts['criteria'])}.")
    if points > CURVE:
        notes.append(f"Loss curves have {CURVE} points of {CURVE_DIGITS} digits, means of up to {points}.")
        if any(not e.record.is_tabled for e in entries):
            notes.append("Of trials with two domains held out, loss curves are left out.")
    return notes


def _gather(runs: Sequence[tuple[Path, RecordSource]]) -> tuple[list[_Entry], dict[str, Any], list[str]]:
    """Return the records of all runs in order, the facts about the runs, and sentences on what is left out."""
    entries: dict[str, _Entry] = {}
    missing: dict[str, str] = {}
    commands: list[dict[str, Any]] = []
    analyses: list[list[Any]] = []
    failed = twice = 0
    first, benchmark = runs[0][0], runs[0][1].benchmark
    for path, run in runs:
        if run.benchmark != benchmark:
            raise UsageError(f"{path} holds a run of '{run.benchmark}' and {first} one of '{benchmark}': pack each.")
        latest, groups = run.planned(), run.groups()
        for record in run.records():
            failed += record.status == FAILED
            twice += record.key in entries
            if record.status != FAILED and record.key not in entries:
                entries[record.key] = _Entry(record, groups.get(record.key, ""), record.key in latest)
        missing.update(latest)
        commands += [c for c in map(_shorten_paths, read_commands(run)) if c not in commands]
        analyses += [[a.name, round(a.created), _shorten_paths(a.payload)] for a in run.analyses()]
    data = dict.fromkeys(e.record.description["data"] for e in entries.values())
    if len(data) > 1:
        raise UsageError(
            f"These runs are on {len(data)} different data sets (fingerprints {', '.join(d[:12] for d in data)}): "
            "pack those of one data set together."
        )
    notes = [f"Left out: {failed} failed trials."] if failed else []
    notes += [f"{twice} trials are in more than one run; the first is kept."] if twice else []
    facts = {
        "version": VERSION, "benchmark": benchmark, COMMANDS: commands, "analyses": analyses,
        "missing": [[key, group] for key, group in missing.items() if key not in entries],
        **{name: _read_fact(runs, name) for name in (DOMAINS, CLASSES)},
    }  # fmt: skip
    return list(entries.values()), facts, notes


def _read_fact(runs: Sequence[tuple[Path, RecordSource]], name: str) -> list[str] | None:
    """Return the first that is known of these runs."""
    known = next((text for _, run in runs if (text := run.meta(name)) is not None), "null")
    fact: list[str] | None = json.loads(known)
    return fact


def _shorten_paths(entry: Any) -> Any:
    """Keep only the last part of absolute paths in its command."""
    if not isinstance(entry, dict) or "command" not in entry:
        return entry
    words = [Path(word).name or word if word.startswith(("/", "~")) else word for word in shlex.split(entry["command"])]
    return {**entry, "command": shlex.join(words)}


def _prepare(record: Record, exact: bool, kept: set[str] | None) -> Record:
    """Return the record as it is packed: to a millisecond, with these criteria alone, its loss curve thinned."""

    def keep(values: dict[str, list[float]]) -> dict[str, list[float]]:
        return {name: v for name, v in values.items() if v and (kept is None or name in kept)}

    losses = list(record.losses)
    if not exact:
        losses = [float(f"{x:.{CURVE_DIGITS}g}") for x in thin(losses, CURVE)] if record.is_tabled else []
    history = [Evaluation(e.step, *(keep(getattr(e, part)) for part in PARTS)) for e in record.history]
    finished = round(record.finished * 1000) / 1000
    return replace(record, history=history, losses=losses, seconds=float(record.seconds), finished=finished)


def _make_trials(entries: Sequence[_Entry], facts: dict[str, Any]) -> bytes:
    import pyarrow as arrow

    rows = [
        {
            **make_trial_row(e.record),
            "finished": round(e.record.finished * 1000),
            "group": e.group,
            "latest": e.latest,
            "digest": make_digest(e.record, *pack_history(e.record.history)),
        }
        for e in entries
    ]
    kinds = {**TRIAL, "group": "string"}
    types = {name: getattr(arrow, kind)() for name, kind in kinds.items() if kind != "numbers"}
    types |= {"finished": arrow.timestamp("ms"), "latest": arrow.bool_(), "losses": arrow.list_(arrow.float64())}
    table = arrow.table({name: arrow.array([row[name] for row in rows], types[name]) for name in _COLUMNS})
    text = json.dumps(facts, ensure_ascii=False)
    return _make_parquet(table, {FORMAT: text, SEAL: _make_seal(text, rows)})


def _make_seal(facts: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return a hash of the facts of a run, as they are written, and of its trials, by their digests."""
    trials = [[row["digest"], row["group"], row["latest"]] for row in rows]
    return hashlib.sha256(f"{facts}\n{json.dumps(trials)}".encode()).hexdigest()


def _make_evaluations(records: Sequence[Record], domains: Sequence[str] | None) -> tuple[bytes, list[str]]:
    """Return the file of evaluations, and its criteria."""
    import pyarrow as arrow

    names = {name for r in records for e in r.history for part in PARTS for name in getattr(e, part)}
    criteria = sort_criteria(tuple(names))
    types = {"key": arrow.string(), "step": arrow.int32(), "part": arrow.string(), "domain": arrow.string()}
    types |= dict.fromkeys(criteria, arrow.float64())
    columns: dict[str, list[Any]] = {name: [] for name in types}
    for record in records:
        known = _name_domains(record, domains)
        shape, numbers = flatten_history(record.history)
        for row in list_rows(shape):
            named = known[row.part]
            domain = named[row.position] if len(named) == row.size else None  # a mean over several has none
            where = (record.key, row.step, row.part, domain)
            values = (numbers[row.numbers[name]] if name in row.numbers else None for name in criteria)
            for column, value in zip(columns.values(), (*where, *values), strict=True):
                column.append(value)
    table = arrow.table({name: arrow.array(columns[name], kind) for name, kind in types.items()})
    return _make_parquet(table), criteria


def _name_domains(record: Record, domains: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the domains that the values of each part belong to; none where that is not known."""
    protocol = record.description["protocol"]
    rest = [name for name in domains or () if name not in record.held_out]
    return {
        **{part: list(record.held_out) for part in PARTS},
        "source": list(protocol.get("train_domains") or rest),
        "validation": list(protocol.get("validation_domains") or ()),
        "together": [],
    }


def _make_parquet(table: pyarrow.Table, metadata: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a Parquet file: plain types and zstd, which every reader knows, and sums of its pages."""
    from pyarrow import parquet

    file = io.BytesIO()
    how = {"compression": "zstd", "compression_level": LEVEL, "dictionary_pagesize_limit": 1 << 24}
    with parquet.ParquetWriter(file, table.schema, store_schema=False, write_page_checksum=True, **how) as writer:
        writer.write_table(table, row_group_size=1 << 24)
        if metadata is not None:
            writer.add_key_value_metadata(metadata)
    return file.getvalue()


def _write(file: Path, data: bytes) -> None:
    try:
        Folder(file.parent).write(file.name, data)
        file.chmod(0o644)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Give --out another directory.") from None


class Archive(RecordSource):
    """A packed run: the contents of two files.

    When it is opened, hashes say whether its facts and evaluations are those that were packed; and when whole records
    are read, whether the numbers of every trial are.
    """

    def __init__(self, directory: Path) -> None:
        import pyarrow as arrow

        self._directory = directory
        trials, evaluations = directory / TRIALS, directory / EVALUATIONS
        file = _open(trials, _read_bytes(trials))
        text, seal = _read_facts(trials, file)
        self.facts: dict[str, Any] = json.loads(text)
        table = _read_table(trials, file, _COLUMNS)
        self._trials: list[dict[str, Any]] = table.set_column(
            table.column_names.index("finished"), "finished", table["finished"].cast(arrow.int64())
        ).to_pylist()
        if _make_seal(text, self._trials) != seal:
            raise UsageError(f"{trials} is damaged. Fetch it again, or pack the run again.")
        self._evaluations = _read_bytes(evaluations)
        if hashlib.sha256(self._evaluations).hexdigest() != self.facts["evaluations"]:
            raise UsageError(
                f"{evaluations} is not the one that was packed with {TRIALS}: it is damaged, or of another run. "
                "Fetch both again, or pack the run again."
            )

    @property
    def benchmark(self) -> str:
        return str(self.facts["benchmark"])

    def meta(self, name: str) -> str | None:
        known = name in (COMMANDS, DOMAINS, CLASSES) and self.facts.get(name) is not None
        return json.dumps(self.facts[name]) if known else None

    def analyses(self, name: str | None = None) -> list[Analysis]:
        return [Analysis(*entry) for entry in self.facts["analyses"] if name in (None, entry[0])]

    def statuses(self) -> dict[str, str]:
        return {row["key"]: row["status"] for row in self._trials}

    def planned(self) -> dict[str, str]:
        return {**{t["key"]: t["group"] for t in self._trials if t["latest"]}, **dict(self.facts["missing"])}

    def groups(self) -> dict[str, str]:
        return {**{t["key"]: t["group"] for t in self._trials if t["group"]}, **dict(self.facts["missing"])}

    def records(self, criterion: str | None = None) -> list[Record]:
        read = lru_cache(maxsize=None)(json.loads)  # most trials have the same; equal ones are one object
        with pause_garbage_collection():
            numbers = self._read_numbers(criterion)
            records = []
            for row in self._trials:
                known = numbers.get(row["key"], ("[]", b""))
                history = unpack_history(*known)
                records.append(read_trial_row({**row, "finished": row["finished"] / 1000}, history, read))
                if criterion is None and make_digest(records[-1], *known) != row["digest"]:
                    raise UsageError(
                        f"Trial {row['key']} in {self._directory} does not have the numbers that were packed: its "
                        "digest is another. Fetch both files again, or pack the run again."
                    )
        return records

    def _read_numbers(self, criterion: str | None) -> dict[str, tuple[str, bytes]]:
        """Return by key the shape and the numbers of each trial's evaluations; with a criterion, of that one alone."""
        import numpy as np

        names = [name for name in self.facts["criteria"] if criterion in (None, name)]
        path = self._directory / EVALUATIONS
        table = _read_table(path, _open(path, self._evaluations), ["key", "step", "part", *names])
        if not table.num_rows:
            return {}
        key, part = (table[name].combine_chunks().dictionary_encode() for name in ("key", "part"))
        trial, step, kind = key.indices.to_numpy(), table["step"].to_numpy(), part.indices.to_numpy()
        values = np.array([table[name].fill_null(0.0).to_numpy() for name in names], "<f8")
        measured = np.array([table[name].is_valid().to_numpy() for name in names], bool)
        values, measured = (a.reshape(len(names), len(trial)).T for a in (values, measured))
        starts = [0, *(np.flatnonzero(np.diff(trial)) + 1).tolist(), len(trial)]
        keys, parts = key.dictionary.to_pylist(), part.dictionary.to_pylist()
        layouts: dict[bytes, tuple[str, Any]] = {}  # few: trials of a run are measured alike
        numbers = {}
        for start, stop in pairwise(starts):
            rows = slice(start, stop)
            layout = b"".join(column[rows].tobytes() for column in (step, kind, measured))
            if layout not in layouts:
                at = np.arange(measured[rows].size).reshape(measured[rows].shape).tolist()
                where = [
                    {name: i for name, i, is_there in zip(names, *cells, strict=True) if is_there}
                    for cells in zip(at, measured[rows].tolist(), strict=True)
                ]
                steps, kinds = step[rows].tolist(), [parts[i] for i in kind[rows].tolist()]
                shape, order = gather_rows(zip(steps, kinds, where, strict=True))
                layouts[layout] = shape, np.array(order, int)
            shape, order = layouts[layout]
            numbers[keys[trial[start]]] = shape, values[rows].ravel()[order].tobytes()
        return numbers


def _open(path: Path, data: bytes) -> parquet.ParquetFile:
    """Open a file that checks the sums of its pages."""
    import pyarrow as arrow
    from pyarrow import parquet

    if data[:4] != b"PAR1":
        raise UsageError(f"{path} is no Parquet file. `seqdg pack` makes one.")
    with _explaining(path):
        return parquet.ParquetFile(arrow.BufferReader(data), page_checksum_verification=True, pre_buffer=False)


def _read_table(path: Path, file: parquet.ParquetFile, names: Sequence[str]) -> pyarrow.Table:
    with _explaining(path):
        return file.read(columns=list(names), use_threads=False)


def _read_facts(path: Path, file: parquet.ParquetFile) -> tuple[str, str]:
    """Return the facts of a run, JSON in the metadata of the file, and the hash that they should have."""
    metadata = file.metadata.metadata or {}
    text, seal = (metadata.get(name.encode(), b"").decode(errors="replace") for name in (FORMAT, SEAL))
    if not text or not seal:
        raise UsageError(f"{path} is no file of `seqdg pack`: the facts of a run are not in its metadata.")
    with _explaining(path):
        version = json.loads(text)["version"]
    if version != VERSION:
        raise UsageError(
            f"{path} was written in format {version}, and this version of seqdg reads format {VERSION}. "
            "Use the version that wrote it."
        )
    return text, seal


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}. A packed run is this and the file beside it."
        ) from None


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, KeyError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(f"{path} is damaged or cut short ({first}). Fetch it again, or pack the run again.") from None
