"""Every picture decoded once into one memory-mapped file: (row, 3, side, side) of uint8.

The file is named by what is in it: a hash of the pictures' names, sizes and checksums, and of the side. It is written
whole or not at all; a file that something else cut short is noticed when it is opened, and made again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from seqdg.base import UNFINISHED, UsageError, count_cores, replace_file
from seqdg.data.checks import Problem
from seqdg.data.container import LARGEST, Container, File
from seqdg.data.decoding import Pixels, decode, measure_side, require_pillow
from seqdg.data.image_folder import PictureFile
from seqdg.data.readers import ProgressCallback

VERSION = 1  # of how pictures become pixels; a new one makes every cache anew
BLOCK = 2**25  # bytes of pictures decoded together, two blocks ahead of the writing: bounds the memory
LARGEST_FOUND_SIDE = 256
ABANDONED = 600.0  # seconds after which an unfinished file that nobody writes to is removed


class _Broken(Exception):
    """Some pictures cannot be decoded: the file in the making is given up."""


def find_cache_folder() -> Path:
    """Return $SEQDG_CACHE, or `seqdg` in the user's cache folder of this platform."""
    if folder := os.environ.get("SEQDG_CACHE"):
        return Path(folder)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "seqdg" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "seqdg"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seqdg"


def hash_pictures(container: Container, pictures: Sequence[PictureFile], cache: Path) -> str:
    """Hash the content: the same pictures give the same hash, whether they lie in a folder or a zip.

    The files of a folder are read once for this; later, unchanged sizes and times show that they are the same.
    """
    files = [p.file for p in pictures]
    stamp = container.stamp(files)
    known = cache / f"{stamp}.fingerprint"
    if stamp and known.is_file() and len(text := known.read_text()) == 64:
        return text
    digest = hashlib.sha256()
    for picture, checksum in zip(pictures, container.checksums(files), strict=True):
        name = picture.file.parts[-1]
        line = f"{picture.domain}/{picture.label}/{name}\0{picture.file.size} {checksum:08x}\n"
        digest.update(line.encode())
    if stamp:
        with _write(known) as out:
            out.write(digest.hexdigest().encode())
    return digest.hexdigest()


def open_pictures(
    container: Container,
    pictures: Sequence[PictureFile],
    content: str,
    size: int | None,
    progress: ProgressCallback | None = None,
) -> tuple[NDArray[np.uint8] | None, list[Problem]]:
    """Return the pixels of every picture, from the cache or decoded into it; or which files cannot be decoded."""
    key = hashlib.sha256(f"{VERSION} {content} {size}".encode()).hexdigest()[:32]
    path = find_cache_folder() / f"{key}.npy"
    pixels = _open(path, len(pictures))
    if pixels is not None:
        return pixels, []
    require_pillow()
    with _lock(path):
        pixels = _open(path, len(pictures))  # another process may have made it meanwhile
        if pixels is not None:
            return pixels, []
        broken = _decode_all(container, [p.file for p in pictures], size, path, progress or (lambda done, total: None))
    return (None, broken) if broken else (_open(path, len(pictures)), [])


def _open(path: Path, rows: int) -> NDArray[np.uint8] | None:
    """Open the file, or return None if it is missing or incomplete."""
    try:
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError):
        return None
    return pixels if pixels.dtype == np.uint8 and pixels.ndim == 4 and len(pixels) == rows else None


def _decode_all(
    container: Container, files: Sequence[File], size: int | None, path: Path, progress: ProgressCallback
) -> list[Problem]:
    with ThreadPoolExecutor(count_cores()) as pool:  # Pillow's decoders let other threads run
        if size is None:
            sides = list(pool.map(lambda file: _measure_side(container, file), files))
            size = min(max(sides, default=1), LARGEST_FOUND_SIDE)
        shape = (len(files), 3, size, size)
        broken: list[Problem] = []
        with suppress(_Broken), _write(path, int(np.prod(shape, dtype=np.int64))) as out:
            npy.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for done, result in enumerate(_decode_ahead(pool, container, files, size), 1):
                if isinstance(result, Problem):
                    broken.append(result)
                elif not broken:
                    out.write(result.data)
                progress(done, len(files))
            if broken:
                raise _Broken
    return broken


def _decode_ahead(
    pool: ThreadPoolExecutor, container: Container, files: Sequence[File], size: int
) -> Iterator[Pixels | Problem]:
    """Decode in parallel and yield in order, never more than two blocks ahead."""
    waiting: deque[list[Future[Pixels | Problem]]] = deque()
    block = max(count_cores(), BLOCK // (3 * size * size))
    for start in range(0, len(files), block):
        waiting.append([pool.submit(_decode, container, file, size) for file in files[start : start + block]])
        if len(waiting) > 2:
            yield from (future.result() for future in waiting.popleft())
    for futures in waiting:
        yield from (future.result() for future in futures)


def _decode(container: Container, file: File, size: int) -> Pixels | Problem:
    try:
        if file.size > LARGEST:
            raise ValueError(f"{file.size} bytes")
        return decode(container.read(file), size)
    except Exception as error:  # a decoder may raise anything on a broken file, and each is to be listed
        why = str(error).split("<_io")[0].strip() or type(error).__name__
        return Problem(f"{container.place}: '{file.name}' cannot be decoded as an image ({why}).")


def _measure_side(container: Container, file: File) -> int:
    try:
        return measure_side(container.read(file)) if file.size <= LARGEST else 1
    except Exception:  # listed when it is decoded
        return 1


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process in at a time, so that a set is decoded once. The lock of a process that dies is released."""
    place = path.with_suffix(".lock")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.open("a")
    except OSError as error:
        raise _explain(path, 0, error) from error
    with lock:
        with suppress(ImportError, OSError):  # without locks each process makes the file, and the last one's stays
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


@contextmanager
def _write(path: Path, needs: int = 0) -> Iterator[BinaryIO]:
    """Open a new file of the cache, which is there whole or not at all. needs: the bytes that it will take."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        if shutil.disk_usage(path.parent).free < needs:
            raise OSError("the disk has too little room")
        with replace_file(path) as file:
            yield file
    except OSError as error:
        raise _explain(path, needs, error) from error


def _remove_abandoned(folder: Path) -> None:
    for left in folder.glob(f"*{UNFINISHED}"):
        try:
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
        except OSError:  # another process was quicker
            continue


def _explain(path: Path, needs: int, error: OSError) -> UsageError:
    room = f" ({needs / 2**30:.1f} GiB)" if needs else ""
    place = f"The cache{room} cannot be written to {path.parent}: {error.strerror or error}."
    return UsageError(f"{place} Make room there, or set SEQDG_CACHE to another folder.")
