"""A second stream of a GPU: work there runs beside the main one's, which on small minibatches leaves much of it idle.

Used only while a CUDA graph is recorded, where it costs nothing to say so: the graph gets branches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

BEHIND = 2  # pieces of work that may be under way there; what each of them reads stays in memory as long
T = TypeVar("T")


class Aside:
    """Of one pass through a net, there and back."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pending: list[tuple[Any, Any]] = []  # an event, and what must not be freed before it

    def do(self, work: Callable[[], T]) -> tuple[T, Any]:
        """What it gives may be used once the event has been waited for."""
        if not (self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return work(), None
        here, there = torch.cuda.current_stream(self.device), _stream(self.device)
        there.wait_stream(here)  # also makes it safe to use memory there again that was last read here
        with torch.cuda.stream(there):
            done = work()
        return done, there.record_event()

    def leave(self, work: Callable[[], T]) -> T:
        """The same, to be waited for later, and not freed before."""
        self.wait(BEHIND)
        done, event = self.do(work)
        if event is not None:
            self._pending.append((event, (work, done)))
        return done

    def wait(self, behind: int = 0) -> None:
        """Until no more than so many pieces of work are under way."""
        while len(self._pending) > behind:
            self.wait_for(self._pending.pop(0)[0])

    def wait_for(self, event: Any) -> None:
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
