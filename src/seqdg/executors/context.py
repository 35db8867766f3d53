"""What any executor needs to run a group: how to get the data, and on which device."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seqdg.benchmark import Benchmark
from seqdg.data.cache import Progress
from seqdg.data.domain import Dataset
from seqdg.data.load import load_data
from seqdg.place import Place
from seqdg.record import FAILED, Record
from seqdg.runner import device_name, run_group, versions
from seqdg.trial import Group


@dataclass(frozen=True)
class Context:
    """Small, and the same in every worker."""

    benchmark: Benchmark
    root: Path | None
    device: str
    allow_partial: bool = False

    def dataset(self, progress: Progress | None = None) -> Dataset:
        """Loaded once per process."""
        if self not in _loaded:
            b = self.benchmark
            _loaded[self] = load_data(b.data, self.root, self.allow_partial, b.name, progress)
        return _loaded[self]

    def place(self) -> Place:
        return Place(self.dataset(), torch.device(self.device))

    def __hash__(self) -> int:
        return hash((self.benchmark.name, self.root, self.device, self.allow_partial))


_loaded: dict[Context, Dataset] = {}


def attempt(group: Group, context: Context, tick: Callable[[int], None]) -> list[Record]:
    """The group's records; where it fails, a record of the failure for each of its trials."""
    try:
        return run_group(group, context.place(), tick)
    except Exception:
        failed = Record("", {}, FAILED, error=traceback.format_exc(), versions=versions())
        device = device_name(torch.device(context.device))
        return [replace(failed, key=t.key, description=t.description(), device=device) for t in group.trials]
