"""Groups on a Ray cluster.

The driver alone writes: it hands out each group's last checkpoint; workers send it steps, checkpoints, weights and
warnings through a mailbox, and their records as the result. The mailbox answers that the run stops, where it does. A
group whose worker or node dies is given to another, and a node that joins later takes its part of what is left.

The rows of the data set are a file in the cache folder of every node, which its workers map. The first of them fetches
it, block by block, from an actor beside the driver: Ray's object store never holds more than a few blocks of it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Collection
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch

from seqdg.base import SEAL_SIZE, UNFINISHED, UsageError, count_cores, refuse_broken, state_reason
from seqdg.bench.execution import FinishedGroups, OnGroupStep, record_failure, train_group
from seqdg.bench.executors.workers import ATTEMPTS, PATIENCE, Warned, describe_warning
from seqdg.bench.task import Group, RowsInMemory, Session
from seqdg.data import Dataset, find_cache_folder, lock_cache, open_cache, write_cache, write_header
from seqdg.results import Record
from seqdg.training import name_checkpoint

BLOCK = 2**25  # bytes of rows that travel together
MOMENT = 0.5  # seconds between looks into the mailbox
START = "`ray start --head` starts one; without --address, one is started on this machine for the run."
TOKEN = (
    "If it is a Ray cluster that asks for a token, set RAY_AUTH_MODE=token, and have its token in ~/.ray/auth_token "
    "or in RAY_AUTH_TOKEN."
)

Content = int | bytes | Warned  # steps that a group has taken, a file, or a warning


@dataclass(frozen=True)
class OnRay:
    """An executor. gpus: the part of a GPU that a group needs.   most: groups at a time; None: as many as fit."""

    slots: int
    gpus: float = 0.0
    most: int | None = None

    def __call__(self, groups: Collection[Group], session: Session, on_step: OnGroupStep) -> FinishedGroups:
        with redirect_stdout(sys.stderr):  # Ray prints about dead workers on stdout, where tables go
            yield from self._run_groups(deque((group, 1) for group in groups), session, on_step)

    def _run_groups(self, waiting: deque[tuple[Group, int]], session: Session, on_step: OnGroupStep) -> FinishedGroups:
        driver = _Driver(session, on_step, self.gpus)
        try:
            while waiting or driver.under_way:
                while waiting and (self.most is None or len(driver.under_way) < self.most):
                    driver.submit(*waiting.popleft())
                for group, attempt, records, error in driver.collect():
                    if records is not None:
                        yield group, records
                    elif attempt < ATTEMPTS:
                        waiting.appendleft((group, attempt + 1))
                    else:
                        yield group, record_failure(group, session, f"{ATTEMPTS} workers died over this group. {error}")
        except KeyboardInterrupt:
            yield from driver.stop()
            raise
        finally:
            driver.stop()


def connect(workers: int | None, gpus: float | None, address: str | None, device: str) -> tuple[OnRay, str]:
    """Return the executor and the kind of device that it trains on. Without an address, start Ray on this machine."""
    interrupt = signal.getsignal(signal.SIGTERM)
    ray = _import_ray()
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"Ray chooses among a cluster's GPUs, so '{device}' cannot be asked for. Use cuda or cpu.")
    if workers == 0:
        raise UsageError("0 workers were asked for, and Ray needs at least one. Leave out --executor ray.")
    _initialize(ray, workers, address)
    if interrupt is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)  # Ray has taken it, to end this process without a checkpoint
    resources = ray.cluster_resources()
    has = resources.get("GPU", 0.0)
    kind = device if device != "auto" else "cuda" if has else "cpu"
    part = (gpus or 1.0) if kind == "cuda" or gpus is not None else 0.0
    if part * (workers or 1) > has:
        raise UsageError(
            f"{workers or 1} worker{'s' if (workers or 1) > 1 else ''} with {part:g} of a GPU each cannot be had: the "
            f"cluster has {has:g} GPUs. Ask for less, or use --device cpu."
        )
    slots = int(has / part + 1e-9) if part else int(resources.get("CPU", 1))
    return OnRay(max(1, min(slots, workers or slots)), part, workers), kind


def _initialize(ray: Any, workers: int | None, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        end = ". Without --executor ray, its processes do the work."
        with refuse_broken("Ray cannot be started on this machine", end):
            ray.init("local", num_cpus=workers or count_cores(), include_dashboard=False, **quiet)
        return
    try:
        _check_reachable(address)
    except (OSError, ValueError) as error:
        raise UsageError(f"There is no Ray cluster at '{address}' ({error}). {START}") from None
    try:
        ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        if address == "auto":
            raise UsageError(f"There is no Ray cluster on this machine. {START}") from None
        raise UsageError(
            f"What answers at '{address}' does not let this command in ({state_reason(error)}). {TOKEN}"
        ) from None


def _check_reachable(address: str) -> None:
    """Raise an error where nothing answers at the address: Ray itself keeps trying for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto":
        if not colon or not port.isdigit():
            raise ValueError("an address is HOST:PORT, or auto")
        socket.create_connection((host, int(port)), timeout=10).close()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError(
            "Ray is not installed. `pip install 'seqdg[ray]'` installs it; without --executor ray, the processes of "
            "this machine do the work."
        ) from None
    return ray


class _Driver:
    """The one side that knows the run directory."""

    def __init__(self, session: Session, on_step: OnGroupStep, gpus: float) -> None:
        self.ray, self.session, self.on_step = _import_ray(), session, on_step
        here = self.ray.get_runtime_context().get_node_id()
        stays = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        self.mailbox = self.ray.remote(num_cpus=0, scheduling_strategy=stays)(_Mailbox).remote()
        self.rows = _share_rows(self.ray, session.task.dataset(), stays)
        self.away = self.ray.put(replace(session, saving=replace(session.saving, files=None)))
        # max_calls=0: a worker lives on after a group, with torch imported and the data on its GPU.
        self.work = self.ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0, max_calls=0)(_train_remotely)
        self.under_way: dict[Any, tuple[Group, int]] = {}  # by what Ray calls the result: a group, which attempt
        self.groups: dict[str, Group] = {}
        self.begun: set[str] = set()  # keys of groups
        self.mail: deque[tuple[str, Content]] = deque()  # taken from the mailbox, and not read yet

    def submit(self, group: Group, attempt: int) -> None:
        name = name_checkpoint(group.key)
        files = self.session.saving.files
        left = files.read(name) if files is not None else None
        checkpoint = {} if left is None else {name: left}
        self.groups[group.key] = group
        ref = self.work.remote(group, self.away, self.rows, self.mailbox, checkpoint)
        self.under_way[ref] = group, attempt

    def collect(self) -> list[tuple[Group, int, list[Record] | None, str]]:
        """Collect groups that end in the next moment, with their records or with what killed their worker."""
        done, _ = self.ray.wait(list(self.under_way), num_returns=1, timeout=MOMENT)
        self.open_mail()  # first: a group whose records are stored writes no checkpoint afterwards
        ended: list[tuple[Group, int, list[Record] | None, str]] = []
        for ref in done:
            records, error = self.receive(ref)
            ended.append((*self.under_way.pop(ref), records, error))
        return ended

    def receive(self, ref: Any, timeout: float | None = None) -> tuple[list[Record] | None, str]:
        """Return the records of a group that has ended, or None and what ended its worker."""
        try:
            return self.ray.get(ref, timeout=timeout), ""
        except self.ray.exceptions.RayError as error:
            return None, str(error).strip()

    def open_mail(self) -> None:
        """Write the files that workers have sent, tell of their steps, and show their warnings."""
        self.mail.extend(self.ray.get(self.mailbox.take.remote()))
        while self.mail:
            name, content = self.mail[0]
            if isinstance(content, bytes) and self.session.saving.files is not None:
                self.session.saving.files.write(name, content)
            self.mail.popleft()  # not before: a file that Ctrl-C keeps from being written is written by `stop`
            if isinstance(content, Warned):
                content.show()
            elif isinstance(content, int):
                self.begun.add(name)
                self.on_step(self.groups[name], content)

    def stop(self) -> list[tuple[Group, list[Record]]]:
        """Have busy workers stop, which have a moment to send a checkpoint, and leave Ray. Return the groups that have
        finished by then and were not collected.

        It is the mailbox that stops them, since `ray.cancel` of a task that is just finishing may end this process.
        """
        finished = []
        try:
            left: list[Any] = []
            if self.under_way:
                self.ray.get(self.mailbox.close.remote())
                self.open_mail()  # it tells of every group that will keep something: one that begins now stops at once
                left = [ref for ref, (group, _) in self.under_way.items() if group.key in self.begun]
            until = time.monotonic() + PATIENCE
            while left and time.monotonic() < until:
                done, left = self.ray.wait(left, num_returns=len(left), timeout=MOMENT)
                for ref in done:
                    records, _ = self.receive(ref, timeout=max(0.0, until - time.monotonic()))
                    if records is not None:
                        finished.append((self.under_way[ref][0], records))
                self.open_mail()
        finally:
            self.under_way.clear()
            self.ray.shutdown()
        return finished


class _Mailbox:
    """An actor that keeps what workers send until the driver takes it."""

    def __init__(self) -> None:
        self.content: list[tuple[str, Content]] = []
        self.is_closed = False

    def put(self, name: str, content: Content) -> bool:
        """Keep the content. Say whether the sender should go on."""
        self.content.append((name, content))
        return not self.is_closed

    def close(self) -> None:
        """Take the last things: those who send now should stop."""
        self.is_closed = True

    def take(self) -> list[tuple[str, Content]]:
        taken, self.content = self.content, []
        return taken


@dataclass(frozen=True)
class _PostedFiles:
    """The files of a worker: it reads the checkpoint that it was sent, and the driver writes for it."""

    mailbox: Any
    checkpoint: dict[str, bytes]

    def read(self, name: str) -> bytes | None:
        return self.checkpoint.get(name)

    def write(self, name: str, data: bytes) -> None:
        _wait_for(self.mailbox.put.remote(name, data))  # it has arrived before the records have


def _wait_for(result: Any) -> Any:
    """Wait in a task for what an actor returns. Not by `ray.get`, which gives the task's core to another group
    meanwhile: then more groups are under way than there are cores."""
    return result.future().result()


def _train_remotely(
    group: Group, session: Session, rows: _SharedRows, mailbox: Any, checkpoint: dict[str, bytes]
) -> list[Record] | None:
    """Train a group in a process of Ray. Return its records, or None if the run stops meanwhile."""
    saving = replace(session.saving, files=_PostedFiles(mailbox, checkpoint))
    warned: deque[Warned] = deque()  # sent with the next steps: a warning may come in the middle of a call of Ray
    warnings.showwarning = lambda *about, **more: warned.append(describe_warning(*about))

    def post_warnings() -> list[Any]:
        return [mailbox.put.remote(group.key, warned.popleft()) for _ in range(len(warned))]

    def on_step(step: int) -> None:
        post_warnings()
        if not _wait_for(mailbox.put.remote(group.key, step)):
            raise KeyboardInterrupt

    try:
        on_step(0)
        if rows.run not in _rows:
            _rows.clear()
            _rows[rows.run] = RowsInMemory(rows.open())
        task = replace(session.task, rows=_rows[rows.run])
        return train_group(group, replace(session, task=task, saving=saving), on_step)
    except KeyboardInterrupt:
        return None
    finally:
        for posted in post_warnings():
            _wait_for(posted)  # they have arrived before the records have


_rows: dict[str, RowsInMemory] = {}  # of the run that this process works for: the same object for each of its groups


# Rows -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SharedRows:
    """The data set of a run, as its workers get it: all but the rows, and where these are fetched."""

    run: str
    name: str  # of the file in the cache folder of every node
    size: int  # of the file, without its hash
    about: dict[str, Any]  # all fields of the data set but x
    is_tensor: bool  # on the driver
    shelf: Any

    def open(self) -> Dataset:
        """Map the file of this node, which the first of its workers fetches."""
        folder, rows = find_cache_folder(), len(self.about["y"])
        path = folder / self.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock_cache(path):
                x: Any = open_cache(path, rows)
                if x is None:
                    write_cache(path, map(self._fetch, range(0, self.size, BLOCK)))
                    x = open_cache(path, rows)
        except OSError as error:
            raise UsageError(
                f"The rows cannot be written to {folder} on {socket.gethostname()}: {error.strerror or error}. Make "
                "room there, or set SEQDG_CACHE to another folder where Ray is started."
            ) from error
        if self.is_tensor:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the memory is read-only: nobody writes to it
                x = torch.from_numpy(x)
        return Dataset(**self.about, x=x)

    def _fetch(self, start: int) -> bytes:
        content: bytes = _wait_for(self.shelf.read.remote(start, min(BLOCK, self.size - start)))
        return content


class _Shelf:
    """An actor that hands out a file of rows: the driver's own, where it can read that, or what the driver gives it."""

    def __init__(self, path: str, name: str, size: int) -> None:
        whole = Path(path)
        self.path = whole if whole.is_file() else find_cache_folder() / name
        self.has = self.path.is_file() and self.path.stat().st_size == size + SEAL_SIZE

    def needs_content(self) -> bool:
        return not self.has

    def append(self, content: bytes, is_last: bool) -> None:
        """Take the next part of the file, with its hash at the end of the last one."""
        unfinished = Path(f"{self.path}{UNFINISHED}")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("ab") as file:
            file.write(content)
        if is_last:
            unfinished.replace(self.path)

    def read(self, start: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(length)


def _share_rows(ray: Any, dataset: Dataset, stays: Any) -> _SharedRows:
    """Write the rows into a file, unless they are one, and start the actor that hands it out."""
    path = _find_file(dataset)
    whole = path.stat().st_size
    size = whole - SEAL_SIZE
    shelf = ray.remote(num_cpus=0, scheduling_strategy=stays)(_Shelf).remote(str(path), path.name, size)
    if ray.get(shelf.needs_content.remote()):  # it is on another machine: the driver is a client of the cluster
        with path.open("rb") as file:
            for start in range(0, whole, BLOCK):
                ray.get(shelf.append.remote(file.read(BLOCK), start + BLOCK >= whole))
    about = {f.name: getattr(dataset, f.name) for f in fields(dataset) if f.name != "x"}
    return _SharedRows(uuid4().hex, path.name, size, about, isinstance(dataset.x, torch.Tensor), shelf)


def _find_file(dataset: Dataset) -> Path:
    """Return the file that a map of rows maps, or else write one, named by what is in it."""
    x = dataset.x
    known = Path(x.filename) if isinstance(x, np.memmap) and x.filename is not None else Path()
    whole = open_cache(known, len(x)) if known.parent == find_cache_folder() else None
    if whole is not None and whole.shape == x.shape:  # and x is not a part of it
        return known
    rows = np.ascontiguousarray(x.numpy() if isinstance(x, torch.Tensor) else x)
    header, content = write_header(rows.shape, rows.dtype), rows.reshape(-1).view(np.uint8).data
    path = find_cache_folder() / f"{hashlib.sha256(header + hashlib.sha256(content).digest()).hexdigest()[:32]}.npy"
    with refuse_broken(f"The rows cannot be written to {path.parent}", ". Set SEQDG_CACHE to another folder."):
        if open_cache(path, len(rows)) is None:
            write_cache(path, [header, content])
    return path
