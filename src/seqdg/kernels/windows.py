"""Triton kernels that move a window over images, each channel by itself: depthwise convolutions, and max pooling.

Images (image, channel, height, width) lie in memory as (row, channel) and have fewer than 2**31 numbers. The order of
every sum depends on shapes alone.

In a depthwise convolution a program handles a few columns of the images (`COLUMNS`, counted through all images) in a
few channels (`WIDTH`), and walks down the rows. It loads every row once for each column of the kernel, and uses it for
all rows of the output that it reaches. Of these loads only the first goes to device memory, where

    the output                reads the input, and writes the output;
    gradient of the input     reads the gradient of the output, and writes that of the input (for the activation before
                              it reads the input too);
    gradient of the weights   reads the gradient of the output, and the input.

Arithmetic is as much of a limit: each number is multiplied SIZE * SIZE times. So all weights of a program's channels,
or their gradients, stay in registers, and a tile has as many channels for each thread as that allows. What a row needs
is loaded `AHEAD` rows before.

With stride S, row S * u + b - top of the input and row u - s of the output meet in row b + S * s of the kernel, where b
is less than S, and s less than `REACH`. So a walk goes from one u to the next. The same holds for columns.

In max pooling a byte tells where in its window the largest number is: the position in reading order. On the way back
each position of an image collects from the windows that cover it, in the same order every time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqdg.kernels.geometry import NONE, Depthwise, Window, lay_out_by_position, make_images
from seqdg.kernels.normalization import MOST_PIECES, WARPS, activate, choose_tiles, mask_gradient

_SIZES = ["columns", "height", "width", "down", "along", "top", "left", "tall"]


@triton.jit
def _add(totals, i: tl.constexpr, value):
    """Add to one of several totals."""
    return totals[:i] + (totals[i] + value,) + totals[i + 1 :]  # noqa: RUF005 - Triton does not unpack


@triton.jit
def _make_zeros(COUNT: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr):
    zeros = ()
    for _ in tl.static_range(COUNT):
        zeros += (tl.zeros((COLUMNS, WIDTH), tl.float32),)  # type: ignore[assignment]
    return zeros


@triton.jit
def _load_weights(w, c, channels, SIZE: tl.constexpr):
    """Load all weights of these channels: (row, column, channel)."""
    weights = ()
    for i in tl.static_range(SIZE * SIZE):
        weights += (tl.load(w + i * channels + c, c < channels, 0.0).to(tl.float32),)  # type: ignore[assignment]
    return weights


@triton.jit
def _load_inputs(x, at, inside, z, u, stop, height, width, top, channels, SIZE: tl.constexpr, STRIDE: tl.constexpr):
    """Load the rows of the input that come with u, unless it is `stop` or later, at columns z, z + 1, ...

    at: position of row 0 at column z.
    """
    values = ()
    for b in tl.static_range(STRIDE):
        y = u * STRIDE + b - top
        long = tl.where((u < stop) & (y >= 0) & (y < height), width, 0)  # columns that exist
        for j in tl.static_range(SIZE):
            exists = inside & (z + j >= 0) & (z + j < long)
            values += (tl.load(x + (at + (y * width + j) * channels), exists, 0.0),)  # type: ignore[assignment]
    return values


@triton.jit
def _load_gradients(g, at, inside, o, u, stop, along, channels, REACH: tl.constexpr):
    """Load row u of the gradient, unless it is `stop` or later, at columns o, o - 1, ...

    at: position of row 0 at column o.
    """
    values = ()
    long = tl.where((u >= 0) & (u < stop), along, 0)  # columns that exist
    for t in tl.static_range(REACH):
        exists = inside & (o >= t) & (o - t < long)
        values += (tl.load(g + (at + (u * along - t) * channels), exists, 0.0),)  # type: ignore[assignment]
    return values


@triton.jit
def _locate_inputs(to, inside, z, u, first, height, width, top, channels, b, a, STRIDE: tl.constexpr):
    """Locate row b and column a of the inputs that come with u, unless it is before `first`: where, and which exist.

    to: position of row 0 at column z.
    """
    y = u * STRIDE + b - top
    long = tl.where((u >= first) & (y >= 0) & (y < height), width, 0)  # columns that exist
    return to + (y * width + a) * channels, inside & (z + a >= 0) & (z + a < long)


@triton.jit(do_not_specialize=_SIZES)
def convolve_kernel(
    x, w, shift, rest, out, columns, height, width, down, along, top, left, tall, channels, SIZE: tl.constexpr,
    STRIDE: tl.constexpr, SHIFT: tl.constexpr, REST: tl.constexpr, ACT: tl.constexpr, COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Store `tall` rows of act(w * x + shift + rest)."""
    REACH: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE
    LOADS: tl.constexpr = STRIDE * SIZE
    c = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)[None, :]
    q = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    inside = (q < columns) & (c < channels)
    image, o = q // along, q % along
    first = tl.program_id(1) * tall
    stop = tl.minimum(first + tall, down) + (REACH - 1)
    z = o * STRIDE - left
    at, to = (image * height * width + z) * channels + c, (image * down * along + o) * channels + c
    weights = _load_weights(w, c, channels, SIZE)
    if SHIFT:
        offset = tl.load(shift + c, c < channels, 0.0)
    totals = _make_zeros(REACH, COLUMNS, WIDTH)  # of output rows u, u - 1, ...
    ahead = ()
    for i in tl.static_range(AHEAD):
        ahead += _load_inputs(x, at, inside, z, first + i, stop, height, width, top, channels, SIZE, STRIDE)
    for u in range(first, stop):
        now = ahead[:LOADS]
        later = _load_inputs(x, at, inside, z, u + AHEAD, stop, height, width, top, channels, SIZE, STRIDE)
        ahead = ahead[LOADS:] + later
        for b in tl.static_range(STRIDE):
            for j in tl.static_range(SIZE):
                value = now[b * SIZE + j].to(tl.float32)
                for s in tl.static_range(REACH):
                    if b + STRIDE * s < SIZE:
                        totals = _add(totals, s, value * weights[(b + STRIDE * s) * SIZE + j])
        row = u - (REACH - 1)
        here, exists = to + row * along * channels, inside & (o < tl.where(row >= first, along, 0))
        value = totals[REACH - 1]
        if SHIFT:
            value += offset
        if REST:
            value += tl.load(rest + here, exists, 0.0).to(tl.float32)
        tl.store(out + here, activate(value, ACT), exists)
        totals = _make_zeros(1, COLUMNS, WIDTH) + totals[: REACH - 1]


@triton.jit(do_not_specialize=_SIZES)
def differentiate_input_kernel(
    g, w, x, d_x, sums, columns, height, width, down, along, top, left, tall, channels, SIZE: tl.constexpr,
    STRIDE: tl.constexpr, ACT: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Store STRIDE * `tall` rows of the gradient of the input, STRIDE columns at a time.

    With an activation, the input x is what it gave: store the part of the gradient that passes back through it, and the
    sum of that by channel.
    """
    REACH: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE
    PHASES: tl.constexpr = STRIDE * STRIDE
    c = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)[None, :]
    q = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    inside = (q < columns) & (c < channels)
    across = (width + left - 1) // STRIDE - left // STRIDE + 1  # columns o with an input to write
    image, o = q // across, q % across + left // STRIDE
    first = top // STRIDE + tl.program_id(1) * tall
    last = tl.minimum(first + tall, (height + top - 1) // STRIDE + 1)
    stop = tl.minimum(last, down)
    z = o * STRIDE - left
    at, to = (image * down * along + o) * channels + c, (image * height * width + z) * channels + c
    weights = _load_weights(w, c, channels, SIZE)
    totals = _make_zeros(REACH * PHASES, COLUMNS, WIDTH)  # of the input rows that come with u, u + 1, ...
    passed = tl.zeros((COLUMNS, WIDTH), tl.float32)
    start = first - (REACH - 1)
    ahead = ()
    for i in tl.static_range(AHEAD):
        ahead += _load_gradients(g, at, inside, o, start + i, stop, along, channels, REACH)
    for u in range(start, last):
        now = ahead[:REACH]
        ahead = ahead[REACH:] + _load_gradients(g, at, inside, o, u + AHEAD, stop, along, channels, REACH)
        inputs = ()
        if ACT > 0:  # loaded now, used after the sums
            for b in tl.static_range(STRIDE):
                for a in tl.static_range(STRIDE):
                    here, exists = _locate_inputs(to, inside, z, u, first, height, width, top, channels, b, a, STRIDE)
                    inputs += (tl.load(x + here, exists, 0.0),)  # type: ignore[assignment]
        for t in tl.static_range(REACH):
            value = now[t].to(tl.float32)
            for s in tl.static_range(REACH):
                for b in tl.static_range(STRIDE):
                    for a in tl.static_range(STRIDE):
                        if b + STRIDE * s < SIZE and a + STRIDE * t < SIZE:
                            weight = weights[(b + STRIDE * s) * SIZE + a + STRIDE * t]
                            totals = _add(totals, s * PHASES + b * STRIDE + a, value * weight)
        for b in tl.static_range(STRIDE):
            for a in tl.static_range(STRIDE):
                here, exists = _locate_inputs(to, inside, z, u, first, height, width, top, channels, b, a, STRIDE)
                value = totals[b * STRIDE + a]
                if ACT > 0:  # where nothing exists, the 0 that was loaded lets nothing pass
                    value = mask_gradient(value, inputs[b * STRIDE + a].to(tl.float32), ACT)
                    passed += value
                tl.store(d_x + here, value, exists)
        totals = totals[PHASES:] + _make_zeros(PHASES, COLUMNS, WIDTH)
    if ACT > 0:
        line = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
        piece = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        tl.store(sums + piece * channels + line, tl.sum(passed, 0), line < channels)


@triton.jit(do_not_specialize=[*_SIZES, "units", "per"])
def differentiate_weights_kernel(
    g, x, pieces, columns, height, width, down, along, top, left, tall, units, per, channels, SIZE: tl.constexpr,
    STRIDE: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Store a piece of the gradient of the weights (piece, channel, row, column): the sum over `per` units.

    A unit is `tall` rows of the output.
    """
    REACH: tl.constexpr = (SIZE + STRIDE - 1) // STRIDE
    LOADS: tl.constexpr = STRIDE * SIZE + 1
    c = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)[None, :]
    piece, stripes = tl.program_id(1), tl.cdiv(down, tall)
    totals = _make_zeros(SIZE * SIZE, COLUMNS, WIDTH)
    for unit in range(piece * per, tl.minimum((piece + 1) * per, units)):
        q = unit // stripes * COLUMNS + tl.arange(0, COLUMNS)[:, None]
        inside = (q < columns) & (c < channels)
        image, o = q // along, q % along
        first = unit % stripes * tall
        last = tl.minimum(first + tall, down)
        stop = last + (REACH - 1)
        z = o * STRIDE - left
        at, to = (image * height * width + z) * channels + c, (image * down * along + o) * channels + c
        gradients = _make_zeros(REACH, COLUMNS, WIDTH)  # of output rows u, u - 1, ...
        ahead = ()
        for i in tl.static_range(AHEAD):
            ahead += _load_inputs(x, at, inside, z, first + i, stop, height, width, top, channels, SIZE, STRIDE)
            ahead += _load_gradients(g, to, inside, o, first + i, last, along, channels, 1)
        for u in range(first, stop):
            now = ahead[:LOADS]
            later = _load_inputs(x, at, inside, z, u + AHEAD, stop, height, width, top, channels, SIZE, STRIDE)
            ahead = ahead[LOADS:] + later + _load_gradients(g, to, inside, o, u + AHEAD, last, along, channels, 1)
            gradients = (now[LOADS - 1].to(tl.float32),) + gradients[: REACH - 1]  # noqa: RUF005
            for b in tl.static_range(STRIDE):
                for j in tl.static_range(SIZE):
                    value = now[b * SIZE + j].to(tl.float32)
                    for s in tl.static_range(REACH):
                        if b + STRIDE * s < SIZE:
                            totals = _add(totals, (b + STRIDE * s) * SIZE + j, value * gradients[s])
    line = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    to = pieces + (piece * channels + line) * (SIZE * SIZE)
    for i in tl.static_range(SIZE * SIZE):
        tl.store(to + i, tl.sum(totals[i], 0), line < channels)


# ---------------------------------------------------------------------------- launching depthwise convolutions

# By size of the kernel. Of programs there are about so many, if there is work for them: enough to keep 132 processors
# busy to the end. Those that sum over images are as many as run at once, which depends on the registers that they take.
PROGRAMS = {3: 3168, 5: 1584, 7: 1584}
SUMMING = {3: 660, 5: 264, 7: 264}
REGISTERS = {5: 168}  # at most, of a thread that also masks, in half precision: so three programs run at once, not two
UNITS = 8  # walks that one of these sums over, if there are so many, so that all have about as much to do
SHORTEST = 7  # rows of a walk: the first few are also walked by the program above


class Tile(NamedTuple):
    """What a program handles at a time: columns and channels, rows that it loads ahead; and its warps."""

    columns: int
    width: int = 32
    ahead: int = 1
    warps: int = 4


TILES = {3: Tile(16, ahead=2), 5: Tile(16), 7: Tile(8)}  # 4, 4 and 2 channels for each thread


def convolve(
    x: Tensor, w: Tensor, shape: Depthwise, shift: Tensor | None = None, rest: Tensor | None = None, act: int = NONE
) -> Tensor:  # fmt: skip
    """act(w * x + shift + rest)"""
    images, channels, height, width = x.shape
    columns, width_, ahead, warps = TILES[shape.size]
    out = make_images((images, channels, shape.down, shape.along), x.dtype, x)
    blocks, tiles = triton.cdiv(channels, width_), triton.cdiv(images * shape.along, columns)
    tall = _choose_rows(shape.down, PROGRAMS[shape.size] // (blocks * tiles))
    sizes = (images * shape.along, height, width, shape.down, shape.along, shape.top, shape.left, tall, channels)
    shifts, adds = shift is not None, rest is not None
    convolve_kernel[(blocks, triton.cdiv(shape.down, tall), tiles)](
        x, lay_out_by_position(w), shift if shifts else x, rest if adds else x, out, *sizes, shape.size, shape.stride,
        shifts, adds, act, columns, width_, ahead, num_warps=warps,
    )  # fmt: skip
    return out


def differentiate_input(g: Tensor, w: Tensor, x: Tensor, shape: Depthwise, act: int = NONE) -> tuple[Tensor, Tensor]:
    """Return the gradient of the input x; with an activation, that of what it was applied to to give x, and its sum
    over all rows in pieces (piece, channel)."""
    size = (x.shape[2], x.shape[3])
    images, channels = g.shape[:2]
    columns, width_, ahead, warps = TILES[shape.size]
    d_x = make_images((images, channels, *size), g.dtype, g)
    rows, across = (
        (n + before - 1) // shape.stride - before // shape.stride + 1
        for n, before in zip(size, (shape.top, shape.left), strict=True)
    )
    blocks, tiles = triton.cdiv(channels, width_), triton.cdiv(images * across, columns)
    tall = _choose_rows(rows, PROGRAMS[shape.size] // (blocks * tiles))
    stripes = triton.cdiv(rows, tall)
    pieces = g.new_empty((stripes * tiles if act else 0, channels), dtype=torch.float32)
    sizes = (images * across, *size, shape.down, shape.along, shape.top, shape.left, tall, channels)
    limited = act and shape.size in REGISTERS and g.element_size() == 2 and torch.version.cuda
    differentiate_input_kernel[(blocks, stripes, tiles)](
        g, lay_out_by_position(w), x, d_x, pieces, *sizes, shape.size, shape.stride, act, columns,
        width_, ahead, num_warps=warps,
        **({"maxnreg": REGISTERS[shape.size]} if limited else {}),
    )  # fmt: skip
    return d_x, pieces if len(pieces) <= MOST_PIECES else pieces.sum(0, keepdim=True)


def differentiate_weights(g: Tensor, x: Tensor, shape: Depthwise) -> Tensor:
    """Return the gradient of the weights, in single precision."""
    images, channels, height, width = x.shape
    columns, width_, ahead, warps = TILES[shape.size]
    blocks, tiles = triton.cdiv(channels, width_), triton.cdiv(images * shape.along, columns)
    count = max(1, SUMMING[shape.size] // blocks)
    tall = _choose_rows(shape.down, UNITS * count // tiles)
    units = tiles * triton.cdiv(shape.down, tall)
    per = triton.cdiv(units, count)
    pieces = g.new_empty((triton.cdiv(units, per), channels, 1, shape.size, shape.size), dtype=torch.float32)
    sizes = (images * shape.along, height, width, shape.down, shape.along, shape.top, shape.left, tall, units, per)
    differentiate_weights_kernel[(blocks, len(pieces))](
        g, x, pieces, *sizes, channels, shape.size, shape.stride, columns, width_, ahead, num_warps=warps
    )
    return pieces.sum(0)


def _choose_rows(rows: int, walks: int) -> int:
    """Choose how many rows a walk has, if there shall be so many walks, one below the other."""
    return int(triton.cdiv(rows, max(1, min(walks, rows // SHORTEST))))


# ---------------------------------------------------------------------------- max pooling

POOLED = 2048  # entries that a program handles at a time: it reads several for each


@triton.jit(do_not_specialize=["rows", "height", "width", "down", "along"])
def pool_kernel(
    x, out, positions, rows, height, width, down, along, channels, SIZE: tl.constexpr, STRIDE: tl.constexpr,
    PADDING: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the largest number of each of `rows` windows, `down` x `along` of an image, and its position.

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
    position = first + tl.zeros((ROWS, WIDTH), tl.int32)
    for i in tl.static_range(SIZE):
        for j in tl.static_range(SIZE):
            y, z = top + i, left + j
            exists = inside & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            at = ((image * height + y) * width + z).to(tl.int64) * channels + c
            value = tl.load(x + at, exists, float("-inf")).to(tl.float32)
            wins = (value > most) | (value != value)
            most = tl.where(wins, value, most)
            position = tl.where(wins, i * SIZE + j, position)
    to = r.to(tl.int64) * channels + c
    tl.store(out + to, most, inside)
    tl.store(positions + to, position.to(tl.uint8), inside)


@triton.jit(do_not_specialize=["rows", "height", "width", "down", "along"])
def pool_back_kernel(
    g, positions, d_x, rows, height, width, down, along, channels, SIZE: tl.constexpr, STRIDE: tl.constexpr,
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
            position = tl.load(positions + at, covers, 255).to(tl.int32)
            value = tl.load(g + at, covers, 0.0).to(tl.float32)
            total += tl.where(position == in_y * SIZE + in_z, value, 0.0)
    tl.store(d_x + r.to(tl.int64) * channels + c, total, inside)


def pool(x: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """Return the largest number of every window, and its position in the window (a byte)."""
    images, channels, height, width = x.shape
    down, along = window.count(height), window.count(width)
    out, positions = (make_images((images, channels, down, along), dtype, x) for dtype in (x.dtype, torch.uint8))
    sizes = (images * down * along, height, width, down, along, channels)
    tile, grid = choose_tiles(sizes[0], channels, entries=POOLED)
    pool_kernel[grid](x, out, positions, *sizes, *window[:3], *tile, num_warps=WARPS)
    return out, positions


def pool_back(g: Tensor, positions: Tensor, size: tuple[int, int], window: Window) -> Tensor:
    """Return the gradient of the images, of this height and width, whose windows were pooled."""
    images, channels, down, along = g.shape
    d_x = make_images((images, channels, *size), g.dtype, g)
    sizes = (images * size[0] * size[1], *size, down, along, channels)
    tile, grid = choose_tiles(sizes[0], channels, entries=POOLED)
    pool_back_kernel[grid](g, positions, d_x, *sizes, *window[:3], *tile, num_warps=WARPS)
    return d_x
