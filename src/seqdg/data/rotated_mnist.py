"""MNIST digits turned by six angles, each digit in one, ColoredMNIST, and a family of sets of turned digits.

The package comes with 5,000 real digits, made by `scripts/make_rotated_mnist.py`; source and licence are in
`rotated_mnist.txt` beside the file. `read` makes the set of all 70,000, as DomainBed does, from the files of MNIST:
`train-images-idx3-ubyte` and its three fellows, whole or as `.gz`, or Keras' `mnist.npz`. DomainBed shuffles the digits
by the seed of each training; here they are shuffled once, by a fixed seed, so that all trials share the domains.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.data.dataset import Dataset, DataSpec, ProgressCallback
from seqdg.data.domain_rows import Contents, DomainRows, collect_rows
from seqdg.data.features.domain_files import read_npz
from seqdg.data.pictures import require_pillow

DOMAINS = ("0", "15", "30", "45", "60", "75")  # degrees, counter-clockwise
CLASSES = tuple("0123456789")
COLORED_DOMAINS = ("+90%", "+80%", "-90%")
FLIPS = (0.1, 0.2, 0.9)  # share of the digits of a domain whose color is not their label
NOISE = 0.25  # share of the digits whose label is wrong
COLORED_CLASSES = ("5 to 9", "0 to 4")
SIDE = 14
CLEAN = 160  # rows of each domain of turned digits with true labels: to validate, and to test where it is held out
FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
MAGIC = {3: 2051, 1: 2049}  # what a file of so many axes begins with
Digits = NDArray[np.uint8]  # (digit, 28, 28)


def load() -> Dataset:
    """Load the digits. `x` is (digit, 196): 14×14 pixels from 0 (background) to 1, row by row."""
    with files("seqdg.data").joinpath("rotated_mnist.npz").open("rb") as file, np.load(file) as arrays:
        x, y, domain = (arrays[name] for name in ("x", "y", "domain"))
    content = hashlib.sha256()
    for array in (x, y, domain):
        content.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    pixels = torch.from_numpy(x.reshape(len(x), -1)).to(torch.float32) / 255
    labels, domains = torch.from_numpy(y).long(), torch.from_numpy(domain).long()
    return Dataset("rotated-mnist", DOMAINS, CLASSES, pixels, labels, domains, content.hexdigest())


def load_colored() -> Dataset:
    """Load ColoredMNIST (Arjovsky et al., 2019) of the bundled digits.

    Color goes with the label, and at last against it. A label says whether a digit is below 5 (class 1) or not (class
    0), and is wrong for a quarter of the digits. Color 1 or 0 is the label, but for a share of the digits: 10 % in the
    domain `+90%`, 20 % in `+80%`, 90 % in `-90%`. A model that learns the color does well on two domains and fails on
    the third, the one that counts; the shape of the digit predicts the label in 75 % everywhere, and nothing that
    holds in all domains predicts it better.

    The bundled digits are turned; here each is turned back. Whatever is random is drawn from one fixed seed. `x` is
    (digit, 392): 14×14 pixels from 0 to 1 in color 0, then in color 1; a digit is in one of them.
    """
    digits = load()
    pixels = turn_back(digits)
    # RandomState's numbers are the same in every version of numpy.
    draw = np.random.RandomState(0)
    domain = np.empty(len(pixels), dtype=np.int64)
    domain[draw.permutation(len(pixels))] = np.arange(len(pixels)) % len(COLORED_DOMAINS)
    y = (digits.y.numpy() < 5) ^ (draw.uniform(size=len(pixels)) < NOISE)
    color = y ^ (draw.uniform(size=len(pixels)) < np.array(FLIPS)[domain])
    x = np.zeros((len(pixels), 2, SIDE * SIDE), dtype=np.float32)
    x[np.arange(len(pixels)), color.astype(np.int64)] = pixels
    content = hashlib.sha256(f"{digits.fingerprint} colored".encode())
    for array in (y, color, domain):
        content.update(array.tobytes())
    arrays = (x.reshape(len(x), -1), y.astype(np.int64), domain)
    inputs, labels, domains = (torch.from_numpy(array) for array in arrays)
    return Dataset("colored-mnist", COLORED_DOMAINS, COLORED_CLASSES, inputs, labels, domains, content.hexdigest())


def turn_back(digits: Dataset) -> NDArray[np.float32]:
    """Return the bundled digits, upright: (digit, 196)."""
    return turn_by(digits.x.numpy(), -np.array(digits.domains, dtype=np.float64)[digits.domain.numpy()])


def load_turned(number: int = 6, degrees: float = 75.0, noise: float = 0.0, rows: int = 80) -> Dataset:
    """Load turned digits, to see how a result depends on the domains.

    Each digit is in one domain, and every class equally often. Whatever is random is drawn from a seed that follows
    from the four values. The official validation rows, 160 of each domain, have true labels. `x` is (digit, 196).

    Parameters
    ----------
    number
        Number of domains. Their names are 1, 2, ..., in the order of their angles.
    degrees
        How far the last domain is turned from the first, which is upright; the angles are evenly spaced.
    noise
        Share of the training rows with a wrong label, one of the other nine.
    rows
        Training rows of each domain.
    """
    digits = load()
    each = rows + CLEAN
    if number < 2 or rows < len(CLASSES) or number * each > len(digits.y) or not 0 <= noise <= 1:
        raise UsageError(
            f"There are no turned digits with number = {number}, noise = {noise:g} and rows = {rows}: give at least 2 "
            f"domains of at least {len(CLASSES)} rows each, with which and {CLEAN} more they have no more than "
            f"{len(digits.y):,} in all, and a noise from 0 to 1."
        )
    draw = np.random.RandomState(zlib.crc32(f"{number} {degrees:g} {noise:g} {rows}".encode()))
    order = draw.permutation(len(digits.y))
    by_class = order[np.argsort(digits.y.numpy()[order], kind="stable")].reshape(len(CLASSES), -1)
    order = by_class.T.flatten()[: number * each]  # one of each class after the other
    domain = np.repeat(np.arange(number), each)
    validation = np.tile(np.arange(each) >= rows, number)
    y = digits.y.numpy()[order]
    wrong = ~validation & (draw.uniform(size=len(y)) < noise)
    y = np.where(wrong, (y + draw.randint(1, len(CLASSES), size=len(y))) % len(CLASSES), y)
    now = np.array(DOMAINS, dtype=np.float64)[digits.domain.numpy()[order]]
    x = turn_by(digits.x.numpy()[order], np.linspace(0.0, degrees, number)[domain] - now)
    content = hashlib.sha256(f"{digits.fingerprint} turned by {degrees:g}".encode())
    for array in (order, y, domain, validation):
        content.update(array.tobytes())
    inputs, labels, domains, is_validation = (torch.from_numpy(array) for array in (x, y, domain, validation))
    names = tuple(str(i + 1) for i in range(number))
    return Dataset("turned-digits", names, CLASSES, inputs, labels, domains, content.hexdigest(), is_validation)


def turn_by(pixels: NDArray[np.float32], degrees: NDArray[np.float64]) -> NDArray[np.float32]:
    """Turn each of the digits (digit, 196) counter-clockwise by its own angle, bilinear, with zero outside."""
    from scipy.ndimage import rotate

    images = pixels.reshape(-1, SIDE, SIDE).copy()
    for angle in np.unique(degrees[degrees != 0]):
        rows = degrees == angle
        images[rows] = rotate(images[rows], float(angle), axes=(2, 1), reshape=False, order=1)
    result: NDArray[np.float32] = images.reshape(len(images), -1).clip(0, 1)
    return result


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
    return collect_rows(spec, rows)


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
    names = (name, f"{name}.gz", name.replace("-idx", ".idx"), f"raw/{name}", f"raw/{name}.gz")
    path = next((folder / other for other in names if (folder / other).is_file()), None)
    if path is None:
        raise UsageError(f"There is no {name} (nor {name}.gz) in {folder}, nor in raw below it.")
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read ({error}): is it whole?") from None
    head = np.frombuffer(data[: 4 * (axes + 1)], dtype=">i4")
    if len(head) != axes + 1 or head[0] != MAGIC[axes] or len(data) != head.nbytes + np.prod(head[1:], dtype=np.int64):
        raise UsageError(f"{path} is no file of MNIST, or only a part of one: download it again.")
    return np.frombuffer(data, dtype=np.uint8, offset=head.nbytes).reshape(head[1:])


BUNDLED = {"rotated-mnist": load, "colored-mnist": load_colored, "turned-digits": load_turned}


def load_bundled(table: Mapping[str, Any]) -> Dataset:
    """Load the bundled data that a [data] table names by its format; its other entries are what the data depend on."""
    return BUNDLED[table["format"]](**{name: value for name, value in table.items() if name != "format"})
