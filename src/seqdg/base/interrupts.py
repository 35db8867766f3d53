"""Ctrl-C (SIGINT), heeded once: a run that is interrupted needs a moment to keep what it has."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

MOMENT = 1.0  # seconds after an interrupt in which further ones are ignored


class _HeedOnce:
    """A handler of SIGINT that raises KeyboardInterrupt, but not again within a moment."""

    def __init__(self) -> None:
        self.heeded = -math.inf  # when it raised last

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self.heeded > MOMENT:
            self.heeded = now
            raise KeyboardInterrupt


@contextmanager
def heed_interrupts_once() -> Iterator[None]:
    """Ignore interrupts that closely follow another: `timeout -s INT` sends two, and the second would end what the
    first has asked for, such as checkpoints. One that comes later is heeded: somebody does not want to wait.

    Nothing changes outside the main thread, and where the program handles SIGINT in its own way.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _HeedOnce())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def hold_interrupts() -> Iterator[list[float]]:
    """Note interrupts in the list instead of raising KeyboardInterrupt: the block looks at it where it can stop. Who
    interrupts again after a moment does not want to wait: that one is raised."""
    came: list[float] = []
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or not (before is signal.default_int_handler or isinstance(before, _HeedOnce)):
        yield came
        return

    def note(number: int, frame: FrameType | None) -> None:
        came.append(time.monotonic())
        if came[-1] - came[0] > MOMENT:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        if came and isinstance(before, _HeedOnce):
            before.heeded = came[-1]
        signal.signal(signal.SIGINT, before)
