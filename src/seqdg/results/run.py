"""What can be read of a run, whether it lies in a run directory or was packed into one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from seqdg.results.record import Record


@dataclass(frozen=True)
class Analysis:
    """Something else that was found out about a run, kept beside its records."""

    name: str
    created: float  # seconds since 1970
    payload: Any  # what JSON can hold


@dataclass(frozen=True)
class Running:
    """A group of trials under way."""

    group: str  # its key
    algorithm: str
    trials: int
    step: int
    steps: int


@dataclass(frozen=True)
class Run:
    """How far a run was when it last said so."""

    started: float  # seconds since 1970
    noted: float = 0.0
    share: float = 0.0  # of what was missing, by time


class Results(Protocol):
    """Records and what is known of the run that made them."""

    @property
    def benchmark(self) -> str: ...

    def records(self, criterion: str | None = None) -> list[Record]:
        """In the order in which they were planned; with a criterion, at least what a table of it needs."""

    def meta(self, name: str) -> str | None: ...

    def analyses(self, name: str | None = None) -> list[Analysis]:
        """All, or those of one name, the oldest first."""

    def statuses(self) -> dict[str, str]:
        """By key, of every trial that has a record."""

    def planned(self) -> dict[str, str]:
        """The trials of the latest run, each with its group."""

    def groups(self) -> dict[str, str]:
        """Every trial that was ever planned, with its latest group."""

    def failures(self) -> list[tuple[str, str]]:
        """Key and traceback of every failed trial, the latest first."""

    def run(self) -> Run | None:
        """The latest."""

    def running(self) -> list[Running]: ...

    def close(self) -> None: ...
