"""Build a net from its name and settings, as benchmark files give them: an mlp, a convnet, any known backbone, or what
a function of the user's own returns."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqdg.base import (
    UsageError,
    added_field,
    check_memory,
    hash_own_code,
    import_function,
    private,
    state_reason,
    unknown,
)
from seqdg.nets.backbones import BACKBONES, TEXTS, Backbone, Normalization, convnet, mlp
from seqdg.nets.foreign_models import PREFIXES, RECIPES, find_foreign
from seqdg.nets.weights import find_kept_file, initialize, load_weights

BACKBONE_NAMES = (*BACKBONES, *RECIPES)
NET_NAMES = ("mlp", "convnet", *BACKBONES)
# Where the weights of a backbone may lie already: as timm and transformers fetch them, and as torch.hub does.
FILES_AT_HAND = {"dinov2-small": ("timm/vit_small_patch14_dinov2.lvd142m", "dinov2_vits14_pretrain.pth")}
FOREIGN = ("domainbed",)  # nets that another project builds, with settings of its own


def is_backbone(name: str) -> bool:
    """Whether a backbone may be called so; only building one of another package shows whether that has it."""
    return name in BACKBONE_NAMES or name.startswith(PREFIXES)


@cache
def find_backbone(name: str) -> Backbone:
    """Return what is known of a backbone, or raise a UsageError that says what to install or which names there are."""
    if name in BACKBONES:
        return BACKBONES[name]
    if is_backbone(name):
        return find_foreign(name)
    raise unknown("backbone", name, (*BACKBONE_NAMES, *(f"{prefix}NAME" for prefix in PREFIXES)))


def find_weights(backbone: Backbone) -> Path:
    """Return the weight file of a backbone that is installed or on the hub."""
    if backbone.find_weights is None:
        raise UsageError(
            f"{backbone.name} is to start from ImageNet weights, and none are installed. "
            f"Give its weight file ({backbone.public_weights}) with --weights FILE."
        )
    try:
        return backbone.find_weights()
    except UsageError as error:
        if backbone.name in RECIPES and backbone.public_weights:
            raise UsageError(f"{error} It is {backbone.public_weights}.") from None
        raise


def find_weights_at_hand(name: str) -> Path | None:
    """Return the weight file of one of `RECIPES` if it is on this machine, where its package or torch keeps files."""
    repository, file = FILES_AT_HAND[name]
    if (kept := find_kept_file(repository)) is not None:
        return kept
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    return folder / file if (folder / file).is_file() else None


def is_from_package(name: str) -> bool:
    """Whether a net is a model of another package, such as timm's."""
    return name in RECIPES or name.startswith(PREFIXES)


def is_own_net(name: str) -> bool:
    """Say whether the name is that of a function of the user's: FILE.py:FUNCTION or package.module:FUNCTION."""
    return ":" in name and not name.startswith(PREFIXES)


def shorten_net(name: str) -> str:
    """Drop the folder of the file that a net's function is in: `./nets/mine.py:build` is `mine.py:build`."""
    return re.split(r"[/\\]", name)[-1] if is_own_net(name) else name


@dataclass(frozen=True)
class NetSpec:
    """What a benchmark file says about its net.

    name: one of `NET_NAMES`, or any other backbone (`dinov2-small`, `timm:NAME`, `hf:NAME`,
        `open_clip:NAME`), or a function of the user's own as `is_own_net` knows it; `domainbed` where a class of
        DomainBed builds it.
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
        if self.name not in (*NET_NAMES, *FOREIGN) and not is_backbone(self.name) and not own:
            raise unknown(
                "net",
                self.name,
                ("mlp", "convnet", *BACKBONE_NAMES, *(f"{p}NAME" for p in PREFIXES), "FILE.py:FUNCTION"),
            )
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
            f"{', '.join(NET_NAMES)}, timm:NAME."
        )
    if is_own_net(spec.name):
        return _build_own(spec, input_shape, classes, generator)
    if spec.name not in ("mlp", "convnet"):
        return build_backbone(find_backbone(spec.name), spec, input_shape, classes, generator)

    def make() -> nn.Module:
        if spec.name == "convnet":
            return convnet(input_shape, classes, spec.dropout)
        widths = (math.prod(input_shape), *spec.hidden, classes)
        check_memory(4 * sum(a * b for a, b in pairwise(widths)), f"An mlp of {list(spec.hidden)} hidden units")
        return mlp(math.prod(input_shape), spec.hidden, classes, spec.batchnorm, spec.dropout)

    module = initialize(make, generator)
    digest = None if spec.weights is None else load_weights(module, spec.weights)
    return BuiltNet(module, Normalization(), digest)


def build_backbone(
    backbone: Backbone, spec: NetSpec, input_shape: tuple[int, ...], classes: int, generator: torch.Generator
) -> BuiltNet:
    """Build a backbone and its first weights. classes: 0 for one without a head, which gives features."""
    _check_inputs(backbone, input_shape)
    path = spec.weights if spec.weights is not None or not spec.pretrained else find_weights(backbone)
    if backbone.draws:
        with _lend_generator(generator):
            module = backbone.make(input_shape, classes, spec.dropout)
    else:
        module = initialize(lambda: backbone.make(input_shape, classes, spec.dropout), generator)
    digest = None
    if path is not None and backbone.load is not None:
        digest = backbone.load(module, path)
    elif path is not None:
        digest = load_weights(module, path, backbone.adapt, backbone.head or None)
    if backbone.draws:
        purify_model(module)  # after loading: it renames
    return BuiltNet(module, backbone.normalization, digest)


def _check_inputs(backbone: Backbone, shape: tuple[int, ...]) -> None:
    name, smallest = backbone.name, backbone.smallest
    if backbone.reads == TEXTS:
        if len(shape) != 1:
            raise UsageError(f"{name} reads texts, and these inputs are {shape}: name a net for them.")
        return
    if len(shape) != 3 or shape[0] != 3:
        raise UsageError(f"{name} reads images (3, height, width), and these inputs are {shape}. Use an mlp for them.")
    if min(shape[1:]) < smallest:
        raise UsageError(f"{name} reads images of at least {smallest} pixels a side, and these are {shape[1:]}.")


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
        raise UsageError(
            f"{spec.name}, called as {spec.name.rpartition(':')[2]}({input_shape}, {classes}), raises "
            f"{type(error).__name__}: {state_reason(error)}"
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
