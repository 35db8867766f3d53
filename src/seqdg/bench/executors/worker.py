"""What a worker process runs, and the warnings that it sends to the first process, which shows them in its own way.

A worker sends warnings from its start on, those of its imports too: this module itself imports nothing large.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple, Union

if TYPE_CHECKING:
    from seqdg.bench.executors.session import Session
    from seqdg.results import Record


class Warned(NamedTuple):
    """A warning on its way to the first process, which may not have its class."""

    message: str
    category: str
    filename: str
    line: int

    def show(self) -> None:
        """Show it, whatever the filters of this process are: those of the worker let it pass."""
        warnings.showwarning(self.message, type(self.category, (Warning,), {}), self.filename, self.line)


def describe_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> Warned:
    """Describe what `warnings.showwarning` is called with."""
    return Warned(str(message), category.__name__, filename, lineno)


Message = Union[int, "list[Record]", Warned]  # steps that were taken, the records of a group, or a warning


class Sender:
    """Sends the messages of a worker, one after the other.

    A warning may come while a message is on its way: from another thread, or from this one, where Python frees objects
    at any moment. It is sent after that message.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self._turn = pipe, threading.Lock()
        self._warned: deque[Warned] = deque()

    def __getstate__(self) -> Connection:
        return self.pipe

    def __setstate__(self, pipe: Connection) -> None:
        """Arrive in a worker, before all else that it is given: what that imports may warn."""
        self.__init__(pipe)  # type: ignore[misc]
        warnings.showwarning = self.send_warning

    def send(self, message: Message) -> None:
        with self._turn:
            self.pipe.send(message)
        self._send_warnings()

    def send_warning(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
    ) -> None:
        """Stand in for `warnings.showwarning`."""
        self._warned.append(describe_warning(message, category, filename, lineno))
        self._send_warnings()

    def _send_warnings(self) -> None:
        while self._warned and self._turn.acquire(blocking=False):  # who has the turn sends the rest
            try:
                with suppress(OSError, IndexError):  # nobody is there to read it; another thread has sent it
                    self.pipe.send(self._warned.popleft())
            finally:
                self._turn.release()


def serve(sender: Sender, session: Session) -> None:
    """Train groups from the pipe until None comes. A worker unpickles the arguments in their order."""
    from seqdg.bench.executors.session import train_group

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one decides
    threading.Thread(target=_follow_parent, daemon=True).start()
    pipe = sender.pipe

    def on_step(step: int) -> None:
        sender.send(step)
        if pipe.poll():  # nothing but the dismissal is sent to a busy worker
            raise KeyboardInterrupt

    with suppress(EOFError, OSError, KeyboardInterrupt):
        while (group := pipe.recv()) is not None:
            sender.send(train_group(group, session, on_step))


def _follow_parent() -> None:
    """End this process when its parent ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
