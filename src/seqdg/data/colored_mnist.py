"""ColoredMNIST (Arjovsky et al., 2019) of the bundled digits: color goes with the label, and at last against it.

A label says whether a digit is below 5 (class 1) or not (class 0), and is wrong for a quarter of the digits. Color 1
or 0 is the label, but for a share of the digits: 10 % in the domain `+90%`, 20 % in `+80%`, 90 % in `-90%`. A net that
learns the color does well on two domains and fails on the third, the one that counts; the shape of the digit predicts
the label in 75 % everywhere, and nothing that holds in all domains predicts it better.

The bundled digits are turned; here each is turned back. Whatever is random is drawn from one fixed seed.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from seqdg.data import rotated_mnist
from seqdg.data.dataset import Dataset

DOMAINS = ("+90%", "+80%", "-90%")
FLIPS = (0.1, 0.2, 0.9)  # share of the digits of a domain whose color is not their label
NOISE = 0.25  # share of the digits whose label is wrong
CLASSES = ("5 to 9", "0 to 4")
SIDE = 14


def load() -> Dataset:
    """Load the digits. `x` is (digit, 392): 14×14 pixels from 0 to 1 in color 0, then in color 1; a digit is in one of
    them."""
    digits = rotated_mnist.load()
    pixels = turn_back(digits)
    # RandomState's numbers are the same in every version of numpy.
    draw = np.random.RandomState(0)
    domain = np.empty(len(pixels), dtype=np.int64)
    domain[draw.permutation(len(pixels))] = np.arange(len(pixels)) % len(DOMAINS)
    y = (digits.y.numpy() < 5) ^ (draw.uniform(size=len(pixels)) < NOISE)
    color = y ^ (draw.uniform(size=len(pixels)) < np.array(FLIPS)[domain])
    x = np.zeros((len(pixels), 2, SIDE * SIDE), dtype=np.float32)
    x[np.arange(len(pixels)), color.astype(np.int64)] = pixels
    content = hashlib.sha256(f"{digits.fingerprint} colored".encode())
    for array in (y, color, domain):
        content.update(array.tobytes())
    return Dataset(
        name="colored-mnist",
        domains=DOMAINS,
        classes=CLASSES,
        x=torch.from_numpy(x.reshape(len(x), -1)),
        y=torch.from_numpy(y.astype(np.int64)),
        domain=torch.from_numpy(domain),
        fingerprint=content.hexdigest(),
    )


def turn_back(digits: Dataset) -> NDArray[np.float32]:
    """Return the bundled digits, upright: (digit, 196), bilinear, with zero outside."""
    from scipy.ndimage import rotate

    upright = digits.x.numpy().reshape(-1, SIDE, SIDE).copy()
    for angle in digits.domains[1:]:
        rows = digits.rows(angle).numpy()
        upright[rows] = rotate(upright[rows], -int(angle), axes=(2, 1), reshape=False, order=1)
    result: NDArray[np.float32] = upright.reshape(len(upright), -1).clip(0, 1)
    return result
