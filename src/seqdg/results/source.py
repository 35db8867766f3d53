"""What a run says of itself: what a run directory, a packed run and several runs beside each other all offer."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqdg.results.criteria import USUAL, choose_usual
from seqdg.results.record import Record

CLASSES, DOMAINS, COMMANDS = "classes", "domains", "commands"  # facts about a run, kept as JSON


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


class RecordSource(ABC):
    """The records of a run and the facts about it."""

    @property
    @abstractmethod
    def benchmark(self) -> str: ...

    @abstractmethod
    def records(self, criterion: str | None = None) -> list[Record]:
        """Return the records in the order in which they were planned; with a criterion, at least what a table of it
        needs."""

    @abstractmethod
    def meta(self, name: str) -> str | None: ...

    @abstractmethod
    def analyses(self, name: str | None = None) -> list[Analysis]:
        """Return all analyses, or those of one name, the oldest first."""

    @abstractmethod
    def statuses(self) -> dict[str, str]:
        """Return the status of every trial that has a record, by key."""

    @abstractmethod
    def planned(self) -> dict[str, str]:
        """Return the trials of the latest run by key, each with its group."""

    @abstractmethod
    def groups(self) -> dict[str, str]:
        """Return every trial that was ever planned by key, with its latest group."""

    def failures(self) -> list[tuple[str, str]]:
        """Return the key and traceback of every failed trial, the latest first."""
        return []

    def run(self) -> RunProgress | None:
        """Return how far the latest run is."""
        return None

    def running(self) -> list[RunningGroup]:
        """Return what is being trained."""
        return []

    def close(self) -> None:  # noqa: B027  a packed run has nothing to close
        """Close the file."""


def find_usual_criterion(run: RecordSource) -> str:
    """Return the criterion that tables of a run show by default: accuracy, or the RMSE where numbers are predicted."""
    classes = run.meta(CLASSES)
    if classes is not None:
        return USUAL[0] if json.loads(classes) else USUAL[1]
    return find_usual_criterion_in(run.records(USUAL[1]))


def find_usual_criterion_in(records: Sequence[Record]) -> str:
    """Choose the usual criterion from records: the RMSE if they hold it, else accuracy."""
    return choose_usual({name for r in records for e in r.history[-1:] for name in e.held_out})


def read_commands(run: RecordSource) -> list[dict[str, Any]]:
    """Return the commands that made a run, the oldest first."""
    commands: list[dict[str, Any]] = json.loads(run.meta(COMMANDS) or "[]")
    return commands
