"""Max pooling of images (image, channel, height, width), which lie in memory as (row, channel), there and back.

A byte tells where in its window the largest number is: the place in reading order. On the way back each position of an
image collects from the windows that cover it, in the same order every time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "height", "width", "down", "along"])
def pool(
    x, out, places, rows, height, width, down, along, channels, SIZE: tl.constexpr, STRIDE: tl.constexpr,
    PADDING: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the largest number of each of `rows` windows, `down` x `along` of an image, and its place.

    As in torch, the first of equals counts, and the last NaN if there is one.
    """
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (r < rows) & (c < channels)
    image = r // (down * along)
    top = r // along % down * STRIDE - PADDING
    left = r % along * STRIDE - PADDING
    most = tl.full((ROWS, WIDTH), float("-inf"), tl.float32)
    first = tl.maximum(-top, 0) * SIZE + tl.maximum(-left, 0)  # within the image: it counts if all are -infinity
    place = first + tl.zeros((ROWS, WIDTH), tl.int32)
    for i in tl.static_range(SIZE):
        for j in tl.static_range(SIZE):
            y, z = top + i, left + j
            exists = inside & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            at = ((image * height + y) * width + z).to(tl.int64) * channels + c
            value = tl.load(x + at, exists, float("-inf")).to(tl.float32)
            wins = (value > most) | (value != value)
            most = tl.where(wins, value, most)
            place = tl.where(wins, i * SIZE + j, place)
    to = r.to(tl.int64) * channels + c
    tl.store(out + to, most, inside)
    tl.store(places + to, place.to(tl.uint8), inside)


@triton.jit(do_not_specialize=["rows", "height", "width", "down", "along"])
def pool_back(
    g, places, d_x, rows, height, width, down, along, channels, SIZE: tl.constexpr, STRIDE: tl.constexpr,
    PADDING: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the gradient of each of `rows` positions: the sum over the windows in which it is the largest."""
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (r < rows) & (c < channels)
    image = r // (height * width)
    low = r // width % height + PADDING
    right = r % width + PADDING
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    COVERING: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE  # at most so many windows per side
    for i in tl.static_range(COVERING):
        for j in tl.static_range(COVERING):
            y, z = low // STRIDE - (COVERING - 1 - i), right // STRIDE - (COVERING - 1 - j)
            in_y, in_z = low - y * STRIDE, right - z * STRIDE  # within that window
            covers = inside & (y >= 0) & (y < down) & (in_y < SIZE) & (z >= 0) & (z < along) & (in_z < SIZE)
            at = ((image * down + y) * along + z).to(tl.int64) * channels + c
            place = tl.load(places + at, covers, 255).to(tl.int32)
            value = tl.load(g + at, covers, 0.0).to(tl.float32)
            total += tl.where(place == in_y * SIZE + in_z, value, 0.0)
    tl.store(d_x + r.to(tl.int64) * channels + c, total, inside)
