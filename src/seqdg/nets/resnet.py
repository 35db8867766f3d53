"""ResNet-18 and ResNet-50 (He et al., CVPR 2016) under torchvision's parameter names, so that its weight files load.

As in torchvision, a bottleneck that halves the resolution does so in its 3x3 convolution ("ResNet v1.5"); that of
`resnet50_v1` does so in its first 1x1 convolution, as in the paper and in Keras. No layer works in place: `torch.func`
keeps every intermediate value.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqdg.nets.points import Point


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return F.relu(x + shortcut)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, beside a shortcut; four times as wide outside as inside."""

    expansion = 4
    strides_first = False  # whether the first convolution halves the resolution, and not the second

    def __init__(self, inputs: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        first, second = (stride, 1) if self.strides_first else (1, stride)
        self.conv1 = nn.Conv2d(inputs, width, 1, stride=first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return F.relu(x + shortcut)


class FirstBottleneck(Bottleneck):
    """The bottleneck of the paper: its first 1x1 convolution halves the resolution."""

    strides_first = True


class ResNet(nn.Module):
    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        classes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _make_layer(block, 64, 64, depths[0], stride=1)
        self.layer2 = _make_layer(block, 64 * block.expansion, 128, depths[1], stride=2)
        self.layer3 = _make_layer(block, 128 * block.expansion, 256, depths[2], stride=2)
        self.layer4 = _make_layer(block, 256 * block.expansion, 512, depths[3], stride=2)
        self.after1, self.after2, self.after3, self.after4 = (Point(f"after{i}") for i in range(1, 5))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(512 * block.expansion, classes)

    def forward(self, x: Tensor) -> Tensor:  # (batch, 3, height, width)
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.after2(self.layer2(self.after1(self.layer1(x))))
        x = self.after4(self.layer4(self.after3(self.layer3(x))))
        logits: Tensor = self.fc(self.dropout(torch.mean(x, (-2, -1))))
        return logits


def _make_layer(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    """Make `depth` blocks, the first of which changes the resolution and the width."""
    outputs = width * block.expansion
    downsample: nn.Module | None = None
    if stride != 1 or inputs != outputs:
        downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
    first = block(inputs, width, stride, downsample)
    return nn.Sequential(first, *(block(outputs, width, 1, None) for _ in range(depth - 1)))


def resnet18(classes: int, dropout: float = 0.0) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), classes, dropout)


def resnet50(classes: int, dropout: float = 0.0) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, dropout)


def resnet50_v1(classes: int, dropout: float = 0.0) -> ResNet:
    return ResNet(FirstBottleneck, (3, 4, 6, 3), classes, dropout)
