"""Triton kernels for what follows a convolution: BatchNorm, frozen or by the batch, a shortcut, an activation.

Activations (image, channel, height, width) lie in memory as (row, channel). The order of every sum depends on shapes
alone, so the same inputs give the same bits. The kernels are not specialized for sizes that differ from layer to layer:
every variant of a kernel takes a while to compile. Below them are the functions that launch them: they choose tile
shapes and the number of programs, and allocate the outputs.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqdg.kernels.geometry import NONE, has_depthwise_shape, make_laid_out_by_position

TILE = 4096  # entries that a program handles at a time
WARPS = 8  # per program
PROGRAMS = 264  # at most, of a kernel that sums: two for each processor of a large GPU
MOST_PIECES = 512  # of the gradient of a shift, that `fold_back` sums
MERGED = 32  # most channels of a program that may have to merge; half as many channels leave a quarter as much to read
_counters: dict[tuple[torch.device, int | None], Tensor] = {}  # by device and stream; None: those of graphs


@triton.jit
def activate(x, ACT: tl.constexpr):
    """Written by comparisons, which a NaN passes: a maximum would make it 0, and hide that a training has diverged."""
    if ACT > 0:
        x = tl.where(x < 0.0, 0.0, x)
    if ACT == 2:
        x = tl.where(x > 6.0, 6.0, x)
    return x


@triton.jit
def mask_gradient(g, out, ACT: tl.constexpr):
    """Return the part of a gradient that passes back through the activation with this output."""
    if ACT == 1:
        g = tl.where(out > 0.0, g, 0.0)
    if ACT == 2:
        g = tl.where((out > 0.0) & (out < 6.0), g, 0.0)
    return g


@triton.jit
def _locate_tile(part, rows, channels, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Locate one tile of rows of a part: channels of this program, offsets in memory, and which of these exist."""
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (r < rows)[:, None] & (c < channels)[None, :]
    return c, (part * rows + r)[:, None].to(tl.int64) * channels + c[None, :], inside


@triton.jit(do_not_specialize=["rows"])
def shift_act_kernel(
    y, shift, rest, out, rows, channels, REST: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    c, at, inside = _locate_tile(0, rows, channels, ROWS, WIDTH)
    value = tl.load(y + at, inside).to(tl.float32) + tl.load(shift + c, c < channels)[None, :]
    if REST:
        value += tl.load(rest + at, inside).to(tl.float32)
    tl.store(out + at, activate(value, ACT), inside)


@triton.jit(do_not_specialize=["rows"])
def shift_pass_kernel(
    t, shift, out, passed, rows, channels, ACT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    c, at, inside = _locate_tile(0, rows, channels, ROWS, WIDTH)
    value = tl.load(t + at, inside).to(tl.float32) + tl.load(shift + c, c < channels)[None, :]
    tl.store(passed + at, mask_gradient(value, tl.load(out + at, inside).to(tl.float32), ACT), inside)


@triton.jit(do_not_specialize=["rows", "per"])
def shift_act_back_kernel(
    g, out, m, sums, rows, channels, per, ACT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Store the masked gradient, and its sum over `per` rows by channel."""
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    first = tl.program_id(0).to(tl.int64) * per
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for step in range(0, per, ROWS):
        r = first + step + tl.arange(0, ROWS)
        inside = ((r < rows) & (r < first + per))[:, None] & (c < channels)[None, :]
        at = r[:, None] * channels + c[None, :]
        value = tl.load(g + at, inside, 0.0).to(tl.float32)
        if ACT > 0:
            value = mask_gradient(value, tl.load(out + at, inside, 0.0).to(tl.float32), ACT)
            tl.store(m + at, value, inside)
        total += value
    tl.store(sums + tl.program_id(0) * channels + c, tl.sum(total, 0), c < channels)


@triton.jit
def fold_kernel(w, gain, offset, mean, var, out, shift, length, across, apart, eps, LINE: tl.constexpr):
    """Store the folded weights, those of one channel `apart`, and channels `across` from each other; and the shift."""
    o = tl.program_id(0)
    scale = tl.load(gain + o) / tl.sqrt(tl.load(var + o) + eps)
    tl.store(shift + o, tl.load(offset + o) - tl.load(mean + o) * scale)
    for step in range(0, length, LINE):
        at = step + tl.arange(0, LINE)
        inside = at < length
        value = tl.load(w + o.to(tl.int64) * length + at, inside) * scale
        tl.store(out + o.to(tl.int64) * across + at * apart, value, inside)


@triton.jit(do_not_specialize=["count"])
def fold_back_kernel(
    d, pieces, w, gain, mean, var, d_w, d_gain, d_offset, length, count, eps, PIECES: tl.constexpr, LINE: tl.constexpr
):
    """Store the gradients of weights, gain and offset. That of the shift comes in pieces (piece, channel)."""
    o = tl.program_id(0)
    i = tl.arange(0, PIECES)
    d_shift = tl.sum(tl.load(pieces + i * tl.num_programs(0) + o, i < count, 0.0), 0)
    back = 1.0 / tl.sqrt(tl.load(var + o) + eps)
    scale = tl.load(gain + o) * back
    total = tl.zeros((LINE,), tl.float32)
    for step in range(0, length, LINE):
        at = step + tl.arange(0, LINE)
        inside = at < length
        here = o.to(tl.int64) * length + at
        value = tl.load(d + here, inside, 0.0).to(tl.float32)
        total += value * tl.load(w + here, inside, 0.0)
        tl.store(d_w + here, value * scale, inside)
    tl.store(d_gain + o, (tl.sum(total, 0) - tl.load(mean + o) * d_shift) * back)
    tl.store(d_offset + o, d_shift)


@triton.jit
def _is_last(counters):
    """Return whether this program is the last of its channels (and part) to store its piece, and so may read them all.

    The first barrier orders the stores of all threads before the count. Counting releases them, and acquires those of
    the programs that counted before. The second barrier passes that on to the threads that read. The last program sets
    the counter back to 0.
    """
    pieces = tl.num_programs(0)
    before = 0
    tl.debug_barrier()
    if pieces > 1:
        counter = counters + tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
        tl.debug_barrier()
        if before == pieces - 1:
            tl.store(counter, 0)
    return before == pieces - 1


@triton.jit(do_not_specialize=["rows", "per"])
def moments_kernel(
    x, means, squares, counters, mean_out, rstd_out, rows, channels, per, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Store the mean, and the sum of squares about it, of every stretch of `per` rows of every part, by channel.

    The last program merges them into the mean and 1 / standard deviation of the part. Sums are taken about the first
    row of the stretch, so that a mean far from 0 costs no digits.
    """
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    known = c < channels
    part = tl.program_id(2).to(tl.int64) * rows
    first = tl.program_id(0).to(tl.int64) * per
    about = tl.load(x + (part + first) * channels + c, known, 0.0).to(tl.float32)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    square = tl.zeros((ROWS, WIDTH), tl.float32)
    for step in range(0, per, ROWS):
        r = first + step + tl.arange(0, ROWS)
        inside = ((r < rows) & (r < first + per))[:, None] & known[None, :]
        value = tl.load(x + (part + r[:, None]) * channels + c[None, :], inside, 0.0).to(tl.float32)
        away = tl.where(inside, value - about[None, :], 0.0)
        total += away
        square += away * away
    count = tl.minimum(rows - first, per).to(tl.float32)
    mean = tl.sum(total, 0) / count
    start = tl.program_id(2) * tl.num_programs(0) * channels
    at = start + tl.program_id(0) * channels + c
    tl.store(means + at, about + mean, known)
    tl.store(squares + at, tl.sum(square, 0) - count * mean * mean, known)
    if _is_last(counters):
        to = tl.program_id(2) * channels + c
        _merge_moments(
            means + start, squares + start, mean_out + to, rstd_out + to, rows, channels, per, eps, c, ROWS, WIDTH
        )


@triton.jit
def _merge_moments(
    means, squares, mean_out, rstd_out, rows, channels, per, eps, c, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Store the mean and 1 / standard deviation of a part, merged from the moments of its stretches (Chan et al.)."""
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    square = tl.zeros((ROWS, WIDTH), tl.float32)
    for step in range(0, tl.num_programs(0), ROWS):
        i, at, inside = _locate_pieces(step, channels, c, channels, ROWS)
        count = tl.where(i < tl.num_programs(0), tl.minimum(rows - i * per, per), 0).to(tl.float32)
        piece = tl.load(means + at, inside, 0.0, cache_modifier=".cg")
        square += tl.load(squares + at, inside, 0.0, cache_modifier=".cg")
        total += piece * count[:, None]
    mean = tl.sum(total, 0) / rows
    for step in range(0, tl.num_programs(0), ROWS):
        i, at, inside = _locate_pieces(step, channels, c, channels, ROWS)
        count = tl.where(i < tl.num_programs(0), tl.minimum(rows - i * per, per), 0).to(tl.float32)
        away = tl.load(means + at, inside, 0.0, cache_modifier=".cg") - mean[None, :]
        square += away * away * count[:, None]
    tl.store(mean_out, mean, c < channels)
    tl.store(rstd_out, 1.0 / tl.sqrt(tl.sum(square, 0) / rows + eps), c < channels)


@triton.jit
def _locate_pieces(step, apart, c, channels, ROWS: tl.constexpr):
    """Locate the next pieces, which lie `apart` in memory: numbers, offsets, and which of these exist."""
    i = step + tl.arange(0, ROWS)
    inside = (i < tl.num_programs(0))[:, None] & (c < channels)[None, :]
    return i, i[:, None] * apart + c[None, :], inside


@triton.jit(do_not_specialize=["rows"])
def norm_act_kernel(
    x, mean, rstd, gain, offset, rest, out, rows, channels, REST: tl.constexpr, ACT: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(2)
    c, at, inside = _locate_tile(p, rows, channels, ROWS, WIDTH)
    known, column = c < channels, p * channels + c
    centred = tl.load(x + at, inside).to(tl.float32) - tl.load(mean + column, known)[None, :]
    scale = tl.load(rstd + column, known) * tl.load(gain + c, known)
    value = centred * scale[None, :] + tl.load(offset + c, known)[None, :]
    if REST:
        value += tl.load(rest + at, inside).to(tl.float32)
    tl.store(out + at, activate(value, ACT), inside)


@triton.jit(do_not_specialize=["rows", "per"])
def norm_act_sums_kernel(
    g, x, out, mean, rstd, pieces, counters, sums, rows, channels, per, ACT: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the sums of the masked gradient, and of it times the normalized input, by stretch, part and channel.

    The last program adds them up over the stretches.
    """
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    known = c < channels
    parts, p = tl.num_programs(2), tl.program_id(2)
    part = p.to(tl.int64) * rows
    first = tl.program_id(0).to(tl.int64) * per
    column = p * channels + c
    centre = tl.load(mean + column, known, 0.0)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    product = tl.zeros((ROWS, WIDTH), tl.float32)
    for step in range(0, per, ROWS):
        r = first + step + tl.arange(0, ROWS)
        inside = ((r < rows) & (r < first + per))[:, None] & known[None, :]
        at = (part + r[:, None]) * channels + c[None, :]
        value = tl.load(g + at, inside, 0.0).to(tl.float32)
        if ACT > 0:
            value = mask_gradient(value, tl.load(out + at, inside, 0.0).to(tl.float32), ACT)
        total += value
        product += value * (tl.load(x + at, inside, 0.0).to(tl.float32) - centre[None, :])
    to = pieces + tl.program_id(0) * 2 * parts * channels + column
    tl.store(to, tl.sum(total, 0), known)
    tl.store(to + parts * channels, tl.sum(product, 0) * tl.load(rstd + column, known, 0.0), known)
    if _is_last(counters):
        total = tl.zeros((ROWS, WIDTH), tl.float32)
        product = tl.zeros((ROWS, WIDTH), tl.float32)
        for step in range(0, tl.num_programs(0), ROWS):
            _, at, inside = _locate_pieces(step, 2 * parts * channels, c, channels, ROWS)
            at += p * channels
            total += tl.load(pieces + at, inside, 0.0, cache_modifier=".cg")
            product += tl.load(pieces + parts * channels + at, inside, 0.0, cache_modifier=".cg")
        tl.store(sums + column, tl.sum(total, 0), known)
        tl.store(sums + parts * channels + column, tl.sum(product, 0), known)


@triton.jit(do_not_specialize=["rows"])
def norm_act_back_kernel(
    g, x, out, mean, rstd, gain, sums, d_x, m, rows, channels, KEEP: tl.constexpr, ACT: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    p, parts = tl.program_id(2), tl.num_programs(2)
    c, at, inside = _locate_tile(p, rows, channels, ROWS, WIDTH)
    known, column = c < channels, p * channels + c
    value = tl.load(g + at, inside, 0.0).to(tl.float32)
    if ACT > 0:
        value = mask_gradient(value, tl.load(out + at, inside, 0.0).to(tl.float32), ACT)
    if KEEP:
        tl.store(m + at, value, inside)
    back = tl.load(rstd + column, known)
    normal = (tl.load(x + at, inside).to(tl.float32) - tl.load(mean + column, known)[None, :]) * back[None, :]
    level = tl.load(sums + column, known) / rows
    slope = tl.load(sums + parts * channels + column, known) / rows
    scale = back * tl.load(gain + c, known)
    tl.store(d_x + at, (value - level[None, :] - normal * slope[None, :]) * scale[None, :], inside)


# ---------------------------------------------------------------------------- launching


def fold(
    w: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the weights times gain / sqrt(var + eps) by output channel, in `dtype`, and the shift left to add.

    Weights of a depthwise convolution are laid out as its kernels read them.
    """
    shift, length = torch.empty_like(gain), w.numel() // w.shape[0]
    if has_depthwise_shape(w):
        out, across, apart = make_laid_out_by_position(w, dtype), 1, w.shape[0]
    else:
        out, across, apart = torch.empty_like(w, dtype=dtype), length, 1
    line = _choose_line(length)
    fold_kernel[(w.shape[0],)](w, gain, offset, mean, var, out, shift, length, across, apart, eps, line)
    return out, shift


def fold_back(
    d: Tensor, pieces: Tensor, w: Tensor, gain: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the weights, the gain and the offset.

    pieces: (piece, channel) the gradient of the shift, still to be summed.
    """
    d_w, d_gain, d_offset = torch.empty_like(w), torch.empty_like(gain), torch.empty_like(gain)
    length, count = w.numel() // w.shape[0], len(pieces)
    size = _choose_piece_count(count)
    fold_back_kernel[(w.shape[0],)](
        d, pieces, w, gain, mean, var, d_w, d_gain, d_offset, length, count, eps, size, _choose_line(length)
    )
    return d_w, d_gain, d_offset


def shift_act(y: Tensor, shift: Tensor, rest: Tensor | None, act: int, out: Tensor | None = None) -> Tensor:
    """act(y + shift + rest), written over y, or into `out`."""
    out = y if out is None else out
    rows, channels = y.numel() // y.shape[1], y.shape[1]
    tile, grid = choose_tiles(rows, channels)
    adds = rest is not None
    shift_act_kernel[grid](y, shift, rest if adds else y, out, rows, channels, adds, act, *tile, num_warps=WARPS)
    return out


def shift_pass(t: Tensor, shift: Tensor, out: Tensor, act: int) -> Tensor:
    """Return the part of t + shift that the activation with this output lets pass."""
    rows, channels = t.numel() // t.shape[1], t.shape[1]
    tile, grid = choose_tiles(rows, channels)
    passed = torch.empty_like(t)
    shift_pass_kernel[grid](t, shift.contiguous(), out, passed, rows, channels, act, *tile, num_warps=WARPS)
    return passed


def shift_act_back(g: Tensor, out: Tensor, act: int) -> tuple[Tensor, Tensor]:
    """Return the gradient of y, which is also that of `rest`, and that of the shift in pieces (piece, channel)."""
    rows, channels = g.numel() // g.shape[1], g.shape[1]
    tile, grid, per = _choose_stretches(rows, channels)
    m = torch.empty_like(g) if act != NONE else g
    pieces = g.new_empty((grid[0], channels), dtype=torch.float32)
    shift_act_back_kernel[grid](g, out, m, pieces, rows, channels, per, act, *tile, num_warps=WARPS)
    return m, pieces


def norm_act(
    x: Tensor, gain: Tensor, offset: Tensor, rest: Tensor | None, parts: int, eps: float, act: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return act(normalized x * gain + offset + rest), and the mean and 1 / standard deviation (part, channel).

    Each part of the batch is normalized by its own statistics.
    """
    channels = x.shape[1]
    rows = x.numel() // channels // parts
    tile, grid, per = _choose_stretches(rows, channels, parts, MERGED)
    means, squares = (x.new_empty((parts, grid[0], channels), dtype=torch.float32) for _ in range(2))
    mean, rstd = (x.new_empty((parts, channels), dtype=torch.float32) for _ in range(2))
    cells = (*grid, parts)
    moments_kernel[cells](
        x, means, squares, _get_counters(x), mean, rstd, rows, channels, per, eps, *tile, num_warps=WARPS
    )
    out, adds = torch.empty_like(x), rest is not None
    tile, grid = choose_tiles(rows, channels)
    cells = (*grid, parts)
    norm_act_kernel[cells](
        x, mean, rstd, gain, offset, rest if adds else x, out, rows, channels, adds, act, *tile, num_warps=WARPS
    )
    return out, mean, rstd


def norm_act_back(
    g: Tensor, x: Tensor, out: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, act: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, gain, offset and, if `keep`, of `rest`."""
    parts, channels = mean.shape
    rows = x.numel() // channels // parts
    tile, grid, per = _choose_stretches(rows, channels, parts, MERGED)
    pieces = g.new_empty((grid[0], 2, parts, channels), dtype=torch.float32)
    sums = torch.empty_like(pieces[0])
    cells = (*grid, parts)
    norm_act_sums_kernel[cells](
        g, x, out, mean, rstd, pieces, _get_counters(x), sums, rows, channels, per, act, *tile, num_warps=WARPS
    )
    d_x = torch.empty_like(x)
    masked = keep and act != NONE
    m = torch.empty_like(g) if masked else g
    tile, grid = choose_tiles(rows, channels)
    cells = (*grid, parts)
    norm_act_back_kernel[cells](
        g, x, out, mean, rstd, gain, sums, d_x, m, rows, channels, masked, act, *tile, num_warps=WARPS
    )
    d_offset, d_gain = sums.sum(1) if parts > 1 else sums.squeeze(1)
    return d_x, d_gain, d_offset, m


def _get_counters(x: Tensor) -> Tensor:
    """Return the counters of finished programs. They are zero between kernels: each kernel resets those it uses.

    There are enough for all columns of programs that have more than one program.
    """
    # Kernels that may run at the same time must not share counters. Each stream has its own. Recorded graphs have
    # another set, since they are replayed on any stream, though never two at a time. That set is allocated with the
    # first stream's, before any graph is recorded: allocated during a recording, it would be zero only once that graph
    # has run, and usable by that graph alone.
    zeros = partial(torch.zeros, PROGRAMS // 2, dtype=torch.int32, device=x.device)
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        counters = _counters.get((x.device, None))
        return zeros() if counters is None else counters
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    if (x.device, stream) not in _counters:
        _counters.setdefault((x.device, None), zeros())
        _counters.setdefault((x.device, stream), zeros())
    return _counters[x.device, stream]


def _choose_line(length: int) -> int:
    """Choose how many weights to read at a time: a depthwise convolution has few per channel."""
    return 32 if length <= 32 else 1024


def _choose_piece_count(count: int) -> int:
    """Choose a power of two of at least `count`, out of two: each is a variant to compile."""
    return 32 if count <= 32 else MOST_PIECES


def _choose_width(channels: int) -> int:
    """Choose the width of a tile: the widest power of two that leaves little of it empty.

    Up to 256 channels one that holds them all is better than a narrow one, which reads memory at half its speed.
    """
    if channels <= 128:
        return int(triton.next_power_of_2(channels))
    fits = (w for w in (128, 64) if triton.cdiv(channels, w) * w <= 1.2 * channels)
    return next(fits, 256 if channels <= 256 else 32)


def choose_tiles(
    rows: int, channels: int, widest: int = 256, entries: int | None = None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Choose the shape of a tile of so many entries (TILE), and count the tiles over rows and channels."""
    width = min(widest, _choose_width(channels))
    tall = (entries or TILE) // width
    return (tall, width), (triton.cdiv(rows, tall), triton.cdiv(channels, width))


def _choose_stretches(
    rows: int, channels: int, parts: int = 1, widest: int = 256
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Choose the shape of a tile, the numbers of programs over rows and channels, and the rows per program."""
    (tall, width), (down, across) = choose_tiles(rows, channels, widest)
    count = max(1, min(down, PROGRAMS // (across * parts)))
    per = triton.cdiv(down, count) * tall
    return (tall, width), (triton.cdiv(rows, per), across), per
