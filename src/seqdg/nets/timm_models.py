"""Models of the package timm, changed so that `Net` can use them: nothing works in place, BatchNorm does only that."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from seqdg.base import UsageError, private
from seqdg.nets.normalization import IMAGENET, Normalization

PREFIX = "timm:"


def create_model(
    name: str, classes: int, pretrained: bool, generator: torch.Generator, dropout: float = 0.0
) -> nn.Module:
    """Create the model as timm has it. With `pretrained`, timm fetches the model's weights."""
    timm = _import_timm(name)
    model = name.removeprefix(PREFIX)
    if not timm.is_model(model):
        near = difflib.get_close_matches(model, timm.list_models(), n=3)
        hint = f"Did you mean: {', '.join(near)}?" if near else "timm.list_models() has them all."
        raise UsageError(f"timm has no model '{model}'. {hint}")
    with _seed_global_state(generator):
        more = {"drop_rate": dropout} if dropout else {}
        module: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=classes, **more)
    return module


def read_normalization(module: nn.Module) -> Normalization:
    settings: dict[str, Any] = getattr(module, "pretrained_cfg", {})
    return Normalization(tuple(settings.get("mean", IMAGENET.mean)), tuple(settings.get("std", IMAGENET.std)))


def purify_model(module: nn.Module) -> None:
    """Stop layers from working in place, and split timm's BatchNorms with an activation into the two."""
    for name, layer in list(module.named_modules()):
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010 - not every module declares it
        act = getattr(layer, "act", None)
        if isinstance(layer, private.BatchNormLayer) and isinstance(act, nn.Module):
            plain = nn.BatchNorm2d(layer.num_features, eps=layer.eps, affine=layer.affine)
            plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k in plain.state_dict()})
            module.set_submodule(name, nn.Sequential(OrderedDict(norm=plain, act=act)))


def _import_timm(name: str) -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"The net {name} needs the package timm, which cannot be imported ({error}). "
            "Run: pip install timm (it brings torchvision, which must be the one made for your torch)."
        ) from None
    return timm


@contextmanager
def _seed_global_state(generator: torch.Generator) -> Iterator[None]:
    """Seed torch's global random state, from which timm draws weights, by the generator; restore it at the end."""
    before = torch.get_rng_state()
    seed = int(torch.randint(2**62, (), generator=generator))
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
