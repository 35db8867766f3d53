"""Any model of the package timm, as a net of ours: no work in place, no random draws, BatchNorm by itself."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from seqdg.base.errors import UsageError
from seqdg.nets.normalization import IMAGENET, Normalization

PREFIX = "timm:"


def create(name: str, classes: int, pretrained: bool, generator: torch.Generator) -> nn.Module:
    """The model as timm has it. `pretrained` lets timm fetch the model's own weights."""
    timm = _timm(name)
    model = name.removeprefix(PREFIX)
    if not timm.is_model(model):
        near = difflib.get_close_matches(model, timm.list_models(), n=3)
        hint = f"Did you mean: {', '.join(near)}?" if near else "timm.list_models() has them all."
        raise UsageError(f"timm has no model '{model}'. {hint}")
    with _global_random_state_from(generator):
        module: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=classes)
    return module


def normalization(module: nn.Module) -> Normalization:
    settings: dict[str, Any] = getattr(module, "pretrained_cfg", {})
    return Normalization(tuple(settings.get("mean", IMAGENET.mean)), tuple(settings.get("std", IMAGENET.std)))


def purify(module: nn.Module) -> None:
    """No layer works in place, and every BatchNorm does nothing else: timm has some that apply the activation too."""
    for name, layer in list(module.named_modules()):
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010 - not every module declares it
        act = getattr(layer, "act", None)
        if isinstance(layer, _BatchNorm) and isinstance(act, nn.Module):
            plain = nn.BatchNorm2d(layer.num_features, eps=layer.eps, affine=layer.affine)
            plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k in plain.state_dict()})
            module.set_submodule(name, nn.Sequential(OrderedDict(norm=plain, act=act)))


def _timm(name: str) -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"The net {name} needs the package timm, which cannot be imported ({error}). "
            "Run: pip install timm (it brings torchvision, which must be the one made for your torch)."
        ) from None
    return timm


@contextmanager
def _global_random_state_from(generator: torch.Generator) -> Iterator[None]:
    """timm draws first weights from torch's global state; lend it one that the generator decides, then restore it."""
    before = torch.get_rng_state()
    seed = int(torch.randint(2**62, (), generator=generator))
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
