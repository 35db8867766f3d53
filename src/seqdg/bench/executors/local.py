"""Groups in this process, one after the other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import torch

from seqdg.bench.executors.session import FinishedGroups, Session, Tell, train_group
from seqdg.bench.trial import Group


@dataclass(frozen=True)
class InProcess:
    """An executor that trains in this process."""

    slots: int = 1

    def __call__(self, groups: Collection[Group], session: Session, tell: Tell) -> FinishedGroups:
        threads = torch.get_num_threads()
        try:
            for group in groups:
                tell(group, 0)
                yield group, train_group(group, session, partial(tell, group))
        finally:
            torch.set_num_threads(threads)
