"""The image augmentation of `seqdg.data` as two Triton kernels: crop and brighten, then change the colors."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # pixels per program


@triton.jit
def _luma(r, g, b):
    return 0.299 * r + 0.587 * g + 0.114 * b


@triton.jit
def _clamp(x):
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def _interpolate(image, at, aside, below, both, x, y):
    """Interpolate between four pixels of one channel."""
    top = tl.load(image + at).to(tl.float32) * (1.0 - x) + tl.load(image + at + aside).to(tl.float32) * x
    low = tl.load(image + at + below).to(tl.float32) * (1.0 - x) + tl.load(image + at + both).to(tl.float32) * x
    return (top * (1.0 - y) + low * y) / 255.0


@triton.jit
def crop(images, amounts, out, sums, count, height, width, size, BRIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """Cut a window from every image, resize, mirror and brighten it, and sum its luma by block."""
    n = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size * size
    down = (at // size).to(tl.float32) + 0.5
    along = ((at % size).to(tl.float32) + 0.5) / size
    mirror = tl.load(amounts + 4 * count + n)
    along = tl.where(mirror > 0.0, 1.0 - along, along)
    y = (tl.load(amounts + n) + tl.load(amounts + 2 * count + n) * (down / size)) * height - 0.5
    x = (tl.load(amounts + count + n) + tl.load(amounts + 3 * count + n) * along) * width - 0.5
    x = tl.minimum(tl.maximum(x, 0.0), width - 1.0)
    y = tl.minimum(tl.maximum(y, 0.0), height - 1.0)
    left, top = x.to(tl.int32), y.to(tl.int32)
    left, top = tl.where(inside, left, 0), tl.where(inside, top, 0)
    aside = tl.where(left + 1 < width, 1, 0)
    below = tl.where(top + 1 < height, width, 0)
    first = top * width + left
    x, y = x - left, y - top
    image = images + n.to(tl.int64) * 3 * height * width
    r = _interpolate(image, first, aside, below, below + aside, x, y)
    g = _interpolate(image + height * width, first, aside, below, below + aside, x, y)
    b = _interpolate(image + 2 * height * width, first, aside, below, below + aside, x, y)
    if BRIGHT:
        factor = tl.load(amounts + 5 * count + n)
        r, g, b = _clamp(factor * r), _clamp(factor * g), _clamp(factor * b)
    to = out + (n.to(tl.int64) * size * size + at) * 3
    tl.store(to, r, inside)
    tl.store(to + 1, g, inside)
    tl.store(to + 2, b, inside)
    tl.store(sums + n * tl.num_programs(0) + tl.program_id(0), tl.sum(tl.where(inside, _luma(r, g, b), 0.0), 0))


@triton.jit
def _turn_hue(r, g, b, turn):
    most, least = tl.maximum(tl.maximum(r, g), b), tl.minimum(tl.minimum(r, g), b)
    chroma = most - least
    divisor = tl.where(chroma > 0.0, chroma, 1.0)
    sixths = tl.where(most == g, (b - r) / divisor + 2.0, (r - g) / divisor + 4.0)
    sixths = tl.where(most == r, (g - b) / divisor, sixths) + 6.0 * turn
    sixths = sixths - 6.0 * tl.floor(sixths / 6.0)
    red = least + chroma * _clamp(tl.abs(sixths - 3.0) - 1.0)
    green = least + chroma * _clamp(2.0 - tl.abs(sixths - 2.0))
    return red, green, least + chroma * _clamp(2.0 - tl.abs(sixths - 4.0))


@triton.jit
def color(
    out, amounts, sums, scales, count, blocks, size, CONTRAST: tl.constexpr, SATURATION: tl.constexpr,
    HUE: tl.constexpr, GRAY: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Change contrast, saturation and hue, turn images gray, and scale pixels as the net expects; in place."""
    n = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size * size
    to = out + (n.to(tl.int64) * size * size + at) * 3
    r, g, b = tl.load(to, inside, 0.0), tl.load(to + 1, inside, 0.0), tl.load(to + 2, inside, 0.0)
    if CONTRAST:
        i = tl.arange(0, BLOCKS)
        mean = tl.sum(tl.load(sums + n * blocks + i, i < blocks, 0.0), 0) / (size * size)
        factor = tl.load(amounts + 6 * count + n)
        r, g, b = (_clamp(mean + factor * (r - mean)), _clamp(mean + factor * (g - mean)),
                   _clamp(mean + factor * (b - mean)))  # fmt: skip
    if SATURATION:
        gray = _luma(r, g, b)
        factor = tl.load(amounts + 7 * count + n)
        r, g, b = (_clamp(gray + factor * (r - gray)), _clamp(gray + factor * (g - gray)),
                   _clamp(gray + factor * (b - gray)))  # fmt: skip
    if HUE:
        r, g, b = _turn_hue(r, g, b, tl.load(amounts + 8 * count + n))
    if GRAY:
        gray = _luma(r, g, b)
        chosen = tl.load(amounts + 9 * count + n) > 0.0
        r, g, b = tl.where(chosen, gray, r), tl.where(chosen, gray, g), tl.where(chosen, gray, b)
    tl.store(to, (r - tl.load(scales)) / tl.load(scales + 3), inside)
    tl.store(to + 1, (g - tl.load(scales + 1)) / tl.load(scales + 4), inside)
    tl.store(to + 2, (b - tl.load(scales + 2)) / tl.load(scales + 5), inside)


def augment_images(images: Tensor, amounts: Tensor, scales: Tensor, size: int, makes: tuple[bool, ...]) -> Tensor:
    """Return the augmented images (image, 3, size, size), which lie in memory as (image, height, width, channel).

    images: (image, 3, height, width) bytes.
    amounts: (10, image) top, left, height and width of the window as parts of the image, whether it is mirrored,
        factors of brightness, contrast and saturation, turn of hue, whether it is gray.
    scales: (6,) mean and standard deviation by channel.
    makes: which of the last five changes are made at all.
    """
    count, _, height, width = images.shape
    out = torch.empty((count, size, size, 3), dtype=torch.float32, device=images.device)
    blocks = triton.cdiv(size * size, BLOCK)
    sums = torch.empty((count, blocks), dtype=torch.float32, device=images.device)
    grid = (blocks, count)
    crop[grid](images, amounts, out, sums, count, height, width, size, makes[0], BLOCK)
    color[grid](out, amounts, sums, scales, count, blocks, size, *makes[1:], triton.next_power_of_2(blocks), BLOCK)
    return out.permute(0, 3, 1, 2)
