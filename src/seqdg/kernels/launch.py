"""Calls of the kernels: shapes of tiles, numbers of programs, memory for what comes out."""

from __future__ import annotations

from functools import partial

import torch
import triton
from torch import Tensor

from seqdg.kernels import triton_convolution as kernels

NONE, RELU, RELU6 = range(3)
TILE = 4096  # entries that a program takes at a time
WARPS = 8  # of such a program
PROGRAMS = 264  # of those that sum: two for each processor of a large GPU
MERGED = 32  # channels, at most, of a program that may have to merge: half as many leave a quarter for it to read
Pair = tuple[Tensor, Tensor]
_kept: dict[tuple[torch.device, int | None], Tensor] = {}  # counters by stream, and those of graphs


def fold(
    w: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Weights times gain / sqrt(var + eps) by output channel, in a type of their own, and the shift that is left."""
    out, shift = torch.empty_like(w, dtype=dtype), torch.empty_like(gain)
    length = w.numel() // w.shape[0]
    kernels.fold[(w.shape[0],)](w, gain, offset, mean, var, out, shift, length, eps, _line(length))
    return out, shift


def fold_back(
    d: Tensor, pieces: Tensor, w: Tensor, gain: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the weights, the gain and the offset; that of the shift comes in pieces (piece, channel)."""
    d_w, d_gain, d_offset = torch.empty_like(w), torch.empty_like(gain), torch.empty_like(gain)
    length, count = w.numel() // w.shape[0], len(pieces)
    size = _pieces(count)
    kernels.fold_back[(w.shape[0],)](
        d, pieces, w, gain, mean, var, d_w, d_gain, d_offset, length, count, eps, size, _line(length)
    )
    return d_w, d_gain, d_offset


def shift_act(y: Tensor, shift: Tensor, rest: Tensor | None, act: int) -> Tensor:
    """act(y + shift + rest), where y was."""
    rows, channels = y.numel() // y.shape[1], y.shape[1]
    tile, grid = _all_tiles(rows, channels)
    adds = rest is not None
    kernels.shift_act[grid](y, shift, rest if adds else y, y, rows, channels, adds, act, *tile, num_warps=WARPS)
    return y


def shift_act_back(g: Tensor, out: Tensor, act: int) -> Pair:
    """The gradients of y (and of what was added to it) and, in pieces (piece, channel), of the shift."""
    rows, channels = g.numel() // g.shape[1], g.shape[1]
    tile, grid, per = _stretches(rows, channels)
    m = torch.empty_like(g) if act != NONE else g
    pieces = g.new_empty((grid[0], channels), dtype=torch.float32)
    kernels.shift_act_back[grid](g, out, m, pieces, rows, channels, per, act, *tile, num_warps=WARPS)
    return m, pieces


def norm_act(
    x: Tensor, gain: Tensor, offset: Tensor, rest: Tensor | None, parts: int, eps: float, act: int
) -> tuple[Tensor, Tensor, Tensor]:
    """act(normalized x * gain + offset + rest), each part by statistics of its own; and these: (part, channel) mean and
    1 / standard deviation."""
    channels = x.shape[1]
    rows = x.numel() // channels // parts
    tile, grid, per = _stretches(rows, channels, parts, MERGED)
    means, squares = (x.new_empty((parts, grid[0], channels), dtype=torch.float32) for _ in range(2))
    mean, rstd = (x.new_empty((parts, channels), dtype=torch.float32) for _ in range(2))
    cells = (*grid, parts)
    kernels.moments[cells](
        x, means, squares, _counters(x), mean, rstd, rows, channels, per, eps, *tile, num_warps=WARPS
    )
    out, adds = torch.empty_like(x), rest is not None
    tile, grid = _all_tiles(rows, channels)
    cells = (*grid, parts)
    kernels.norm_act[cells](
        x, mean, rstd, gain, offset, rest if adds else x, out, rows, channels, adds, act, *tile, num_warps=WARPS
    )
    return out, mean, rstd


def norm_act_back(
    g: Tensor, x: Tensor, out: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, act: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, gain, offset and, where asked for, what was added."""
    parts, channels = mean.shape
    rows = x.numel() // channels // parts
    tile, grid, per = _stretches(rows, channels, parts, MERGED)
    pieces = g.new_empty((grid[0], 2, parts, channels), dtype=torch.float32)
    sums = torch.empty_like(pieces[0])
    cells = (*grid, parts)
    kernels.norm_act_sums[cells](
        g, x, out, mean, rstd, pieces, _counters(x), sums, rows, channels, per, act, *tile, num_warps=WARPS
    )
    d_x = torch.empty_like(x)
    masked = keep and act != NONE
    m = torch.empty_like(g) if masked else g
    tile, grid = _all_tiles(rows, channels)
    cells = (*grid, parts)
    kernels.norm_act_back[cells](
        g, x, out, mean, rstd, gain, sums, d_x, m, rows, channels, masked, act, *tile, num_warps=WARPS
    )
    d_offset, d_gain = sums.sum(1) if parts > 1 else sums.squeeze(1)
    return d_x, d_gain, d_offset, m


def _counters(x: Tensor) -> Tensor:
    """Zeros to count programs by, which every kernel leaves zeros; enough for all columns that have more than one."""
    # Kernels that may run at once must not share them: every stream has its own, and recorded graphs have others, since
    # they are replayed on any stream, though never two at a time. Those are made with the first, so before a graph is
    # recorded: made while one is, they would be zeros only once that graph has run, and right for that graph alone.
    zeros = partial(torch.zeros, PROGRAMS // 2, dtype=torch.int32, device=x.device)
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        kept = _kept.get((x.device, None))
        return zeros() if kept is None else kept
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    if (x.device, stream) not in _kept:
        _kept.setdefault((x.device, None), zeros())
        _kept.setdefault((x.device, stream), zeros())
    return _kept[x.device, stream]


def _line(length: int) -> int:
    """Of weights: those of a convolution of each channel by itself are few."""
    return 32 if length <= 32 else 1024


def _pieces(count: int) -> int:
    """A power of two that holds as many; few different ones, as each is a variant to compile."""
    return 32 if count <= 32 else int(triton.next_power_of_2(PROGRAMS))


def _width(channels: int) -> int:
    """Of a tile: a power of two, the widest that leaves little of it empty."""
    if channels <= 128:
        return int(triton.next_power_of_2(channels))
    return next((w for w in (128, 64) if triton.cdiv(channels, w) * w <= 1.2 * channels), 32)


def _all_tiles(rows: int, channels: int, widest: int = 128) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shape of a tile, and how many there are over rows and channels."""
    width = min(widest, _width(channels))
    tall = TILE // width
    return (tall, width), (triton.cdiv(rows, tall), triton.cdiv(channels, width))


def _stretches(
    rows: int, channels: int, parts: int = 1, widest: int = 128
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Shape of a tile, numbers of programs over rows and channels, and rows of a program that sums."""
    (tall, width), (down, across) = _all_tiles(rows, channels, widest)
    count = max(1, min(down, PROGRAMS // (across * parts)))
    per = triton.cdiv(down, count) * tall
    return (tall, width), (triton.cdiv(rows, per), across), per
