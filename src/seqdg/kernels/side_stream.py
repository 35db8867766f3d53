"""A second GPU stream: its work runs beside the main stream's, which on small minibatches leaves the GPU half idle.

It is used only while a CUDA graph is recorded. There it costs nothing: the graph gets branches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

PENDING = 2  # pieces of work that may be under way at once; the inputs of each stay in memory until it is done
T = TypeVar("T")


class SideStream:
    """The side stream as one forward and backward pass through a net uses it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pending: list[tuple[Any, Any]] = []  # an event, and what must not be freed before it

    def run(self, work: Callable[[], T]) -> tuple[T, Any]:
        """Start the work; its result may be used after `wait_for` of the event that is returned with it."""
        if not (self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return work(), None
        main, side = torch.cuda.current_stream(self.device), _get_stream(self.device)
        side.wait_stream(main)  # also makes it safe for the side stream to reuse memory that the main one last read
        with torch.cuda.stream(side):
            result = work()
        return result, side.record_event()

    def queue(self, work: Callable[[], T]) -> T:
        """Start the work and remember it: `wait` waits for it, and what it uses is not freed before."""
        self.wait(PENDING)
        result, event = self.run(work)
        if event is not None:
            self._pending.append((event, (work, result)))
        return result

    def wait(self, pending: int = 0) -> None:
        """Wait until no more than `pending` pieces of queued work are under way."""
        while len(self._pending) > pending:
            self.wait_for(self._pending.pop(0)[0])

    def wait_for(self, event: Any) -> None:
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)


@cache
def _get_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
