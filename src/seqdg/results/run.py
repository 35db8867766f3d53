"""Read a run: what a run directory and a packed run both offer, as `RecordSource`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from seqdg.results.criteria import USUAL, choose_usual
from seqdg.results.record import Record

CLASSES, DOMAINS = "classes", "domains"  # the names of a run's classes and domains in its store, as JSON


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis of a run, kept beside its records."""

    name: str
    created: float  # seconds since 1970
    payload: Any  # anything that JSON can hold


@dataclass(frozen=True)
class RunningGroup:
    """A group of trials that is being trained."""

    group: str  # its key
    algorithm: str
    trials: int
    step: int
    steps: int


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run when it was last noted."""

    started: float  # seconds since 1970
    noted: float = 0.0
    share: float = 0.0  # of the work that was missing, by time


class RecordSource(Protocol):
    """The records of a run and the facts about it."""

    @property
    def benchmark(self) -> str: ...

    def records(self, criterion: str | None = None) -> list[Record]:
        """Return the records in the order in which they were planned; with a criterion, at least what a table of it
        needs."""

    def meta(self, name: str) -> str | None: ...

    def analyses(self, name: str | None = None) -> list[Analysis]:
        """Return all analyses, or those of one name, the oldest first."""

    def statuses(self) -> dict[str, str]:
        """Return the status of every trial that has a record, by key."""

    def planned(self) -> dict[str, str]:
        """Return the trials of the latest run by key, each with its group."""

    def groups(self) -> dict[str, str]:
        """Return every trial that was ever planned by key, with its latest group."""

    def failures(self) -> list[tuple[str, str]]:
        """Return the key and traceback of every failed trial, the latest first."""

    def run(self) -> RunProgress | None:
        """Return how far the latest run is."""

    def running(self) -> list[RunningGroup]: ...

    def close(self) -> None: ...


def find_usual_criterion(run: RecordSource) -> str:
    """Return the criterion that tables of a run show by default: accuracy, or the RMSE where numbers are predicted."""
    classes = run.meta(CLASSES)
    if classes is not None:
        return USUAL[0] if json.loads(classes) else USUAL[1]
    return find_usual_criterion_in(run.records(USUAL[1]))


def find_usual_criterion_in(records: Sequence[Record]) -> str:
    """Choose the usual criterion from records: the RMSE if they hold it, else accuracy."""
    return choose_usual({name for r in records for e in r.history[-1:] for name in e.held_out})
