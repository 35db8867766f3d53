"""Launch the kernels of depthwise convolutions. All tensors lie in memory as (image, height, width, channel)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from seqdg.kernels import triton_depthwise as kernels
from seqdg.kernels.geometry import Depthwise, lay_out_by_place
from seqdg.kernels.launch import MOST_PIECES

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
    x: Tensor, w: Tensor, shape: Depthwise, shift: Tensor | None = None, rest: Tensor | None = None, act: int = 0,
    tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    """act(w * x + shift + rest)"""
    images, channels, height, width = x.shape
    columns, width_, ahead, warps = tile or TILES[shape.size]
    out = _make_images((images, channels, shape.down, shape.along), x)
    blocks, tiles = triton.cdiv(channels, width_), triton.cdiv(images * shape.along, columns)
    tall = _choose_rows(shape.down, PROGRAMS[shape.size] // (blocks * tiles))
    sizes = (images * shape.along, height, width, shape.down, shape.along, shape.top, shape.left, tall, channels)
    shifts, adds = shift is not None, rest is not None
    kernels.convolve[(blocks, triton.cdiv(shape.down, tall), tiles)](
        x, lay_out_by_place(w), shift if shifts else x, rest if adds else x, out, *sizes, shape.size, shape.stride,
        shifts, adds, act, columns, width_, ahead, num_warps=warps,
    )  # fmt: skip
    return out


def differentiate_input(
    g: Tensor, w: Tensor, size: tuple[int, int], shape: Depthwise, tile: Tile | None = None
) -> Tensor:
    """Return the gradient of the input, of this height and width."""
    return _launch_differentiate_input(g, w, None, 0, size, shape, tile)[0]


def differentiate_activated_input(
    g: Tensor, w: Tensor, x: Tensor, act: int, shape: Depthwise, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradient of what the activation that gave the input x was applied to, and its sum over all rows in
    pieces (piece, channel)."""
    return _launch_differentiate_input(g, w, x, act, (x.shape[2], x.shape[3]), shape, tile)


def _launch_differentiate_input(
    g: Tensor, w: Tensor, x: Tensor | None, act: int, size: tuple[int, int], shape: Depthwise, tile: Tile | None
) -> tuple[Tensor, Tensor]:
    images, channels = g.shape[:2]
    columns, width_, ahead, warps = tile or TILES[shape.size]
    d_x = _make_images((images, channels, *size), g)
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
    kernels.differentiate_input[(blocks, stripes, tiles)](
        g, lay_out_by_place(w), g if x is None else x, d_x, pieces, *sizes, shape.size, shape.stride, act, columns,
        width_, ahead, num_warps=warps,
        **({"maxnreg": REGISTERS[shape.size]} if limited else {}),
    )  # fmt: skip
    return d_x, pieces if len(pieces) <= MOST_PIECES else pieces.sum(0, keepdim=True)


def differentiate_weights(g: Tensor, x: Tensor, shape: Depthwise, tile: Tile | None = None) -> Tensor:
    """Return the gradient of the weights, in single precision."""
    images, channels, height, width = x.shape
    columns, width_, ahead, warps = tile or TILES[shape.size]
    blocks, tiles = triton.cdiv(channels, width_), triton.cdiv(images * shape.along, columns)
    count = max(1, SUMMING[shape.size] // blocks)
    tall = _choose_rows(shape.down, UNITS * count // tiles)
    units = tiles * triton.cdiv(shape.down, tall)
    per = triton.cdiv(units, count)
    pieces = g.new_empty((triton.cdiv(units, per), channels, 1, shape.size, shape.size), dtype=torch.float32)
    sizes = (images * shape.along, height, width, shape.down, shape.along, shape.top, shape.left, tall, units, per)
    kernels.differentiate_weights[(blocks, len(pieces))](
        g, x, pieces, *sizes, channels, shape.size, shape.stride, columns, width_, ahead, num_warps=warps
    )
    return pieces.sum(0)


def _make_images(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _choose_rows(rows: int, walks: int) -> int:
    """Choose how many rows a walk has, if there shall be so many walks, one below the other."""
    return int(triton.cdiv(rows, max(1, min(walks, rows // SHORTEST))))
