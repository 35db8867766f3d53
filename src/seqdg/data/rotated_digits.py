"""Rotated MNIST of all 70,000 digits, as DomainBed makes it, from the files of MNIST: six rotations, each digit in one.

The files are `train-images-idx3-ubyte` and its three fellows, whole or as `.gz`, or Keras' `mnist.npz`. DomainBed
shuffles the digits by the seed of each training; here they are shuffled once, by a fixed seed, so that all trials share
the domains.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.data.contents import Contents, DomainRows, RowsByDomain, collect_rows
from seqdg.data.decoding import require_pillow
from seqdg.data.features import read_npz
from seqdg.data.readers import ProgressCallback
from seqdg.data.spec import DataSpec

DOMAINS = ("0", "15", "30", "45", "60", "75")  # degrees, counter-clockwise
FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
MAGIC = {3: 2051, 1: 2049}  # what a file of so many axes begins with
Digits = NDArray[np.uint8]  # (digit, 28, 28)


def recognizes(path: Path) -> bool:
    """Recognize nothing by itself: a benchmark says that it wants digits turned."""
    return False


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    """Return the pixels of every digit from 0 to 1, row by row."""
    images, labels = read_mnist(path)
    order = np.random.RandomState(0).permutation(len(images))
    rows = {}
    for i, angle in enumerate(DOMAINS):
        mine = order[i :: len(DOMAINS)]
        x = turn(images[mine], int(angle)).reshape(len(mine), -1).astype(np.float32) / np.float32(255)
        rows[angle] = DomainRows(x, labels[mine].astype(np.int64))
        if progress is not None:
            progress(i + 1, len(DOMAINS))
    return collect_rows(spec, RowsByDomain(rows, [], []))


def turn(images: Digits, angle: int) -> Digits:
    """Turn each image counter-clockwise by Pillow, bilinear, with zero outside, as torchvision turns it."""
    require_pillow()
    from PIL import Image

    turned = [np.asarray(Image.fromarray(one).rotate(angle, resample=Image.Resampling.BILINEAR)) for one in images]
    return np.stack(turned)


def read_mnist(path: Path) -> tuple[Digits, NDArray[np.uint8]]:
    """Return the digits for training, then those for testing, and their labels."""
    if path.is_file():
        arrays = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
        pairs = [(arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])]
    else:
        pairs = [(_read_idx(path, images, 3), _read_idx(path, labels, 1)) for images, labels in FILES]
    for images, labels in pairs:
        if images.shape[1:] != (28, 28) or len(images) != len(labels):
            raise UsageError(
                f"{path} has images of shape {list(images.shape)} for {len(labels)} labels: digits are 28 x 28."
            )
    return np.concatenate([images for images, _ in pairs]), np.concatenate([labels for _, labels in pairs])


def _read_idx(folder: Path, name: str, axes: int) -> NDArray[np.uint8]:
    """Read one file of MNIST: four bytes that say what it is, four for each length, then a byte for each number."""
    path = _find(folder, (name, f"{name}.gz", name.replace("-idx", ".idx"), f"raw/{name}", f"raw/{name}.gz"))
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read ({error}): is it whole?") from None
    head = np.frombuffer(data[: 4 * (axes + 1)], dtype=">i4")
    if len(head) != axes + 1 or head[0] != MAGIC[axes] or len(data) != head.nbytes + np.prod(head[1:], dtype=np.int64):
        raise UsageError(f"{path} is no file of MNIST, or only a part of one: download it again.")
    return np.frombuffer(data, dtype=np.uint8, offset=head.nbytes).reshape(head[1:])


def _find(folder: Path, names: Iterable[str]) -> Path:
    choices = [folder / name for name in names]
    for path in choices:
        if path.is_file():
            return path
    raise UsageError(f"There is no {choices[0].name} (nor {choices[0].name}.gz) in {folder}, nor in raw below it.")
