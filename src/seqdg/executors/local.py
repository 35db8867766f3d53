"""Groups in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from seqdg.executors.context import Context, attempt
from seqdg.record import Record
from seqdg.trial import Group


def run(groups: Sequence[Group], context: Context, tick: Callable[[int], None]) -> Iterator[tuple[Group, list[Record]]]:
    """Each group with its records, as they finish."""
    if context.device == "cpu":
        torch.set_num_threads(1)  # the same sums in the same order as in any worker
    for group in groups:
        yield group, attempt(group, context, tick)
