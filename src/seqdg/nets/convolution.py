"""Convolution with TensorFlow's "SAME" padding."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import conv2d, pad


class SameConv2d(nn.Conv2d):
    """An odd pixel of padding goes below and to the right."""

    def forward(self, x: Tensor) -> Tensor:
        x, padding = same_padding(x, self.weight, self.stride)
        return conv2d(x, self.weight, self.bias, self.stride, padding, groups=self.groups)


def same_padding(x: Tensor, weight: Tensor, stride: tuple[int, ...]) -> tuple[Tensor, tuple[int, int]]:
    """What is left to pad on both sides, and the input, padded where one side needs more."""
    top, bottom = _same(x.shape[-2], weight.shape[-2], stride[0])
    left, right = _same(x.shape[-1], weight.shape[-1], stride[1])
    if top == bottom and left == right:
        return x, (top, left)
    return pad(x, (left, right, top, bottom)), (0, 0)


def _same(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Padding before and after, such that the output has ceil(length / stride) values."""
    outputs = -(-length // stride)
    total = max((outputs - 1) * stride + kernel - length, 0)
    return total // 2, total - total // 2
