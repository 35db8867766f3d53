"""Runs as commands name them: one, or several read as one so that a table sets them side by side; and their state."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seqdg.base import UsageError, list_some
from seqdg.results.archive import EVALUATIONS, TRIALS, Archive
from seqdg.results.record import DIVERGED, DONE, FAILED, Record
from seqdg.results.source import COMMANDS, Analysis, RecordSource, RunningGroup, read_commands
from seqdg.results.store import FILE, Store, is_locked

RUNNING, LEFT = "running", "left"


def open_run(path: Path) -> RecordSource:
    """Open a run directory, or a packed run by its directory or either of its files."""
    if path.is_file():
        if path.name in (TRIALS, EVALUATIONS):
            return Archive(path.parent)
        raise UsageError(f"{path} is no run: give the directory of a run, or that of a packed run.")
    if not (path / FILE).is_file():
        if (path / TRIALS).is_file():
            return Archive(path)
        if runs := _list_runs(path):
            raise UsageError(f"There are no results in {path}. Give a run in it: {list_some(runs)}.")
    return Store.open(path)


def open_runs(paths: Sequence[Path]) -> RecordSource:
    """Open a run directory or packed run, or several to set side by side."""
    if len(paths) == 1:
        return open_run(paths[0])
    return JoinedRuns([(path, open_run(path)) for path in paths])


def has_run(path: Path) -> bool:
    """Whether a directory holds a run or a packed run."""
    return (path / FILE).is_file() or (path / TRIALS).is_file()


def _list_runs(folder: Path) -> list[str]:
    """List the runs in a folder; where it holds none, those in its folders, as a study has them."""
    depths = (
        sorted({str(file.parent) for name in (FILE, TRIALS) for file in folder.glob(f"{inside}{name}")})
        for inside in ("*/", "*/*/")
    )
    return next(filter(None, depths), [])


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
            commands += [{**c, "algorithms": [new.get(a, a) for a in c["algorithms"]]} for c in read_commands(run)]
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
        done=counts[DONE],
        diverged=counts[DIVERGED],
        failed=counts[FAILED],
        running=counts[RUNNING],
        left=counts[LEFT],
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


def format_duration(seconds: float) -> str:
    """`about 3 min`"""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {round(seconds / 3600)} h" if seconds < 48 * 3600 else f"about {round(seconds / 86400)} days"
