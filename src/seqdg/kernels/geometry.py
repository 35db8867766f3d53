"""How convolutions and windows move over images, and how images and weights lie in memory.

`Depthwise` and `Window` are the depthwise convolutions and the windows of max pooling that have kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

NONE, RELU, RELU6 = range(3)  # activations
Geometry = tuple[Any, Any, Any, int]  # stride, padding (or "same", TensorFlow's), dilation, groups
SIZES, STRIDES = (3, 5, 7), (1, 2)  # of depthwise convolutions that have kernels
LARGEST = 5  # side of a window: the kernels are written out for every position in it
MOST_COLUMNS = 500_000  # of all images together: a grid of programs has a limit


class Depthwise(NamedTuple):
    """A convolution of each channel by itself, with a square kernel, and the size of its output.

    There is as much padding below and to the right as that size asks for.
    """

    size: int
    stride: int
    top: int
    left: int
    down: int
    along: int


def pad_same(x: Tensor, weight: Tensor, geometry: Geometry) -> tuple[Tensor, Geometry]:
    """Return the input and a geometry with numbers for a padding; where one side needs more, pad the input instead."""
    stride, padding, dilation, groups = geometry
    if padding != "same":
        return x, geometry
    height, width = (d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation, strict=True))  # of the kernel, spread
    top, bottom = split_padding(x.shape[-2], height, stride[0])
    left, right = split_padding(x.shape[-1], width, stride[1])
    if top == bottom and left == right:
        return x, (stride, (top, left), dilation, groups)
    return pad(x, (left, right, top, bottom)), (stride, (0, 0), dilation, groups)


def split_padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after, such that the output has ceil(length / stride) values."""
    outputs = -(-length // stride)
    total = max((outputs - 1) * stride + kernel - length, 0)
    return total // 2, total - total // 2


def measure_output(x: Tensor, weight: Tensor, geometry: Geometry) -> tuple[int, int]:
    """Return height and width of what a convolution gives; its padding has numbers."""
    sides = zip(x.shape[2:], weight.shape[2:], *geometry[:3], strict=True)
    height, width = (
        (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for n, k, stride, padding, dilation in sides
    )
    return height, width


def find_depthwise(x: Tensor, weight: Tensor, geometry: Geometry) -> Depthwise | None:
    """Return the convolution as the depthwise kernels take it, or None where they do not."""
    stride, padding, dilation, groups = geometry
    if not (has_depthwise_shape(weight) and groups == x.shape[1] == weight.shape[0] and set(dilation) == {1}):
        return None
    size, step, lengths = weight.shape[-1], stride[0], x.shape[2:]
    if set(stride) != {step} or step not in STRIDES:
        return None
    if padding == "same":
        (top, _), (left, _) = (split_padding(n, size, step) for n in lengths)
        down, along = (-(-n // step) for n in lengths)
    else:
        top, left = padding
        down, along = measure_output(x, weight, geometry)
    if min(len(x), down, along) < 1 or max(top, left) >= size:
        return None
    if len(x) * max(along, lengths[1]) > MOST_COLUMNS or len(x) * groups * down * along >= 2**31:
        return None
    return Depthwise(size, step, top, left, down, along)


def has_depthwise_shape(weight: Tensor) -> bool:
    return weight.shape[1] == 1 and weight.shape[2] == weight.shape[3] and weight.shape[2] in SIZES


def lay_out_by_position(weight: Tensor) -> Tensor:
    """Lay depthwise weights out in memory as (row, column, channel), the shape unchanged."""
    return weight.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)


def make_laid_out_by_position(weight: Tensor, dtype: torch.dtype) -> Tensor:
    channels, _, height, width = weight.shape
    return weight.new_empty((height, width, 1, channels), dtype=dtype).permute(3, 2, 0, 1)


class Window(NamedTuple):
    """A square window that moves over an image.

    ceil: the last window of a row or a column may reach beyond the padding, if it begins before.
    """

    size: int
    stride: int
    padding: int
    ceil: bool

    def count(self, length: int) -> int:
        """Count the windows along a side of an image."""
        room = length + 2 * self.padding - self.size
        count = (room + (self.stride - 1) * self.ceil) // self.stride + 1
        if self.ceil and (count - 1) * self.stride >= length + self.padding:
            count -= 1
        if count < 1:
            raise RuntimeError(f"A window of {self.size} does not fit into {length} + 2 x {self.padding} positions.")
        return count


def make_window(size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Window | None:
    """Return the window, or None where the kernels do not cover it: not square, dilated, or large."""
    sides = [set(s) if isinstance(s, (tuple, list)) else {s} for s in (size, stride, padding, dilation)]
    if any(len(side) != 1 for side in sides):
        return None
    size, stride, padding, dilation = (side.pop() for side in sides)
    if dilation != 1 or size > LARGEST or 2 * padding > size:
        return None
    return Window(size, stride, padding, ceil)


def to_channels_last(x: Tensor) -> Tensor:
    """Lay the tensor out in memory as (image, height, width, channel)."""
    return x.contiguous(memory_format=torch.channels_last)


def lay_out_like(x: Tensor, like: Tensor) -> Tensor:
    """Lay the tensor out in memory like another of the same shape."""
    if x.is_contiguous(memory_format=torch.channels_last) and like.is_contiguous(memory_format=torch.channels_last):
        return x.as_strided(like.shape, like.stride())  # strides of 1 x 1 weights may differ without meaning anything
    return x if x.stride() == like.stride() else torch.empty_like(like, dtype=x.dtype).copy_(x)


def make_images(shape: tuple[int, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device, memory_format=torch.channels_last)
