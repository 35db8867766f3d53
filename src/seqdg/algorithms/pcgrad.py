"""PCGrad: gradient surgery. `Sequential` of it is S-PCGrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad, grad_and_value

from seqdg.algorithms._penalties import compute_gradients
from seqdg.base import Episode, Params, tree
from seqdg.core import Chainable, Loss, register
from seqdg.nets import Net

TINY = 1e-30  # a gradient of length 0 conflicts with none


@register("pcgrad")
@dataclass(frozen=True)
class PCGrad(Chainable):
    """Gradient surgery for multi-task learning (Yu et al., NeurIPS 2020), with domains for tasks.

    Of the gradient g_i = grad l(D_i, w) of a domain, what conflicts with another's is projected away:

        p_i = g_i,   for j != i in the order of the path:  p_i <- p_i - min(p_i . g_j, 0) / ||g_j||^2 * g_j
        direction = sum over i of p_i

    `Sequential` of it is S-PCGrad: a new domain gives way to the path so far, but the path not to it,

        d_1 = g_1,   d_i = d_{i-1} + g_i - min(g_i . d_{i-1}, 0) / ||d_{i-1}||^2 * d_{i-1}

    with N - 1 projections in place of N (N - 1). As a loss, what is projected away is held fixed:

        L_i(w) = L_{i-1}(w) + l(D_i, w) - stop(c d_{i-1}) . (w - stop(w)),   c = min(g_i . d_{i-1}, 0) / ||d_{i-1}||^2

    It has no settings.
    """

    needs: ClassVar[int] = 2
    sums: ClassVar[bool] = True

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        gradients, losses = compute_gradients(net, params, episode)
        shares = project(_multiply(gradients)).sum(0)
        return {name: torch.tensordot(shares, g, 1) for name, g in gradients.items()}, losses.sum()

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        def total(weights: Params) -> Tensor:
            direction, so_far = grad_and_value(past)(weights)
            new = grad(net.loss)(weights, episode.minibatch(i))
            away = tree.detach(tree.scale(direction, _conflict(new, direction)))
            moved = tree.add(weights, tree.detach(weights), -1.0)
            extended: Tensor = so_far + net.loss(weights, episode.minibatch(i)) - tree.dot(away, moved)
            return extended

        return total

    def advance(
        self, net: Net, params: Params, past: tuple[Params, Tensor], episode: Episode, i: int
    ) -> tuple[Params, Tensor]:
        direction, so_far = past
        new, value = grad_and_value(net.loss)(params, episode.minibatch(i))
        return tree.add(new, direction, 1.0 - _conflict(new, direction)), so_far + value


def _conflict(new: Params, direction: Params) -> Tensor:
    """Return how often the direction is contained in what conflicts with it: at most 0."""
    return tree.dot(new, direction).clamp(max=0.0) / (tree.squared_norm(direction) + TINY)


def _multiply(gradients: Params) -> Tensor:
    """Return (domain, domain) the products of all pairs of gradients (domain, ...)."""
    return torch.stack([g.flatten(1) @ g.flatten(1).T for g in gradients.values()]).sum(0)


def project(products: Tensor) -> Tensor:
    """Return (domain, domain) how much of each gradient is in each projected one, p_i = sum over k of c_ik g_k, from
    the products g_i . g_j: all projections stay in the span of the gradients."""
    n = len(products)
    units = torch.eye(n, dtype=products.dtype, device=products.device)
    shares = units
    for j in range(n):
        squared = products.diagonal().narrow(0, j, 1) + TINY
        conflicts = (shares @ products.select(0, j)).clamp(max=0.0) / squared * (1.0 - units.select(0, j))
        shares = shares - conflicts.unsqueeze(1) * units.narrow(0, j, 1)
    return shares
