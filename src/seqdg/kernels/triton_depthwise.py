"""Depthwise convolutions of images (image, channel, height, width), which lie in memory as (row, channel).

A program handles a few columns of the images (`COLUMNS`, counted through all images) in a few channels (`WIDTH`), and
walks down the rows. It loads every row once for each column of the kernel, and uses it for all rows of the output that
it reaches. Of these loads only the first goes to device memory, where

    the output                reads the input, and writes the output;
    gradient of the input     reads the gradient of the output, and writes that of the input (for the activation before
                              it reads the input too);
    gradient of the weights   reads the gradient of the output, and the input.

Arithmetic is as much of a limit: each number is multiplied SIZE * SIZE times. So all weights of a program's channels,
or their gradients, stay in registers, and a tile has as many channels for each thread as that allows. What a row needs
is loaded `AHEAD` rows before.

With stride S, row S * u + b - top of the input and row u - s of the output meet in row b + S * s of the kernel, where b
is less than S, and s less than `REACH`. So a walk goes from one u to the next. The same holds for columns.

The order of every sum depends on shapes alone. Tensors have fewer than 2**31 numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqdg.kernels.triton_convolution import _activate, _mask_gradient

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

    at: place of row 0 at column z.
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

    at: place of row 0 at column o.
    """
    values = ()
    long = tl.where((u >= 0) & (u < stop), along, 0)  # columns that exist
    for t in tl.static_range(REACH):
        exists = inside & (o >= t) & (o - t < long)
        values += (tl.load(g + (at + (u * along - t) * channels), exists, 0.0),)  # type: ignore[assignment]
    return values


@triton.jit
def _locate_inputs(to, inside, z, u, first, height, width, top, channels, b, a, STRIDE: tl.constexpr):
    """Locate row b and column a of the inputs that come with u, unless it is before `first`: places, and which exist.

    to: place of row 0 at column z.
    """
    y = u * STRIDE + b - top
    long = tl.where((u >= first) & (y >= 0) & (y < height), width, 0)  # columns that exist
    return to + (y * width + a) * channels, inside & (z + a >= 0) & (z + a < long)


@triton.jit(do_not_specialize=_SIZES)
def convolve(
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
        tl.store(out + here, _activate(value, ACT), exists)
        totals = _make_zeros(1, COLUMNS, WIDTH) + totals[: REACH - 1]


@triton.jit(do_not_specialize=_SIZES)
def differentiate_input(
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
                    value = _mask_gradient(value, inputs[b * STRIDE + a].to(tl.float32), ACT)
                    passed += value
                tl.store(d_x + here, value, exists)
        totals = totals[PHASES:] + _make_zeros(PHASES, COLUMNS, WIDTH)
    if ACT > 0:
        line = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
        piece = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        tl.store(sums + piece * channels + line, tl.sum(passed, 0), line < channels)


@triton.jit(do_not_specialize=[*_SIZES, "units", "per"])
def differentiate_weights(
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
