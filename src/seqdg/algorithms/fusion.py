"""Fusion: a head per source domain, weighted for every row by how much it looks like that domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import log_softmax, softmax

from seqdg.algorithms import _branches as branches
from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("fusion")
@dataclass(frozen=True)
class Fusion(Algorithm):
    """Best sources forward: source-specific networks (Mancini, Rota Bulò, Caputo and Ricci, ICIP 2018).

    On shared features z, every source domain has a head h_i, and a linear branch c predicts the domain. A row's
    prediction is that of all heads, weighted by the domains' probabilities q = softmax(c(z)), at inference too:

        p(y | x) = sum over i of v_i(q) * p(y | x, h_i),   v(q) = (1 - agnostic) * q + agnostic / N

    In training a row's domain is known: q is 1 at its own domain and 0 elsewhere. The branch learns to name it:

        L(w, h, c) = 1/N * sum over i of l(D_i, p) + lam * cross-entropy(c(z), i)

    The paper has heads that are fused by the domains' probabilities, and beside them a component that is agnostic of
    the domain. That this is the plain mean of the heads, that probabilities are mixed and not logits, and both defaults
    are ours. With agnostic = 1 the weights are uniform: an ensemble of heads, which then learn as one mixture.

    lam: weight of the domain branch's loss.
    agnostic: share of the weights that is the same for every head.
    """

    lam: Number = setting(0.5, least=0.0, search=Range(0.01, 10.0))
    agnostic: Number = setting(0.25, least=0.0, most=1.0, search=Range(0.05, 1.0))
    needs: ClassVar[int] = 2
    needs_features: ClassVar[bool] = True

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        domain = layers.linear_params("domain.", head.shape[1], sources, generator, head)
        return {**branches.split(params, net.head_names, sources), **domain}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        guess = layers.linear(params, "domain.", z)
        known = layers.one_hot(episode.domain.unsqueeze(1), guess)
        fused = self.fuse(net, params, z, known.expand(guess.shape))
        return net.losses_from_logits(fused, episode.y).mean() + self.lam * layers.domain_loss(guess, episode.domain)

    def fuse(self, net: Net, params: Params, z: Tensor, q: Tensor) -> Tensor:
        """Return (..., class) log-probabilities of features (..., feature) whose domains have probabilities q; of
        numbers (..., 1), their weighted mean."""
        heads = branches.select_copies(params)
        each = vmap(lambda head: net.head(head, z), out_dims=-2)(heads)  # (..., source, class)
        weights = (1.0 - self.agnostic) * q + self.agnostic / q.shape[-1]
        if net.is_regression:
            return (weights.unsqueeze(-1) * each).sum(-2)
        return torch.logsumexp(log_softmax(each, -1) + torch.log(weights).unsqueeze(-1), -2)

    def statistics(self, net: Net, deployed: Params, x: Tensor) -> Params:
        heads = branches.average(branches.select_copies(deployed))  # no statistics depend on the head
        return net.statistics({**tree.without_prefix(deployed, branches.PREFIX), **heads}, x)

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        """Log-probabilities: logits whose softmax is the weighted mean of the heads'."""
        z = net.features(deployed, x)
        return self.fuse(net, deployed, z, softmax(layers.linear(deployed, "domain.", z), -1))
