"""The naive ensemble."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import log_softmax

from seqdg.algorithms import _branches as branches
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, register
from seqdg.nets import Net


@register("ensemble")
@dataclass(frozen=True)
class Ensemble(Algorithm):
    """Naive ensemble (the check of Li et al. 2020, appendix B): a net per source domain, trained on that domain alone.

        L(w_1, ..., w_N) = sum over i of l(D_i, w_i),   p(y | x) = 1/N * sum over i of p(y | x, w_i)

    Nothing is learned across domains, so it falls far behind aggregation where domains differ (in the paper's check
    too): Undo-Bias gains by more than having several networks. It has no settings.
    """

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        return branches.split(params, net.names, sources)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        return branches.compute_losses(net, {}, branches.order_copies(params, episode.domain), episode).sum()

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        return branches.compute_gradient(net, params, episode)

    def statistics(self, net: Net, deployed: Params, x: Tensor) -> Params:
        each = vmap(lambda weights: net.statistics(weights, x))(branches.select_copies(deployed))
        return tree.with_prefix(each, branches.PREFIX)

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        """Log-probabilities: logits whose softmax is the average of the networks'. Of numbers, their mean."""
        each = vmap(lambda weights: net(weights, x))(branches.select_copies(deployed))
        if net.is_regression:
            return each.mean(0)
        each = log_softmax(each, -1)
        return each.logsumexp(0) - math.log(len(each))
