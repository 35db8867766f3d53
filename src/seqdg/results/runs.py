"""Runs as commands name them: a run directory, a packed run, or several read as one; and their state."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqdg.base import UsageError, list_some, refuse_broken
from seqdg.results.criteria import CRITERIA
from seqdg.results.record import (
    CLASSES,
    COMMANDS,
    DIVERGED,
    DOMAINS,
    DONE,
    EVALUATIONS,
    FAILED,
    FORMAT,
    FORMAT_VERSION,
    PACKED_COLUMNS,
    SEAL,
    TRIALS,
    Analysis,
    Evaluation,
    Record,
    RecordSource,
    RunningGroup,
    check_facts,
    gather_rows,
    list_packed_types,
    make_seal,
    unpack_history,
)
from seqdg.results.store import FILE, Store, is_locked, pause_garbage_collection

if TYPE_CHECKING:  # pyarrow and numpy are imported where they are used: a run directory is read without them
    import pyarrow
    from pyarrow import parquet

RUNNING, LEFT = "running", "left"  # fields of `Status`, as the other states are


def open_run(path: Path) -> RecordSource:
    """Open a run directory, or a packed run by its directory or either of its files."""
    if path.is_file():
        if path.name in (TRIALS, EVALUATIONS):
            return Archive(path.parent)
        raise UsageError(f"{path} is no run: give the directory of a run, or that of a packed run.")
    packed = (path / TRIALS).is_file() and not (path / FILE).is_file()
    return Archive(path) if packed else Store.open(path)


def open_runs(paths: Sequence[Path]) -> RecordSource:
    """Open a run directory or packed run, or several to set side by side."""
    if len(paths) == 1:
        return open_run(paths[0])
    return JoinedRuns([(path, open_run(path)) for path in paths])


def has_run(path: Path) -> bool:
    """Whether a directory holds a run or a packed run."""
    return (path / FILE).is_file() or (path / TRIALS).is_file()


# A packed run ---------------------------------------------------------------------------------------------------------


class Archive(RecordSource):
    """A packed run: the contents of two files.

    When it is opened, hashes say whether its facts, its evaluations and all of every trial are what was packed.
    """

    def __init__(self, directory: Path) -> None:
        import pyarrow as arrow

        self._directory = directory
        trials, evaluations = directory / TRIALS, directory / EVALUATIONS
        file = _open(trials, _read_bytes(trials))
        text, seal = _read_facts(trials, file)
        self.facts: dict[str, Any] = json.loads(text)
        with _explaining(trials):
            _check_facts(self.facts)
        damaged = UsageError(f"{trials} is damaged. Fetch it again, or pack the run again.")
        table, types = _read_table(trials, file, PACKED_COLUMNS), list_packed_types()
        if any(table.schema.field(name).type != types[name] for name in PACKED_COLUMNS if name != "losses"):
            raise damaged
        with _explaining(trials):
            finished = table["finished"].cast(arrow.int64())
            at = table.column_names.index("finished")
            self._trials: list[dict[str, Any]] = table.set_column(at, "finished", finished).to_pylist()
            is_whole = make_seal(text, self._trials) == seal
        if not is_whole:
            raise damaged
        self._evaluations = _read_bytes(evaluations)
        if hashlib.sha256(self._evaluations).hexdigest() != self.facts["evaluations"]:
            raise UsageError(
                f"{evaluations} is not the one that was packed with {TRIALS}: it is damaged, or of another run. "
                "Fetch both again, or pack the run again."
            )
        self._check_digests()

    def _check_digests(self) -> None:
        """Refuse a trial whose digest is not that of all that the two files hold of it."""
        read = lru_cache(maxsize=None)(json.loads)
        with self._refusing(), pause_garbage_collection():
            numbers = self._read_numbers(None)
            for row in self._trials:
                shape, known = numbers.get(row["key"], ("[]", b""))
                record = self._make_record(row, [], read)
                if not record.held_out:
                    raise ValueError(f"trial {row['key']} held out no domain")
                if record.make_digest(shape, known) != row["digest"]:
                    raise UsageError(
                        f"Trial {row['key']} in {self._directory} is not as it was packed: its digest is another. "
                        "Fetch both files again, or pack the run again."
                    )

    def _refusing(self) -> AbstractContextManager[None]:
        return refuse_broken(f"{self._directory} is damaged", ". Fetch it again, or pack the run again.")

    def _make_record(
        self, row: Mapping[str, Any], history: list[Evaluation], read: Callable[[str], Any] = json.loads
    ) -> Record:
        return Record.from_row({**row, "finished": row["finished"] / 1000}, history, read)

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
        with self._refusing(), pause_garbage_collection():
            numbers = self._read_numbers(criterion)
            records = []
            for row in self._trials:
                history = unpack_history(*numbers.get(row["key"], ("[]", b"")))
                records.append(self._make_record(row, history, read))
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
        for name, column in zip(names, values, strict=True):
            wrong = column[np.isfinite(column) & ((column < 0) | (column > 1))]
            if name in CRITERIA and CRITERIA[name].is_share and len(wrong):  # where training diverged, it may be inf
                raise UsageError(f"{path} has {name} {wrong[0]:g}, but it lies between 0 and 1: pack the run again.")
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


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Raise a ValueError where the facts of a packed run are not what `seqdg pack` writes."""
    check_facts({name: facts.get(name) or [] for name in (CLASSES, DOMAINS, COMMANDS)})
    kinds: dict[str, type | tuple[type, ...]] = {"benchmark": str, "evaluations": str, "criteria": list}
    wrong = [name for name, kind in kinds.items() if not isinstance(facts.get(name), kind)]
    for entry in facts["analyses"]:
        name, created, _ = entry
        wrong += [] if isinstance(name, str) and isinstance(created, float | int) else ["analyses"]
    for entry in facts["missing"]:
        key, group = entry
        wrong += [] if isinstance(key, str) and isinstance(group, str) else ["missing"]
    wrong += [] if all(isinstance(name, str) for name in facts["criteria"]) else ["criteria"]
    if wrong:
        raise ValueError(f"its {wrong[0]} are not as `seqdg pack` writes them")


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
        table = file.read(columns=list(names), use_threads=False)
        if missing := set(names) - set(table.column_names):
            raise KeyError(f"it lacks {', '.join(sorted(missing))}")
        return table


def _read_facts(path: Path, file: parquet.ParquetFile) -> tuple[str, str]:
    """Return the facts of a run, JSON in the metadata of the file, and the hash that they should have."""
    metadata = file.metadata.metadata or {}
    text, seal = (metadata.get(name.encode(), b"").decode(errors="replace") for name in (FORMAT, SEAL))
    if not text or not seal:
        raise UsageError(f"{path} is no file of `seqdg pack`: the facts of a run are not in its metadata.")
    with _explaining(path):
        version = json.loads(text)["version"]
    if version != FORMAT_VERSION:
        raise UsageError(
            f"{path} was written in format {version}, and this version of seqdg reads format {FORMAT_VERSION}. "
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


def _explaining(path: Path) -> AbstractContextManager[None]:
    return refuse_broken(f"{path} is damaged or cut short", ". Fetch it again, or pack the run again.")


# Several runs ---------------------------------------------------------------------------------------------------------


class JoinedRuns(RecordSource):
    """Runs beside each other. An algorithm of one name in two runs is two: each has its run's folder after its name."""

    def __init__(self, runs: Sequence[tuple[Path, RecordSource]]) -> None:
        self._runs = [run for _, run in runs]
        names = [Counter(r.algorithm for r in run.records("accuracy")) for run in self._runs]
        shared = {name for name, count in Counter(n for one in names for n in one).items() if count > 1}
        labels = _label([path for path, _ in runs])
        # by run, of the algorithms that other runs have too
        self._new_names = [{name: f"{name} ({label})" for name in shared} for label in labels]
        _check_domains(runs)

    @property
    def benchmark(self) -> str:
        return " and ".join(dict.fromkeys(run.benchmark for run in self._runs))

    def records(self, criterion: str | None = None) -> list[Record]:
        records = []
        for run, new in zip(self._runs, self._new_names, strict=True):
            for r in run.records(criterion):
                about = {**r.description, "algorithm": new.get(r.algorithm, r.algorithm)}
                records.append(replace(r, description=about))
        return records

    def meta(self, name: str) -> str | None:
        if name != COMMANDS:
            return self._runs[0].meta(name)
        commands = []
        for run, new in zip(self._runs, self._new_names, strict=True):
            commands += [{**c, "algorithms": [new.get(a, a) for a in c["algorithms"]]} for c in run.read_commands()]
        return json.dumps(commands)

    def analyses(self, name: str | None = None) -> list[Analysis]:
        return [analysis for run in self._runs for analysis in run.analyses(name)]

    def statuses(self) -> dict[str, str]:
        return {key: status for run in self._runs for key, status in run.statuses().items()}

    def planned(self) -> dict[str, str]:
        return {key: group for run in self._runs for key, group in run.planned().items()}

    def groups(self) -> dict[str, str]:
        return {key: group for run in self._runs for key, group in run.groups().items()}

    def failures(self) -> list[tuple[str, str]]:
        return [failure for run in self._runs for failure in run.failures()]

    def close(self) -> None:
        for run in self._runs:
            run.close()


def drop_label(algorithm: str) -> str:
    """Return the name that an algorithm has in its run: `ffo-s-mldg` of `ffo-s-mldg (table3)`."""
    return algorithm.partition(" (")[0]


def _label(paths: Sequence[Path]) -> list[str]:
    """Name each run by its folder, or by the whole path where two folders have one name."""
    short = [path.resolve().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def _check_domains(runs: Sequence[tuple[Path, RecordSource]]) -> None:
    """Refuse runs that hold out no domain of the same name: their rows would not stand beside each other."""
    domains = [dict.fromkeys(r.held_out[0] for r in run.records("accuracy")) for _, run in runs]
    for (path, _), names in zip(runs[1:], domains[1:], strict=True):
        if names and domains[0] and not domains[0].keys() & names.keys():
            raise UsageError(
                f"{runs[0][0]} holds out {list_some(domains[0])} and {path} holds out {list_some(names)}: no domain is "
                "in both. Where they are the same domains under other names, import them again with --domains."
            )


# How far a run is -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Status:
    """Counts of trials of the latest run; `others` are records of earlier runs that the latest did not ask for."""

    benchmark: str
    planned: int
    done: int
    diverged: int
    failed: int
    running: int
    left: int
    others: int
    active: bool  # a run is writing to the directory
    seconds_left: float | None
    groups: tuple[RunningGroup, ...]  # being trained
    error: str  # the last line of the latest failure


def read_status(directory: Path) -> Status:
    """Read the state of a run from its directory or packed run."""
    active = is_locked(directory)
    store = open_run(directory)
    planned, statuses, under_way = store.planned(), store.statuses(), store.running() if active else []
    busy = {group.group for group in under_way}
    counts = Counter(_name_state(statuses.get(key, LEFT), group in busy) for key, group in planned.items())
    errors = [error for key, error in store.failures() if key in planned]
    run, left = store.run(), None
    if active and run is not None:
        left = estimate_seconds_left(run.noted - run.started, run.share)
        left = None if left is None else max(0.0, left - (time.time() - run.noted))
    return Status(
        benchmark=store.benchmark,
        planned=len(planned),
        **{state: counts[state] for state in (DONE, DIVERGED, FAILED, RUNNING, LEFT)},
        others=len(statuses.keys() - planned.keys()),
        active=active,
        seconds_left=left,
        groups=tuple(under_way),
        error=(errors[0].strip().splitlines() or [""])[-1] if errors else "",
    )


def _name_state(recorded: str, busy: bool) -> str:
    return RUNNING if busy and recorded in (FAILED, LEFT) else recorded


def estimate_seconds_left(elapsed: float, share: float) -> float | None:
    """Return the time that the rest takes at the pace so far; None while that is a guess."""
    return elapsed * (1 - share) / share if elapsed > 2 and share > 0.05 else None
