"""What any executor needs to train a group: the task, the device, and what to keep."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from seqdg.base import adopt_checkouts, collect_checkouts
from seqdg.bench.executors.process import prepare_process
from seqdg.bench.learner import find_learner_of
from seqdg.bench.task import Task
from seqdg.bench.trial import Group
from seqdg.results import FAILED, Record
from seqdg.training import Saving, list_versions, name_device

Tell = Callable[[Group, int], None]  # hears of a group and how many steps it has taken; 0: it begins
FinishedGroups = Generator[tuple[Group, list[Record]], None, None]


@dataclass(frozen=True)
class Session:
    """What every worker gets: it is small and can be pickled."""

    task: Task
    device: str = "cpu"
    saving: Saving = field(default=Saving())
    checkouts: Mapping[str, str] = field(default_factory=collect_checkouts)  # of other projects


class Executor(Protocol):
    """Runs groups in the order given, `slots` at a time, and yields each with its records as it finishes.

    It asks for a group when it can run it: the order may depend on what is finished by then.
    """

    @property
    def slots(self) -> int: ...

    def __call__(self, groups: Collection[Group], session: Session, tell: Tell) -> FinishedGroups: ...


def train_group(group: Group, session: Session, on_step: Callable[[int], None]) -> list[Record]:
    """Train a group; where that fails, return a record of the failure for each of its trials.

    A group that the device's memory cannot hold is run in halves.
    """
    prepare_process()
    adopt_checkouts(session.checkouts)
    try:
        learner = find_learner_of(group.trials[0])
        return learner.train(group, session.task, torch.device(session.device), on_step, session.saving)
    except torch.OutOfMemoryError:
        if len(group.trainings) == 1:
            return record_failure(group, session, traceback.format_exc())
    except Exception:
        return record_failure(group, session, traceback.format_exc())
    torch.cuda.empty_cache()
    middle = len(group.trainings) // 2
    halves = (group.trainings[:middle], group.trainings[middle:])
    groups = [replace(group, trials=tuple(trial for one in half for trial in one)) for half in halves]
    return [record for half in groups for record in train_group(half, session, on_step)]


def record_failure(group: Group, session: Session, error: str) -> list[Record]:
    """Make a record of the failure for each trial of a group."""
    device = name_device(torch.device(session.device))
    return [
        Record(
            t.key,
            t.description(),
            FAILED,
            error=error,
            versions=list_versions(),
            device=device,
            stacked=len(group.trainings),
        )
        for t in group.trials
    ]
