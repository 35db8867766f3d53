"""Picture files in a folder or a zip, decoded once into one memory-mapped file: (row, 3, side, side) of uint8.
Pictures in shards and columns of bytes (`image_shards`) end in the same file.

Nothing is unpacked. The file of pixels is named by what is in it: a hash of the pictures' names, sizes and checksums,
and of the side. It is written whole or not at all, and ends with a hash of itself; a file that something else cut short
or changed is noticed when it is opened, and made again.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import shutil
import stat
import sys
import warnings
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from seqdg.base import (
    SEAL_SIZE,
    UsageError,
    check_memory,
    count_cores,
    hash_others,
    is_intact,
    list_some,
    remove_abandoned,
    replace_file,
)
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_rows import Contents, Problem

if TYPE_CHECKING:
    from PIL import Image

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
DEPTH = 6  # folders below the root that are looked into; also ends a loop of links
PIXEL = 6  # bytes that a pixel takes while it is decoded and resized
LARGEST = 256 * 2**20  # bytes of one file; no picture is larger, a zip bomb may be
ANY = "surrogateescape"  # names of files are bytes, and may be no text
JUNK = ("__MACOSX", "Thumbs.db", "desktop.ini")
VERSION = 1  # of how pictures become pixels; a new one makes every cache anew
BLOCK = 2**25  # bytes of pictures decoded together: bounds the memory
LARGEST_FOUND_SIDE = 256

Pixels = NDArray[np.uint8]  # (channel, height, width)


def get_stem(name: str) -> str:
    """Return `dog_1` of `photo/dog/dog_1.jpg`. (pathlib's is ten times slower, and a set may have a million files.)"""
    last = name.rpartition("/")[2]
    return last.rpartition(".")[0] or last


class File(NamedTuple):
    name: str  # with slashes, as the container calls it
    size: int

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.name.split("/"))

    @property
    def stem(self) -> str:
        return get_stem(self.name)


class PictureFile(NamedTuple):
    domain: str
    label: str  # the class, by name
    file: File


def is_junk(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") or part in JUNK for part in parts)


class FolderContainer:
    """The files below a folder: all of them, or those of `names` that are there."""

    def __init__(self, path: Path, names: Iterable[str] | None = None) -> None:
        self.path, self.location = path, str(path)
        self.files: list[File] = []
        self.folders: set[tuple[str, ...]] = set()
        self.problems: list[Problem] = []
        self._stats: dict[str, os.stat_result] = {}
        self._real: dict[Path, Path] = {}  # by folder, where it is after every link
        if names is None:
            self._list(path, ())
        refused = [name for name in names or () if not self._add_named(name)]
        if refused:
            cure = 'say in [data] which folder holds them all, such as images = ["/"] (below the folder of the data)'
            text = f"The list names what is no file below {path}: {list_some(map(repr, refused))}; {cure}."
            self.problems.append(Problem(text))

    def _add_named(self, name: str) -> bool:
        """Add a file if it is there. Return whether it may be: a list is from elsewhere, and may name anything."""
        if not name:  # which is said of the list
            return True
        root, target = (Path(os.path.normpath(path.absolute())) for path in (self.path, self.path / name))
        if root not in target.parents:
            return False
        with suppress(OSError, ValueError):
            known = target.stat()
            if not (stat.S_ISREG(known.st_mode) and self._is_below(target)):
                return False
            self._add(name, known)
        return True

    def _is_below(self, target: Path) -> bool:
        """Whether a file is below this folder after every link on its way is followed."""
        if target.is_symlink():
            target = target.resolve()
        for folder in (self.path, target.parent):  # lists name many files of a folder
            if folder not in self._real:
                self._real[folder] = folder.resolve()
        return self._real[target.parent].is_relative_to(self._real[self.path])

    def _add(self, name: str, known: os.stat_result) -> None:
        self.files.append(File(name, known.st_size))
        self._stats[name] = known

    def _list(self, folder: Path, parts: tuple[str, ...]) -> None:
        try:
            items = sorted(os.scandir(folder), key=lambda item: item.name)
        except OSError as error:
            self.problems.append(Problem(f"The folder {folder} cannot be listed ({error.strerror})."))
            return
        for item in items:
            here = (*parts, item.name)
            if is_junk((item.name,)):
                continue
            if item.is_dir():
                self.folders.add(here)
                if len(here) < DEPTH:
                    self._list(Path(item.path), here)
            elif not item.is_file():
                self.problems.append(Problem(f"{self.location}: '{'/'.join(here)}' is no file: a link to nothing?"))
            else:
                self._add("/".join(here), item.stat())

    def read(self, file: File) -> bytes:
        return (self.path / file.name).read_bytes()

    def checksums(self, files: Sequence[File]) -> list[int]:
        with ThreadPoolExecutor() as pool:
            return list(pool.map(self._checksum, files))

    def _checksum(self, file: File) -> int:
        try:
            return zlib.crc32(self.read(file))
        except OSError:  # listed when it is decoded
            return 0

    def stamp(self, files: Sequence[File]) -> str:
        """Return what changes whenever a file does: its path, size and times, which cost no reading."""
        digest = hashlib.sha256(str(self.path.resolve()).encode(errors=ANY))
        for file in files:
            known = self._stats[file.name]
            digest.update(f"{file.name}\0{file.size} {known.st_mtime_ns} {known.st_ctime_ns}\n".encode(errors=ANY))
        return digest.hexdigest()


class ZipContainer:
    def __init__(self, path: Path) -> None:
        self.path, self.location = path, str(path)
        self.files: list[File] = []
        self.folders: set[tuple[str, ...]] = set()
        self.problems: list[Problem] = []
        self._infos: dict[str, zipfile.ZipInfo] = {}
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            self.problems.append(Problem(f"{path} cannot be read as a zip ({error}): download it again."))
            return
        for info in self._zip.infolist():
            self._add(info)

    def _add(self, info: zipfile.ZipInfo) -> None:
        parts = tuple(part for part in info.filename.replace("\\", "/").split("/") if part != ".")
        name = "/".join(parts)
        if not parts or ".." in parts or "" in parts[:-1] or parts[0][1:2] == ":":  # .., /root, C:
            self.problems.append(
                Problem(f"{self.location}: the path '{info.filename}' climbs out of the zip, or is not a path.")
            )
            return
        if is_junk(parts):
            return
        above = parts[:-1]  # a folder's name ends in a slash
        self.folders.update(above[:i] for i in range(1, len(above) + 1))
        if info.is_dir():
            return
        if name in self._infos:
            self.problems.append(Problem(f"{self.location}: '{name}' is in the zip twice."))
        elif info.flag_bits & 1:
            self.problems.append(Problem(f"{self.location}: '{name}' is encrypted: make a zip without a password."))
        else:
            self._infos[name] = info
            self.files.append(File(name, info.file_size))

    def read(self, file: File) -> bytes:
        return self._zip.read(self._infos[file.name])

    def checksums(self, files: Sequence[File]) -> list[int]:
        return [self._infos[file.name].CRC for file in files]

    def stamp(self, files: Sequence[File]) -> str:
        """Return nothing: no stamp is needed, because the directory of the zip has the checksums."""
        return ""


class Container(Protocol):
    """Where pictures lie: a folder, a zip, shards."""

    location: str
    files: list[File]
    folders: set[tuple[str, ...]]
    problems: list[Problem]

    def read(self, file: File) -> bytes: ...

    def checksums(self, files: Sequence[File]) -> list[int]: ...

    def stamp(self, files: Sequence[File]) -> str: ...


def open_container(path: Path) -> Container:
    return FolderContainer(path) if path.is_dir() else ZipContainer(path)


def require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise UsageError("Reading images needs Pillow: pip install 'seqdg[images]'.") from None


RESAMPLING = {"bilinear": 2, "bicubic": 3}  # over the whole area that a pixel covers; the numbers are Pillow's


def decode(data: bytes, size: int, resampling: str = "bilinear", crop: bool = False) -> Pixels:
    """Decode a picture to RGB of side `size`. The aspect ratio is not kept, as is usual for these benchmarks.

    resampling: one of `RESAMPLING`.   crop: keep the aspect ratio, and only the centre, as wide as the shorter side.

    Raises whatever Pillow raises on a file that is broken or no picture.
    """
    from PIL import Image

    opened = Image.open(io.BytesIO(data))
    opened.draft("RGB", (2 * size, 2 * size))  # lets a JPEG far larger than needed decode at a fraction of its size
    check_memory(PIXEL * (opened.width * opened.height + size * size) * count_cores(), "A picture on every core")
    image = _to_rgb(opened)
    if image.size != (size, size):
        box = _find_centre(*image.size) if crop else None
        image = image.resize((size, size), resample=RESAMPLING[resampling], box=box)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _find_centre(width: int, height: int) -> tuple[float, float, float, float]:
    """Return the largest square in the centre: left, upper, right, lower."""
    side = min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def _to_rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits of gray, which `convert` would clip
        gray = np.asarray(image).astype(np.float64)
        return Image.fromarray((gray * (255 / max(65535.0, gray.max()))).astype(np.uint8)).convert("RGB")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def find_cache_folder() -> Path:
    """Return $SEQDG_CACHE, or `seqdg` in the user's cache folder of this platform."""
    if folder := os.environ.get("SEQDG_CACHE"):
        return Path(folder)
    try:
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "seqdg" / "cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "seqdg"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seqdg"
    except RuntimeError:  # in a container, of a user whom it does not know
        raise UsageError("This user has no home folder for the cache of pictures. Set SEQDG_CACHE to one.") from None


@contextmanager
def explain_cache(folder: Path) -> Iterator[None]:
    """Refuse a folder of the cache that cannot be written to."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"The cache cannot be written to {folder}: {error.strerror or error}. Make room there, or set SEQDG_CACHE "
            "to another folder."
        ) from error


def fill_pixels(
    contents: Contents,
    container: Container,
    pictures: Sequence[PictureFile],
    spec: DataSpec,
    progress: ProgressCallback | None,
) -> Contents:
    """Add the pixels of every picture, from the cache or decoded into it, or which files cannot be decoded."""
    if not pictures:
        return contents
    size, folder = spec.size, find_cache_folder()
    with explain_cache(folder):
        folder.mkdir(parents=True, exist_ok=True)
        content = _hash_pictures(container, pictures)
        cropped = " cropped" if spec.crop else ""
        key = hashlib.sha256(f"{VERSION} {content} {size}{cropped}".encode()).hexdigest()[:32]
        path = folder / f"{key}.npy"
        contents.x = open_cache(path, len(pictures))
        if contents.x is None:
            if path.exists():
                text = "is damaged or of an older version: its pictures are decoded again"
                warnings.warn(f"{path} {text}.", stacklevel=2)
            require_pillow()
            with lock_cache(path):
                contents.x = open_cache(path, len(pictures))  # another process may have made it meanwhile
                if contents.x is None:
                    files = [p.file for p in pictures]
                    contents.problems += _decode_all(container, files, size, spec.crop, path, progress)
                    contents.x = open_cache(path, len(pictures))
    if contents.x is not None:
        contents.files = tuple(picture.file.name for picture in pictures)
        contents.content = f"{content} {contents.x.shape}{cropped}"
    return contents


def _hash_pictures(container: Container, pictures: Sequence[PictureFile]) -> str:
    """Hash the content: the same pictures give the same hash, whether they lie in a folder or a zip.

    The files of a folder are read once for this; later, unchanged sizes and times show that they are the same.
    """
    files = [p.file for p in pictures]
    stamp = container.stamp(files)
    known = find_cache_folder() / f"{stamp}.fingerprint"
    if stamp and known.is_file():
        content = known.read_bytes()
        if is_intact(content, len(content) - SEAL_SIZE):
            return content[:-SEAL_SIZE].decode()
        warnings.warn(f"{known} is damaged or of an older version, and is made again.", stacklevel=2)
    digest = hashlib.sha256()
    for picture, checksum in zip(pictures, container.checksums(files), strict=True):
        name = picture.file.parts[-1]
        line = f"{picture.domain}/{picture.label}/{name}\0{picture.file.size} {checksum:08x}\n"
        digest.update(line.encode(errors=ANY))
    if stamp:
        text = digest.hexdigest().encode()
        with replace_file(known) as out:
            out.write(text + hash_others(text, len(text)))
    return digest.hexdigest()


def open_cache(path: Path, rows: int) -> NDArray[Any] | None:
    """Map the file, or return None if it is missing, incomplete or damaged."""
    try:
        if _is_whole(path):
            mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
            return mapped if len(mapped) == rows else None
    except (FileNotFoundError, ValueError):  # none, or an empty one
        pass
    return None


def write_cache(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write the bytes of a cache as `open_cache` reads them, but for the hash, which follows from them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    digest = hashlib.sha256()
    with replace_file(path) as out:
        for part in parts:
            out.write(part)
            digest.update(part)
        out.write(digest.hexdigest().encode())


def write_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return how the file of an array begins: as numpy has it."""
    header = io.BytesIO()
    about = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(header, about)
    return header.getvalue()


def _is_whole(path: Path) -> bool:
    """Say whether a file ends with the hash of what is before. It is read in parts, and not mapped: pages of a map
    count as memory of this process."""
    left, digest = path.stat().st_size - SEAL_SIZE, hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (part := file.read(min(left, BLOCK))):
            digest.update(part)
            left -= len(part)
        return left == 0 and file.read() == digest.hexdigest().encode()


def _decode_all(
    container: Container,
    files: Sequence[File],
    size: int | None,
    crop: bool,
    path: Path,
    progress: ProgressCallback | None,
) -> list[Problem]:
    with ThreadPoolExecutor(count_cores()) as pool:  # Pillow's decoders let other threads run
        if size is None:
            sides = list(pool.map(lambda file: _measure_side(container, file), files))
            size = min(max(sides, default=1), LARGEST_FOUND_SIDE)
        shape = (len(files), 3, size, size)
        broken: list[Problem] = []
        block = max(count_cores(), BLOCK // (3 * size * size))
        remove_abandoned(path.parent)
        if shutil.disk_usage(path.parent).free < (needs := math.prod(shape)):
            raise OSError(f"the disk has too little room for {needs / 2**30:.1f} GiB")
        with replace_file(path) as out:
            header = write_header(shape, np.dtype(np.uint8))
            digest = hashlib.sha256(header)
            out.write(header)
            decoded = _run_ahead(pool, lambda file: decode_file(container, file, size, crop=crop), files, block)
            for done, result in enumerate(decoded, 1):
                if isinstance(result, Problem):
                    broken.append(result)
                elif not broken:
                    out.write(result.data)
                    digest.update(result.data)
                if progress is not None:
                    progress(done, len(files))
            out.write(digest.hexdigest().encode())
    if broken:
        path.unlink()
    return broken


def _run_ahead(
    pool: ThreadPoolExecutor, function: Callable[[File], Pixels | Problem], files: Sequence[File], ahead: int
) -> Iterator[Pixels | Problem]:
    """Yield the function of every file in their order, while threads are at work on so many that follow."""
    waiting: deque[Future[Pixels | Problem]] = deque()
    for file in files:
        waiting.append(pool.submit(function, file))
        if len(waiting) == ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def decode_file(
    container: Container, file: File, size: int, resampling: str = "bilinear", crop: bool = False
) -> Pixels | Problem:
    """Decode a picture of a container; return what is wrong where that cannot be done."""
    try:
        if file.size > LARGEST:
            raise ValueError(f"{file.size} bytes")
        return decode(container.read(file), size, resampling, crop)
    except Exception as error:  # a decoder may raise anything on a broken file, and each is to be listed
        why = str(error).split("<_io")[0].strip()[:200] or type(error).__name__
        return Problem(f"{container.location}: '{file.name}' cannot be decoded as an image ({why}).")


def _measure_side(container: Container, file: File) -> int:
    """Return the longer side, from the header alone."""
    from PIL import Image

    try:
        return max(Image.open(io.BytesIO(container.read(file))).size) if file.size <= LARGEST else 1
    except Exception:  # listed when it is decoded
        return 1


@contextmanager
def lock_cache(path: Path) -> Iterator[None]:
    """Let one process in at a time, so that a set is decoded once. The lock of a process that dies is released."""
    lock_path = path.with_suffix(".lock")
    with lock_path.open("a") as lock:
        with suppress(ImportError, OSError):  # without locks each process makes the file, and the last one's stays
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock_path.unlink(missing_ok=True)
