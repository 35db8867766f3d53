"""What any executor needs to run a group: how to get the data, on which device, and what to keep."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from seqdg.bench.benchmark import Benchmark
from seqdg.bench.executors.process import settle
from seqdg.bench.trial import Group
from seqdg.data import Dataset, ProgressCallback, load_data
from seqdg.results.record import FAILED, Record
from seqdg.training.place import Place
from seqdg.training.provenance import device_name, versions
from seqdg.training.runner import Keep, run_group

Tell = Callable[[Group, int], None]  # hears of a group and how many steps it has taken; 0: it begins

Results = Generator[tuple[Group, list[Record]], None, None]  # groups with their records


@dataclass(frozen=True)
class Context:
    """Small, and the same in every worker."""

    benchmark: Benchmark
    root: Path | None
    device: str
    allow_partial: bool = False
    keep: Keep = field(default=Keep(), compare=False)
    held_out: tuple[str, ...] | None = None  # the domains that will be; None: every one
    data: Dataset | None = field(default=None, compare=False)  # where it need not be loaded

    def dataset(self, progress: ProgressCallback | None = None) -> Dataset:
        """Loaded once per process."""
        if self.data is not None:
            return self.data
        if self not in _loaded:
            b = self.benchmark
            _loaded[self] = load_data(b.data, self.root, self.allow_partial, b.name, progress, self.held_out)
        return _loaded[self]

    def place(self) -> Place:
        """Made once per process, as it may hold the data set on its device."""
        if self not in _places:
            _places[self] = Place(self.dataset(), torch.device(self.device))
        return _places[self]

    def __hash__(self) -> int:
        return hash((self.benchmark.name, self.root, self.device, self.allow_partial))


class Executor(Protocol):
    """Runs groups in the order given, `slots` at a time, and yields each with its records as it finishes."""

    @property
    def slots(self) -> int: ...

    def __call__(self, groups: Sequence[Group], context: Context, tell: Tell) -> Results: ...


_loaded: dict[Context, Dataset] = {}
_places: dict[Context, Place] = {}


def attempt(group: Group, context: Context, tick: Callable[[int], None]) -> list[Record]:
    """The group's records; where it fails, a record of the failure for each of its trials.

    A group that the device's memory cannot hold is run in halves.
    """
    settle()
    try:
        return run_group(group, context.place(), tick, context.keep)
    except torch.OutOfMemoryError:
        if len(group.trials) == 1:
            return failure(group, context, traceback.format_exc())
    except Exception:
        return failure(group, context, traceback.format_exc())
    torch.cuda.empty_cache()
    middle = len(group.trials) // 2
    halves = [Group(group.trials[:middle]), Group(group.trials[middle:])]
    return [record for half in halves for record in attempt(half, context, tick)]


def failure(group: Group, context: Context, error: str) -> list[Record]:
    """A record of the failure for each trial of a group."""
    device = device_name(torch.device(context.device))
    return [
        Record(
            t.key, t.description(), FAILED, error=error, versions=versions(), device=device, stacked=len(group.trials)
        )
        for t in group.trials
    ]
