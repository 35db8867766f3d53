"""The gradient of each domain's loss, side by side, and what is made of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params, tree
from seqdg.nets import Net


def compute_gradients(net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
    """Return (domain, ...) the gradient of each domain's loss by name, and (domain,) the losses."""
    # One by one: products of stacks of matrices would give gradients whose order in memory is not that of the weights.
    each = [grad_and_value(net.loss)(params, episode.minibatch(i)) for i in range(episode.domains)]
    return tree.stack([gradient for gradient, _ in each]), torch.stack([loss for _, loss in each])


def measure_agreement(gradients: Tensor) -> Tensor:
    """Return |mean over domains of sign g_i| of gradients (domain, ...): 1 where all domains agree."""
    return torch.sign(gradients).mean(0).abs()


def apply_mask(mask: Tensor, gradients: Tensor) -> Tensor:
    """Return the masked mean of gradients (domain, ...), divided by the mean of the mask."""
    return mask * gradients.mean(0) / (1e-10 + mask.mean())
