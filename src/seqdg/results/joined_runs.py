"""Several runs read as one, so that a table sets them side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seqdg.base import UsageError, list_some
from seqdg.results.archive.reading import open_run
from seqdg.results.commands import META, read_commands
from seqdg.results.record import Record
from seqdg.results.run import Analysis, RecordSource, RunningGroup, RunProgress


class JoinedRuns:
    """Runs beside each other. An algorithm of one name in two runs is two: each has its run's folder after its name."""

    def __init__(self, runs: Sequence[tuple[Path, RecordSource]]) -> None:
        self._runs = [run for _, run in runs]
        names = [Counter(r.algorithm for r in run.records("accuracy")) for run in self._runs]
        shared = {name for name, count in Counter(n for one in names for n in one).items() if count > 1}
        labels = _label([path for path, _ in runs])
        self._new_names = [
            {name: f"{name} ({label})" for name in shared} for label in labels
        ]  # by run, of the algorithms that other runs have too
        _check_domains(runs)

    @property
    def benchmark(self) -> str:
        return " and ".join(dict.fromkeys(run.benchmark for run in self._runs))

    def records(self, criterion: str | None = None) -> list[Record]:
        found = []
        for run, new in zip(self._runs, self._new_names, strict=True):
            for r in run.records(criterion):
                about = {**r.description, "algorithm": new.get(r.algorithm, r.algorithm)}
                found.append(replace(r, description=about))
        return found

    def meta(self, name: str) -> str | None:
        if name != META:
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

    def run(self) -> RunProgress | None:
        return None

    def running(self) -> list[RunningGroup]:
        return []

    def close(self) -> None:
        for run in self._runs:
            run.close()


def open_runs(paths: Sequence[Path]) -> RecordSource:
    """Open a run directory or packed run, or several to set side by side."""
    if len(paths) == 1:
        return open_run(paths[0])
    return JoinedRuns([(path, open_run(path)) for path in paths])


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
