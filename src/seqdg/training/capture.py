"""A training step as one CUDA graph: launched once a step instead of once a kernel.

The order of domains, the minibatches and the keys of many steps lie on the device, and a counter there says which step
is next, so one graph serves all of them.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from seqdg.base import Params

WARM_UP = 3  # steps outside the graph, in which libraries choose their kernels and workspaces
StepData = dict[str, Tensor]  # what steps see: domain, rows, key and progress, each (step, trial, ...)
Carried = dict[str, Params]  # what a step takes over from the one before: weights, memory and slots
Step = Callable[[Carried, StepData], Tensor]  # takes the step of these draws in place and returns the loss


class CaptureError(RuntimeError):
    """Why a step could not be recorded."""


class CapturedStep:
    """One stage's step, recorded for a fixed shape of weights and draws."""

    def __init__(self, step: Step, carried: Carried, draws: StepData, ahead: int) -> None:
        self._step = step
        self._carried = copy_carried(carried)
        self._draws = {name: d.new_zeros((ahead, *d.shape[1:])) for name, d in draws.items()}
        first = next(iter(draws.values()))
        self._counter = torch.zeros(1, dtype=torch.int64, device=first.device)
        self._losses = torch.zeros((ahead, first.shape[1]), dtype=draws["progress"].dtype, device=first.device)
        self._load(carried, draws)
        self._graph = self._record()

    def run(self, carried: Carried, draws: StepData) -> tuple[Carried, Tensor]:
        """Take all steps that the data hold; the loss is (step, trial)."""
        steps = self._load(carried, draws)
        for _ in range(steps):
            self._graph.replay()
        return copy_carried(self._carried), self._losses[:steps].clone()

    def _load(self, carried: Carried, draws: StepData) -> int:
        for kind, tensors in carried.items():
            for name, t in tensors.items():
                self._carried[kind][name].copy_(t)
        for name, d in draws.items():
            self._draws[name][: len(d)].copy_(d)
        self._counter.zero_()
        return len(next(iter(draws.values())))

    def _take_step(self) -> None:
        """Take one step: new values of weights, memory, slots, loss and counter go to where the old were."""
        now = {name: d.index_select(0, self._counter).squeeze(0) for name, d in self._draws.items()}
        loss = self._step(self._carried, now)
        self._losses.index_copy_(0, self._counter, loss.detach().to(self._losses.dtype).unsqueeze(0))
        self._counter.add_(1).remainder_(len(self._losses))

    def _record(self) -> Any:
        aside = _get_stream(self._counter.device)
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._take_step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with _pause_garbage_collection(), _restore_stream(), torch.cuda.graph(graph, stream=aside):
            self._take_step()
        return graph


def capture_step(step: Step, carried: Carried, draws: StepData, ahead: int) -> CapturedStep:
    """Record a step for at most `ahead` steps at once; raise a CaptureError where that fails."""
    before = sys.exc_info()[1]
    try:
        return CapturedStep(step, carried, draws, ahead)
    except RuntimeError as error:
        cause = _describe_cause(error, before)
    raise CaptureError(cause)


def _describe_cause(error: BaseException, before: BaseException | None) -> str:
    """Return the first line of the first error in the chain, but not `before`, which was being handled already.

    Frames of the errors are cleared: one of torch's may hold a guard under which every gradient is zero, and it would
    hold it for as long as somebody keeps the error.
    """
    traceback.clear_frames(error.__traceback__)
    while error.__context__ is not None and error.__context__ is not before and not error.__suppress_context__:
        error = error.__context__
        traceback.clear_frames(error.__traceback__)
    return next(iter(str(error).splitlines()), type(error).__name__)


def copy_carried(carried: Carried) -> Carried:
    return {kind: {name: t.clone() for name, t in tensors.items()} for kind, tensors in carried.items()}


@cache
def _get_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which all graphs are warmed up and recorded: libraries keep a workspace for every stream
    that they have seen, and it must not be part of a graph's own memory."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def _restore_stream() -> Iterator[None]:
    """Make the current stream current again: where a recording fails, torch does not."""
    before = torch.cuda.current_stream()
    try:
        yield
    finally:
        torch.cuda.set_stream(before)


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Collect garbage now and not inside the block: freeing what another graph held would spoil a recording."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
