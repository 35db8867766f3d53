"""IRM, invariant risk minimization."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import grad

from seqdg.algorithms._penalties import anneal_setting, check_rows, split_stages, weaken
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("irm")
@dataclass(frozen=True)
class IRM(Algorithm):
    """Invariant risk minimization (Arjovsky, Bottou, Gulrajani and Lopez-Paz 2019), its practical form IRMv1.

    A factor s on the logits f should be best at 1 in every domain:

        L(w) = 1/N * sum over i of l(D_i, w) + lam * g_i(even rows) * g_i(odd rows),   g_i = d/ds l(D_i, s f) at s = 1

    The product over two halves of a minibatch estimates the square of g_i without bias. It may be negative.

    lam: weight of the penalty. DomainBed's 100, searched from 0.1 to 100000, presupposes Adam at a rate of 5e-5.
    anneal: share of the steps, at first, in which the weight is at most 1 (DomainBed: 500 of 5,001 steps).
    """

    lam: Number = setting(1.0, least=0.0, search=Range(0.01, 100.0))
    anneal: float = anneal_setting()

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.anneal, replace(self, lam=weaken(self.lam), anneal=0.0), self)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        logits = net.domain_logits(params, episode)
        losses = net.losses_from_logits(logits, episode.y)
        return (losses + self.lam * estimate_squares(net, logits, episode)).mean()


def estimate_squares(net: Net, logits: Tensor, episode: Episode) -> Tensor:
    """Return (domain,) the products of the slopes of the two halves."""
    check_rows(episode, "IRM")
    halves = (compute_slopes(net, logits[:, k::2], episode.y[:, k::2]) for k in (0, 1))
    return next(halves) * next(halves)


def compute_slopes(net: Net, logits: Tensor, y: Tensor) -> Tensor:
    """Return (domain,) the derivative of each domain's loss by a factor on its logits, at 1."""

    def total(scales: Tensor) -> Tensor:
        return net.losses_from_logits(scales.reshape(-1, *(1,) * (logits.dim() - 1)) * logits, y).sum()

    slopes: Tensor = grad(total)(torch.ones(len(y), dtype=logits.dtype, device=logits.device))
    return slopes
