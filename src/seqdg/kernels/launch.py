"""Launch the kernels: choose tile shapes and the number of programs, and allocate the outputs."""

from __future__ import annotations

from functools import partial

import torch
import triton
from torch import Tensor

from seqdg.kernels import triton_convolution as kernels
from seqdg.kernels import triton_pooling as pooling
from seqdg.kernels.geometry import has_depthwise_shape, make_laid_out_by_place
from seqdg.kernels.window import Window

NONE, RELU, RELU6 = range(3)
TILE = 4096  # entries that a program handles at a time
POOLED = 2048  # of max pooling, which reads several entries for each
WARPS = 8  # per program
PROGRAMS = 264  # at most, of a kernel that sums: two for each processor of a large GPU
MOST_PIECES = 512  # of the gradient of a shift, that `fold_back` sums
MERGED = 32  # most channels of a program that may have to merge; half as many channels leave a quarter as much to read
Pair = tuple[Tensor, Tensor]
_counters: dict[tuple[torch.device, int | None], Tensor] = {}  # by device and stream; None: those of graphs


def fold(
    w: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the weights times gain / sqrt(var + eps) by output channel, in `dtype`, and the shift left to add.

    Weights of a depthwise convolution are laid out as its kernels read them.
    """
    shift, length = torch.empty_like(gain), w.numel() // w.shape[0]
    if has_depthwise_shape(w):
        out, across, apart = make_laid_out_by_place(w, dtype), 1, w.shape[0]
    else:
        out, across, apart = torch.empty_like(w, dtype=dtype), length, 1
    line = _choose_line(length)
    kernels.fold[(w.shape[0],)](w, gain, offset, mean, var, out, shift, length, across, apart, eps, line)
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
    kernels.fold_back[(w.shape[0],)](
        d, pieces, w, gain, mean, var, d_w, d_gain, d_offset, length, count, eps, size, _choose_line(length)
    )
    return d_w, d_gain, d_offset


def shift_act(y: Tensor, shift: Tensor, rest: Tensor | None, act: int, out: Tensor | None = None) -> Tensor:
    """act(y + shift + rest), written over y, or into `out`."""
    out = y if out is None else out
    rows, channels = y.numel() // y.shape[1], y.shape[1]
    tile, grid = _choose_tiles(rows, channels)
    adds = rest is not None
    kernels.shift_act[grid](y, shift, rest if adds else y, out, rows, channels, adds, act, *tile, num_warps=WARPS)
    return out


def shift_pass(t: Tensor, shift: Tensor, out: Tensor, act: int) -> Tensor:
    """Return the part of t + shift that the activation with this output lets pass."""
    rows, channels = t.numel() // t.shape[1], t.shape[1]
    tile, grid = _choose_tiles(rows, channels)
    passed = torch.empty_like(t)
    kernels.shift_pass[grid](t, shift.contiguous(), out, passed, rows, channels, act, *tile, num_warps=WARPS)
    return passed


def shift_act_back(g: Tensor, out: Tensor, act: int) -> Pair:
    """Return the gradient of y, which is also that of `rest`, and that of the shift in pieces (piece, channel)."""
    rows, channels = g.numel() // g.shape[1], g.shape[1]
    tile, grid, per = _choose_stretches(rows, channels)
    m = torch.empty_like(g) if act != NONE else g
    pieces = g.new_empty((grid[0], channels), dtype=torch.float32)
    kernels.shift_act_back[grid](g, out, m, pieces, rows, channels, per, act, *tile, num_warps=WARPS)
    return m, pieces


def pool(x: Tensor, window: Window) -> Pair:
    """Return the largest number of every window, and its place in the window (a byte)."""
    images, channels, height, width = x.shape
    down, along = window.count(height), window.count(width)
    out, places = (_make_images((images, channels, down, along), dtype, x) for dtype in (x.dtype, torch.uint8))
    sizes = (images * down * along, height, width, down, along, channels)
    tile, grid = _choose_tiles(sizes[0], channels, entries=POOLED)
    pooling.pool[grid](x, out, places, *sizes, *window[:3], *tile, num_warps=WARPS)
    return out, places


def pool_back(g: Tensor, places: Tensor, size: tuple[int, int], window: Window) -> Tensor:
    """Return the gradient of the images, of this height and width, whose windows were pooled."""
    images, channels, down, along = g.shape
    d_x = _make_images((images, channels, *size), g.dtype, g)
    sizes = (images * size[0] * size[1], *size, down, along, channels)
    tile, grid = _choose_tiles(sizes[0], channels, entries=POOLED)
    pooling.pool_back[grid](g, places, d_x, *sizes, *window[:3], *tile, num_warps=WARPS)
    return d_x


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
    kernels.moments[cells](
        x, means, squares, _get_counters(x), mean, rstd, rows, channels, per, eps, *tile, num_warps=WARPS
    )
    out, adds = torch.empty_like(x), rest is not None
    tile, grid = _choose_tiles(rows, channels)
    cells = (*grid, parts)
    kernels.norm_act[cells](
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
    kernels.norm_act_sums[cells](
        g, x, out, mean, rstd, pieces, _get_counters(x), sums, rows, channels, per, act, *tile, num_warps=WARPS
    )
    d_x = torch.empty_like(x)
    masked = keep and act != NONE
    m = torch.empty_like(g) if masked else g
    tile, grid = _choose_tiles(rows, channels)
    cells = (*grid, parts)
    kernels.norm_act_back[cells](
        g, x, out, mean, rstd, gain, sums, d_x, m, rows, channels, masked, act, *tile, num_warps=WARPS
    )
    d_offset, d_gain = sums.sum(1) if parts > 1 else sums.squeeze(1)
    return d_x, d_gain, d_offset, m


def _make_images(shape: tuple[int, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device, memory_format=torch.channels_last)


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


def _choose_tiles(
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
    (tall, width), (down, across) = _choose_tiles(rows, channels, widest)
    count = max(1, min(down, PROGRAMS // (across * parts)))
    per = triton.cdiv(down, count) * tall
    return (tall, width), (triton.cdiv(rows, per), across), per
