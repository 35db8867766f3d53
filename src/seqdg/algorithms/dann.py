"""DANN, domain-adversarial training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("dann")
@dataclass(frozen=True)
class DANN(Algorithm):
    """Domain-adversarial neural networks (Ganin et al., JMLR 2016), for domain generalization.

    A classifier c of one hidden layer predicts the source domain from the features z that enter the head. It learns
    by its loss d; the features learn against it, by a gradient that is reversed on the way:

        L(w, c) = 1/N * sum over i of l(D_i, w) + d(D_i, c(reverse(z)))
        gradient of reverse = -lam * ramp,   ramp = 2 / (1 + exp(-10 * progress)) - 1

    lam: how strongly the features learn against the domain classifier, at the end of the ramp; 1 in the paper.
    hidden: units of the domain classifier's hidden layer.
    """

    lam: Number = setting(1.0, least=0.0, search=Range(0.01, 10.0))
    hidden: int = setting(100, least=1)
    needs: ClassVar[int] = 2
    needs_features: ClassVar[bool] = True

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        return {**params, **layers.two_layer_params("domain.", head.shape[1], self.hidden, sources, generator, head)}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        ramp = 2.0 / (1.0 + torch.exp(-10.0 * episode.progress)) - 1.0
        guess = layers.two_layer(params, "domain.", layers.reverse(z, self.lam * ramp))
        return layers.label_loss(net, params, z, episode.y) + layers.domain_loss(guess, episode.domain)

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(params, "domain.")
