"""Layers that algorithms add to a net, as entries of the dictionary of weights under a prefix of their own."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.functional import linear as affine

from seqdg.base import Params, UsageError
from seqdg.core import Number
from seqdg.nets import Net


def linear_params(prefix: str, inputs: int, outputs: int, generator: torch.Generator, like: Tensor) -> Params:
    """Draw the first weights of a linear layer by torch's rule, uniform within ±1/√inputs; made like `like`."""
    bound = 1.0 / math.sqrt(inputs)

    def draw(*shape: int) -> Tensor:
        return ((2.0 * torch.rand(*shape, generator=generator) - 1.0) * bound).to(like)

    return {f"{prefix}weight": draw(outputs, inputs), f"{prefix}bias": draw(outputs)}


def linear(params: Params, prefix: str, z: Tensor) -> Tensor:
    return affine(z, params[f"{prefix}weight"], params[f"{prefix}bias"])


def two_layer_params(
    prefix: str, inputs: int, hidden: int, outputs: int, generator: torch.Generator, like: Tensor
) -> Params:
    """Draw the first weights of a net with one hidden layer."""
    return {
        **linear_params(f"{prefix}hidden.", inputs, hidden, generator, like),
        **linear_params(f"{prefix}output.", hidden, outputs, generator, like),
    }


def two_layer(params: Params, prefix: str, z: Tensor) -> Tensor:
    return linear(params, f"{prefix}output.", torch.tanh(linear(params, f"{prefix}hidden.", z)))


def reverse(x: Tensor, factor: Number) -> Tensor:
    """Return x itself, whose gradient is -factor times what arrives (Ganin and Lempitsky's gradient reversal)."""
    return x.detach() + factor * (x.detach() - x)


def label_loss(net: Net, params: Params, z: Tensor, y: Tensor) -> Tensor:
    """Return the label loss of features (domain, batch, feature): the mean over the domains, as in AGG."""
    return net.losses_from_logits(net.head(params, z), y).mean()


def domain_loss(logits: Tensor, domain: Tensor) -> Tensor:
    """Return the mean cross-entropy of (domain, batch, source) logits that name the source of each row."""
    return cross_entropy(logits.flatten(0, 1), domain.repeat_interleave(logits.shape[1]))


def one_hot(y: Tensor, logits: Tensor) -> Tensor:
    """Return (..., class) 1 at each row's label and 0 elsewhere, made like the logits (..., class)."""
    return (y.unsqueeze(-1) == torch.arange(logits.shape[-1], device=y.device)).to(logits.dtype)


def check_features(net: Net, kind: str) -> None:
    """Raise a UsageError where the net has no features below its head."""
    if not net.has_features:
        raise UsageError(
            f"{kind} works on the features that enter the head, but this net learns none: "
            "give it a hidden layer below a linear head, or choose another algorithm, such as agg."
        )


def check_head(net: Net, kind: str) -> None:
    """Raise a UsageError where the net has no head."""
    if not net.head_names:
        raise UsageError(
            f"{kind} works on the features that enter the head, but this net does not end in a linear layer: "
            "end it in one, or choose another algorithm, such as agg."
        )
