"""Decode the bytes of a picture to pixels."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]  # (channel, height, width)


def require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise UsageError("Reading images needs Pillow: pip install 'seqdg[images]'.") from None


def decode(data: bytes, size: int) -> Pixels:
    """Decode a picture to RGB of side `size`. The aspect ratio is not kept, as is usual for these benchmarks.

    Raises whatever Pillow raises on a file that is broken or no picture.
    """
    image = _open(data)
    image.draft("RGB", (2 * size, 2 * size))  # lets a JPEG far larger than needed decode at a fraction of its size
    image = _to_rgb(image)
    if image.size != (size, size):
        image = image.resize((size, size), resample=2)  # bilinear, over the whole area that a pixel covers
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def measure_side(data: bytes) -> int:
    """Return the longer side, from the header alone."""
    return max(_open(data).size)


def _open(data: bytes) -> Image.Image:
    from PIL import Image

    return Image.open(io.BytesIO(data))


def _to_rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits of gray, which `convert` would clip
        gray = np.asarray(image).astype(np.float64)
        return Image.fromarray((gray * (255 / max(65535.0, gray.max()))).astype(np.uint8)).convert("RGB")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")
