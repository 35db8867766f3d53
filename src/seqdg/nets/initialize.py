"""First weights drawn from a given generator: torch's own rules, without its global random state."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from seqdg.base.errors import UsageError


def initialized(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """The module that `make` gives, with the weights that torch would draw were its global state the generator's.

    Layers are built without storage first, so that nothing is drawn from the global random state.
    """
    with torch.device("meta"):
        module = make()
    module = module.to_empty(device="cpu")
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear | _ConvNd):
            _fill(layer, generator)
        elif isinstance(layer, _BatchNorm):
            layer.reset_parameters()
        elif any(True for _ in layer.parameters(recurse=False)) or any(True for _ in layer.buffers(recurse=False)):
            raise UsageError(
                f"The layer {name} is a {type(layer).__name__}, whose first weights cannot be drawn here. "
                "Build the net of Linear, Conv and BatchNorm layers."
            )
    return module


def _fill(layer: nn.Linear | _ConvNd, generator: torch.Generator) -> None:
    """Weights and biases uniform within ±1/√(inputs of one unit), as torch's `reset_parameters` has them."""
    bound = 1.0 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)
