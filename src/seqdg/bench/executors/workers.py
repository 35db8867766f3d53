"""Groups in processes of this machine, one thread each.

A worker that dies is replaced, and its group is run again from its last checkpoint. A worker sends its warnings to the
first process, which shows them in its own way. It does so from its start on, also those of its imports: so this module
imports nothing large by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, NamedTuple, Union

if TYPE_CHECKING:
    from seqdg.bench.execution import FinishedGroups, OnGroupStep
    from seqdg.bench.task import Group, Session
    from seqdg.results import Record

ATTEMPTS = 3  # at a group whose workers die
PATIENCE = 10.0  # seconds that workers have to write a checkpoint when the run is interrupted
Waiting = deque[tuple["Group", int]]  # groups that wait, each with the number of its next attempt
INTERRUPTS = signal.SIGINT, signal.SIGTERM  # reach all processes of a terminal, or of a cluster's job
_SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit the threads and the CUDA state of this process


@dataclass(frozen=True)
class Workers:
    """An executor. `devices` go to the workers in turn; without any, the session says what they train on."""

    slots: int
    devices: tuple[str, ...] = ()

    def __call__(self, groups: Collection[Group], session: Session, on_step: OnGroupStep) -> FinishedGroups:
        crew: list[_Worker] = []
        waiting: Waiting = deque((group, 1) for group in groups)
        try:
            self._start(crew, session, min(self.slots, len(groups)))
            while True:
                for worker in crew:
                    if (begun := _hand_out(worker, waiting)) is not None:
                        on_step(begun, 0)
                busy: dict[object, _Worker] = {worker.pipe: worker for worker in crew if worker.group is not None}
                if not busy:
                    return
                for pipe in wait([worker.pipe for worker in crew if worker.group is not None]):
                    yield from _receive(busy[pipe], waiting, on_step)
        except KeyboardInterrupt:
            yield from _dismiss(crew)
            raise
        finally:
            _dismiss(crew)

    def _start(self, crew: list[_Worker], session: Session, count: int) -> None:
        """Start workers until the crew has so many; where one cannot start, the crew has those that did."""
        devices = self.devices or (session.device,)
        while len(crew) < count:
            crew.append(_Worker(replace(session, device=devices[len(crew) % len(devices)])))


class _Worker:
    """A process and the group that it works on."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.group: Group | None = None
        self.attempt = 0
        self.start()

    def start(self) -> None:
        from seqdg.base import hold_interrupts

        self.pipe, other = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=serve, args=(Sender(other), self.session), daemon=True)
        try:
            # The mask is for the worker. Python's handler may run here all the same, where another thread gets the
            # signal, and would leave a worker that reads half of what it should do, and prints a traceback.
            with hold_interrupts() as came, _block_interrupts():
                self.process.start()
            if came:
                raise KeyboardInterrupt
        except BaseException:  # Ctrl-C, perhaps, which comes when the process is there
            self.end()
            raise
        finally:
            other.close()  # now only the worker holds it, so the pipe ends when the worker dies

    def end(self) -> None:
        if self.process.pid is not None:
            self.process.kill()
            self.process.join()
        self.pipe.close()

    def take(self, group: Group, attempt: int) -> Group:
        self.group, self.attempt = group, attempt
        with suppress(OSError):  # it has died, which `_receive` notices
            self.pipe.send(group)
        return group


def _hand_out(worker: _Worker, waiting: Waiting) -> Group | None:
    """Give a worker that is free the next group, if one waits, and return that group."""
    return worker.take(*waiting.popleft()) if worker.group is None and waiting else None


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Start processes in this block that ignore interrupts from their first import on. This process receives them when
    the block ends."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would undo the next line
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive(worker: _Worker, waiting: Waiting, on_step: OnGroupStep) -> FinishedGroups:
    """Receive from a worker the number of its steps, its records or a warning, or notice that it is dead.

    It has its next group before its records are stored, so that it does not wait for that. All else comes after: what
    fails or is interrupted before the records are stored loses them.
    """
    group = worker.group
    assert group is not None
    try:
        message: Message = worker.pipe.recv()
    except KeyboardInterrupt:
        worker.pipe.close()  # what is left of a message is no message
        raise
    except (EOFError, OSError):
        from seqdg.bench.execution import record_failure

        worker.process.join()
        worker.group = None
        if worker.attempt < ATTEMPTS:
            waiting.appendleft((group, worker.attempt + 1))
        else:
            yield group, record_failure(group, worker.session, _describe_death(worker))
        worker.start()
        return
    if isinstance(message, Warned):
        message.show()
    elif isinstance(message, int):
        on_step(group, message)
    else:
        worker.group = None
        begun = _hand_out(worker, waiting)
        yield group, message
        if begun is not None:
            on_step(begun, 0)


def _describe_death(worker: _Worker) -> str:
    code = worker.process.exitcode or 0
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"{ATTEMPTS} workers died over this group, the last one {how}. Did they run out of memory?"


def _dismiss(crew: Sequence[_Worker]) -> list[tuple[Group, list[Record]]]:
    """Send the workers away; busy ones have a moment to write a checkpoint. Return what they finish in that time."""
    finished = []
    try:
        for worker in crew:
            with suppress(OSError):
                worker.pipe.send(None)
        present: dict[object, _Worker] = {worker.pipe: worker for worker in crew if not worker.pipe.closed}
        until = time.monotonic() + PATIENCE
        while present and time.monotonic() < until:
            for pipe in wait([worker.pipe for worker in present.values()], until - time.monotonic()):
                worker = present[pipe]
                try:
                    message: Message = worker.pipe.recv()
                except (EOFError, OSError):
                    del present[pipe]
                    continue
                if isinstance(message, Warned):
                    message.show()
                elif worker.group is not None and not isinstance(message, int):
                    finished.append((worker.group, message))
    finally:
        for worker in crew:
            worker.end()
    return finished


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
    from seqdg.bench.execution import train_group

    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)  # the first process decides
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
