"""Which executor a user's wishes come to, before any work starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqdg.base.errors import UsageError, unknown
from seqdg.base.machine import count_cores
from seqdg.bench.executors.context import Executor
from seqdg.bench.executors.local import InProcess
from seqdg.bench.executors.workers import Workers

NAMES = ("local", "ray")
SHORT = 10.0  # seconds: what takes less is not worth the start of worker processes


@dataclass(frozen=True)
class Wish:
    """As given on the command line; None leaves it to us.

    workers: 0 is this process.   gpus: the part of a GPU that a worker needs, so that 0.25 puts four on each.
    """

    executor: str = "local"
    workers: int | None = None
    gpus: float | None = None
    address: str | None = None

    @property
    def leaves_it_to_us(self) -> bool:
        return self.executor == "local" and self.workers is None and self.gpus is None

    def __post_init__(self) -> None:
        if self.executor not in NAMES:
            raise unknown("executor", self.executor, NAMES)
        if self.workers is not None and self.workers < 0:
            raise UsageError(f"{self.workers} workers were asked for. Give 0 for this process alone, or more.")
        if self.gpus is not None and not 0 < self.gpus <= 1:
            raise UsageError(
                f"A worker was to have {self.gpus:g} GPUs, but a trial trains on one. Give 1, or a part such as 0.25."
            )
        if self.address is not None and self.executor != "ray":
            raise UsageError("--address is that of a Ray cluster. Add --executor ray, or leave it out.")


def executor_for(wish: Wish, device: str) -> tuple[Executor, str]:
    """The executor, and the device that `device` (perhaps `auto`) comes to there."""
    if wish.executor == "ray":
        from seqdg.bench.executors.ray import connect

        return connect(wish.workers, wish.gpus, wish.address, device)
    found = device_of(device)
    return _local(wish, found), found


def is_short(seconds: Sequence[float | None]) -> bool:
    """Whether groups that take so long, where it is known, are better run in this process."""
    return len(seconds) < 2 or (None not in seconds and sum(s for s in seconds if s is not None) < SHORT)


def _local(wish: Wish, device: str) -> Executor:
    """Processes of this machine: one for each core, or for each GPU or part of one. A single one is this process."""
    if device == "cpu" and wish.gpus is not None:
        raise UsageError("Part of a GPU was asked for, and the device is the CPU. Leave out --gpus-per-worker.")
    every = tuple(f"cuda:{i}" for i in range(torch.cuda.device_count())) if device == "cuda" else ()
    devices, each = every or (device,), 1
    if wish.gpus is not None:
        each = int(1 / wish.gpus + 1e-9)
        if wish.workers is not None and wish.workers > each * len(devices):
            raise UsageError(
                f"{wish.workers} workers with {wish.gpus:g} of a GPU each need more than the {len(devices)} GPU here. "
                f"Give at most {each * len(devices)} workers."
            )
    count = count_cores() if device == "cpu" else each * len(devices)
    count = count if wish.workers is None else wish.workers
    if count == 0 or (count == 1 and wish.workers is None):
        return InProcess()
    return Workers(count, devices)


def device_of(wanted: str) -> str:
    """`auto` is a GPU where there is one."""
    kind, colon, number = wanted.partition(":")
    if wanted != "auto" and (kind not in ("cpu", "cuda") or (colon and not number.isdigit())):
        raise UsageError(f"There is no device '{wanted}'. Choose auto, cpu, cuda or cuda:NUMBER.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        return "cuda" if count else "cpu"
    if kind == "cuda" and not count:
        raise UsageError("There is no CUDA device here. Use --device cpu, or auto.")
    if kind == "cuda" and number and int(number) >= count:
        raise UsageError(f"There is no device '{wanted}': the last of the {count} CUDA devices is cuda:{count - 1}.")
    return kind if kind == "cpu" else wanted
