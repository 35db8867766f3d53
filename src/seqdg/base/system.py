"""The machine and its operating system: files, interrupts, cores, memory, devices.

Files are written whole or not at all. A seal in one is a hash by which a bit that flips on a disk is noticed.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from glob import escape
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from seqdg.base.messages import UsageError

if TYPE_CHECKING:
    from torch import Tensor

UNFINISHED = ".part"  # how the name of a file or folder ends while it is being written
ABANDONED = 600.0  # seconds after which nobody writes to an unfinished file of a cache any more
LEFT = 3600.0  # seconds after which nobody writes to an unfinished folder any more
MOMENT = 1.0  # seconds after an interrupt in which further ones are ignored
LONGEST = 150  # bytes of a name, of the 255 that file systems take: an ending, and that of an unfinished file, follow
SHARE = 0.8  # of the free memory that what is read may take
SMALL = 2**26  # bytes that need no look at the memory
# The folder that holds DomainBed's package `domainbed`. An environment variable reaches every process that trains.
DOMAINBED = "SEQDG_DOMAINBED"
SEAL_SIZE = 64  # bytes of a seal: a sha256 in hexadecimal digits
_KEY = "seqdg.sha256"  # in the metadata of a safetensors file
_MARK = f'"{_KEY}":"'.encode()
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


class Files(Protocol):
    """Named blocks of bytes. In a worker without the directory, they go to and come from the process that has it."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes) -> None: ...


@dataclass(frozen=True)
class Folder:
    """Files below a folder of this machine; a name may hold a slash."""

    root: Path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            file.write(data)

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def list_names(self, folder: str) -> list[str]:
        """List the names of the files in a folder, without those that are half written."""
        paths = sorted((self.root / folder).glob("*"))
        return [f"{folder}/{path.name}" for path in paths if not path.name.endswith(UNFINISHED)]

    def remove_unfinished(self, folder: str) -> None:
        """Remove the files of a folder that a crash left half written, where nobody else writes."""
        for path in (self.root / folder).glob(f"*{UNFINISHED}"):
            path.unlink(missing_ok=True)


def make_file_name(name: str, marks: str = "+-_.", other: str = "_") -> str:
    """Return the name as that of one file, of letters, digits and marks: whoever chose it, no other folder is meant.

    marks: what else stays as it is.   other: what takes the place of all that does not.
    """
    safe = "".join(ch if ch.isalnum() or ch in marks else other for ch in name).strip(". ") or "_"
    try:
        short = os.fsencode(safe)[:LONGEST].decode(errors="ignore")
    except UnicodeEncodeError:  # the locale knows only ASCII
        short = safe.encode("ascii", errors="ignore")[:LONGEST].decode()
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return safe if short == safe else f"{short}-{digest}"


def check_output(path: Path, force: bool = False, files: Sequence[str] = (), option: str = "--out") -> None:
    """Raise a UsageError where a file cannot be written, or is there already; before anything is computed for it.

    force: what is there may be replaced.   files: what is written into the folder `path`; none where it is a file.
    """
    for target in [path / name for name in files] or [path]:
        if target.is_dir():
            raise UsageError(f"{target} is a folder, and a file is to be written there: give another {option}.")
        if target.exists() and not force:
            raise UsageError(f"{target} is there already: add --force to replace it, or give another {option}.")
    whole = path.absolute()
    above = next(p for p in ((whole, *whole.parents) if files else whole.parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = "may not be written to" if above.is_dir() else "is a file"
        raise UsageError(f"{path} cannot be written: {above} {why}. Give another {option}.")


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends, even through a power loss.

    If the block raises, `path` stays as it was.
    """
    unfinished = _name_unfinished(path)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_file(path: Path, content: bytes, cure: str = "") -> None:
    """Write a file, whole or not at all; raise a UsageError where that cannot be done. cure: what to do then."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.{cure}") from error


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder that takes the place of `path` when the block ends. If the block raises, nothing changes.

    What a process left that was killed here an hour ago or more goes: nobody writes to it any more.
    """
    path = path.resolve()
    for left in list_unfinished(path):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT:
                shutil.rmtree(left)
    unfinished, previous = _name_unfinished(path), _name_unfinished(path)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        if path.exists():
            path.rename(previous)
        try:
            unfinished.rename(path)
        except OSError:
            if previous.exists():
                previous.rename(path)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(previous, ignore_errors=True)
    _sync_folder(path.parent)


def list_unfinished(path: Path) -> list[Path]:
    """List what processes that were killed, or still write, have begun to put in the place of `path`."""
    return list(path.parent.glob(f".{escape(path.name)}.*{UNFINISHED}"))


def remove_abandoned(folder: Path) -> None:
    """Remove the files of a cache that a process left half written which was killed; another may be writing there."""
    for left in folder.glob(f"*{UNFINISHED}"):
        with suppress(OSError):  # another process was quicker
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()


def _name_unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}")


def _sync_folder(folder: Path) -> None:
    """Force a rename to disk. Windows opens no folders, and needs none of this."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# The handlers of a program that has none of its own. By SIGTERM clusters, containers and `timeout` end a program.
_USUAL: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
_interrupt = signal.SIGINT  # the last that came


def find_interrupt() -> signal.Signals:
    """Find which signal interrupted this process: what is raised is a KeyboardInterrupt of either."""
    return _interrupt


def _note_interrupt(number: int) -> float:
    """Note an interrupt, and return when it came."""
    global _interrupt
    _interrupt = signal.Signals(number)
    return time.monotonic()


class _HeedOnce:
    """A handler that raises KeyboardInterrupt, but not again within a moment."""

    def __init__(self) -> None:
        self.heeded = -math.inf  # when it raised last

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self.heeded > MOMENT:
            self.heeded = _note_interrupt(number)
            raise KeyboardInterrupt


@contextmanager
def _handle_interrupts(handler: Callable[[int, FrameType | None], None], ours: tuple[type, ...] = ()) -> Iterator[bool]:
    """Handle interrupts within the block: not outside the main thread, and none that the program handles in its own
    way, unless its handler is of one of the classes `ours`."""
    before = {number: signal.getsignal(number) for number in _USUAL}
    is_main = threading.current_thread() is threading.main_thread()
    handled = {n: h for n, h in before.items() if is_main and (h == _USUAL[n] or isinstance(h, ours))}
    for number in handled:
        signal.signal(number, handler)
    try:
        yield bool(handled)
    finally:
        for number, usual in handled.items():
            signal.signal(number, usual)


@contextmanager
def heed_interrupts_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM as at Ctrl-C, and ignore interrupts that closely follow another: `timeout`
    sends two, and the second would end what the first has asked for, such as checkpoints. One that comes later is
    heeded: somebody does not want to wait.

    Nothing changes outside the main thread, and where the program handles the signal in its own way.
    """
    with _handle_interrupts(_HeedOnce()) as is_outermost:
        if is_outermost:
            _note_interrupt(signal.SIGINT)  # what came before is of another command
        yield


@contextmanager
def hold_interrupts() -> Iterator[list[float]]:
    """Note interrupts in the list instead of raising KeyboardInterrupt: the block looks at it where it can stop. Who
    interrupts again after a moment does not want to wait: that one is raised."""
    came: list[float] = []
    heeding = [h for h in map(signal.getsignal, _USUAL) if isinstance(h, _HeedOnce)]

    def note(number: int, frame: FrameType | None) -> None:
        came.append(_note_interrupt(number))
        if came[-1] - came[0] > MOMENT:
            raise KeyboardInterrupt

    try:
        with _handle_interrupts(note, (_HeedOnce,)):
            yield came
    finally:
        for handler in heeding if came else ():
            handler.heeded = came[-1]


def count_cores() -> int:
    """How many cores this process may use: at most those of its affinity, and of its container's share of time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, round(int(quota) / int(period))))


def measure_free_memory() -> int | None:
    """How many bytes of memory this process may still take: of the machine, and of its container; None: unknown."""
    known = []
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        known.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, ValueError, KeyError):
        pass
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        if limit != "max":
            known.append(max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        pass
    return min(known, default=None)


def check_memory(needed: float, what: str, cure: str = "Use a part of it, or a machine with more memory.") -> None:
    """Raise a UsageError where something needs more memory than there is. It is asked before anything is read: a small
    file may unpack to more than a machine holds.

    needed: bytes that it takes at least.   what: needs them, at the start of the sentence.
    """
    free = measure_free_memory() if needed > SMALL else None
    if free is not None and needed > SHARE * free:
        raise UsageError(
            f"{what} needs at least {needed / 2**30:,.1f} GiB of memory, and {SHARE:.0%} of the {free / 2**30:,.1f} "
            f"GiB that are free may be taken. {cure}"
        )


def set_checkout(variable: str, folder: str | Path | None) -> None:
    """Set the folder of a checkout, for this process and those that it starts; None leaves it as it is."""
    if folder is not None:
        os.environ[variable] = str(Path(folder).resolve())


def collect_checkouts() -> dict[str, str]:
    """Return the checkouts that this process knows, for workers that do not inherit its environment."""
    return {variable: os.environ[variable] for variable in (DOMAINBED,) if os.environ.get(variable)}


def adopt_checkouts(checkouts: Mapping[str, str]) -> None:
    """Take over the checkouts that another process knows."""
    os.environ.update(checkouts)


def choose_device(wanted: str) -> str:
    """Choose the device to train on; `auto` is a GPU where there is one."""
    import torch

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


def prepare_process() -> None:
    """Use one thread, so that sums run in one order in every executor."""
    import torch

    torch.set_num_threads(1)
    _keep_freed_memory()


@cache
def _keep_freed_memory() -> None:
    """Keep freed memory for the next step: to return it and ask for it again can cost as much as the arithmetic."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # glibc; others have no such knob, and need none
            mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the most it accepts
            mallopt(_TRIM_THRESHOLD, 2**30)


_families: dict[str, Callable[[str], Any]] = {}  # by prefix of the names: what makes a learner of such a name


def register_family(prefix: str, make_learner: Callable[[str], Any]) -> None:
    """Say what makes the learner of a name such as `domainbed:CORAL`, which begins with the prefix and a colon."""
    _families[prefix] = make_learner


def find_family(prefix: str) -> Callable[[str], Any] | None:
    """Find what makes the learners of names with this prefix."""
    return _families.get(prefix)


# Seals: a sha256 in a file of all other bytes of the file -------------------------------------------------------------


def hash_file(path: Path) -> str:
    """Return the sha256 of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def hash_others(content: bytes | memoryview, at: int) -> bytes:
    """Return the sha256, as SEAL_SIZE digits, of all but the SEAL_SIZE bytes that begin at `at`."""
    view = memoryview(content)
    digest = hashlib.sha256(view[:at])
    digest.update(view[at + SEAL_SIZE :])
    return digest.hexdigest().encode()


def is_intact(content: bytes | memoryview, at: int) -> bool:
    """Say whether the seal that begins at `at` is that of all other bytes."""
    return bytes(content[at : at + SEAL_SIZE]) == hash_others(content, at)


def find_seal(content: bytes) -> int | None:
    """Find where the seal of a safetensors file begins; None: it has none."""
    start = content.find(_MARK, 8, 8 + int.from_bytes(content[:8], "little"))
    return None if start < 0 else start + len(_MARK)


def has_broken_seal(content: bytes) -> bool:
    """Say whether a safetensors file has a seal that is not that of its other bytes; files of others have none."""
    at = find_seal(content)
    return at is not None and not is_intact(content, at)


def save_sealed(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """Return tensors and what is said about them as a safetensors file with a seal in its metadata, always the same."""
    from safetensors.torch import save

    content = _sort_header(save(dict(tensors), {**about, _KEY: "0" * SEAL_SIZE}))
    at = find_seal(content)
    assert at is not None
    return b"".join((content[:at], hash_others(content, at), content[at + SEAL_SIZE :]))


def _sort_header(content: bytes) -> bytes:
    """Return a safetensors file with its metadata sorted, which safetensors writes in an order that it draws."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of eight bytes
    return b"".join((len(text).to_bytes(8, "little"), text, content[end:]))
