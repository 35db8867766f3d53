"""Where groups run: in this process, in workers of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqdg.base import UsageError, choose_device, count_cores, unknown
from seqdg.bench.executors.workers import Workers

if TYPE_CHECKING:
    from seqdg.bench.execution import Executor

EXECUTORS = ("local", "ray")
SHORT = 10.0  # seconds: what takes less is not worth the start of worker processes


@dataclass(frozen=True, kw_only=True)
class ExecutorChoice:
    """What the user asks for; None: we choose.

    workers: 0 is this process.
    gpus_per_worker: the part of a GPU that a worker needs, so that 0.25 puts four on each.
    """

    executor: str = "local"
    workers: int | None = None
    gpus_per_worker: float | None = None
    address: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the user asks for nothing in particular."""
        return self.executor == "local" and self.workers is None and self.gpus_per_worker is None

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)
        if self.workers is not None and self.workers < 0:
            raise UsageError(f"{self.workers} workers were asked for. Give 0 for this process alone, or more.")
        if self.gpus_per_worker is not None and not 0 < self.gpus_per_worker <= 1:
            raise UsageError(
                f"A worker was to have {self.gpus_per_worker:g} GPUs, but a trial trains on one. Give 1, or a part "
                "such as 0.25."
            )
        if self.address is not None and self.executor != "ray":
            raise UsageError("--address is that of a Ray cluster. Add --executor ray, or leave it out.")


def choose_executor(choice: ExecutorChoice, device: str) -> tuple[Executor, str]:
    """Choose the executor, and the device that `device` (perhaps `auto`) comes to there."""

    kind = device if choice.executor == "ray" else choose_device(device)
    if kind == "cpu" and choice.gpus_per_worker is not None:
        raise UsageError("Part of a GPU was asked for, and the device is the CPU. Leave out --gpus-per-worker.")
    if choice.executor == "ray":
        from seqdg.bench.executors.ray import connect

        return connect(choice.workers, choice.gpus_per_worker, choice.address, device)
    return _choose_local(choice, kind), kind


def is_short(seconds: Sequence[float | None]) -> bool:
    """Say whether groups that take so long (None: unknown) are better run in this process."""
    return len(seconds) < 2 or (None not in seconds and sum(s for s in seconds if s is not None) < SHORT)


def _choose_local(choice: ExecutorChoice, device: str) -> Executor:
    """Choose processes of this machine: one for each core, GPU or part of a GPU. A single one is this process."""
    import torch

    from seqdg.bench.execution import InProcess

    every = tuple(f"cuda:{i}" for i in range(torch.cuda.device_count())) if device == "cuda" else ()
    devices, each = every or (device,), 1
    if choice.gpus_per_worker is not None:
        each = int(1 / choice.gpus_per_worker + 1e-9)
        if choice.workers is not None and choice.workers > each * len(devices):
            raise UsageError(
                f"{choice.workers} workers with {choice.gpus_per_worker:g} of a GPU each need more than the "
                f"{len(devices)} GPU here. Give at most {each * len(devices)} workers."
            )
    count = count_cores() if device == "cpu" else each * len(devices)
    count = count if choice.workers is None else choice.workers
    if count == 0 or (count == 1 and choice.workers is None):
        return InProcess()
    return Workers(count, devices)
