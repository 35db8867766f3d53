"""The bundled data set: 5,000 real MNIST digits, six rotations as domains, each digit in exactly one.

Made by `scripts/make_rotated_mnist.py`; source and licence are in `rotated_mnist.txt` beside the file.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

import numpy as np
import torch

from seqdg.data.dataset import Dataset

DOMAINS = ("0", "15", "30", "45", "60", "75")  # degrees, counter-clockwise
CLASSES = tuple("0123456789")


def load() -> Dataset:
    """Load the digits. `x` is (digit, 196): 14×14 pixels from 0 (background) to 1, row by row."""
    with files("seqdg.data").joinpath("rotated_mnist.npz").open("rb") as file, np.load(file) as arrays:
        x, y, domain = (arrays[name] for name in ("x", "y", "domain"))
    content = hashlib.sha256()
    for array in (x, y, domain):
        content.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return Dataset(
        name="rotated-mnist",
        domains=DOMAINS,
        classes=CLASSES,
        x=torch.from_numpy(x.reshape(len(x), -1)).to(torch.float32) / 255,
        y=torch.from_numpy(y).to(torch.int64),
        domain=torch.from_numpy(domain).to(torch.int64),
        fingerprint=content.hexdigest(),
    )
