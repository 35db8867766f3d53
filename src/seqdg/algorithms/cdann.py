"""CDANN: domain-adversarial training within each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("cdann")
@dataclass(frozen=True)
class CDANN(Algorithm):
    """Conditional invariant adversarial networks (Li et al., ECCV 2018), in DomainBed's form: DANN within each class.

    The domain classifier c also sees the label, as a vector e_y that it learns and that is added to the features, and
    every class weighs the same, however many of the rows r it has:

        L(w, c, e) = 1/N * sum over i of l(D_i, w) + 1/K * sum over classes y of mean over r in y of d(r)
        d(r) = loss of c(reverse(z_r) + e_y) for the domain of row r
        gradient of reverse = -lam * ramp,   ramp = 2 / (1 + exp(-10 * progress)) - 1

    with K the number of classes among the rows. Features and classifier learn at once, in DomainBed in turn.
    The ramp is DANN's; DomainBed has none, and the full weight from the first step on.

    lam: how strongly the features learn against the domain classifier, at the end of the ramp.
    hidden: units of the domain classifier's hidden layer.
    """

    lam: Number = setting(1.0, least=0.0, search=Range(0.01, 10.0))
    hidden: int = setting(100, least=1)
    needs: ClassVar[int] = 2
    hard_labels: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        return {
            **params,
            **layers.two_layer_params("domain.", head.shape[1], self.hidden, sources, generator, head),
            "domain.label": torch.randn(head.shape, generator=generator).to(head),
        }

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        logits = net.head(params, z)
        label = layers.one_hot(episode.y, logits)
        ramp = 2.0 / (1.0 + torch.exp(-10.0 * episode.progress)) - 1.0
        guess = layers.two_layer(params, "domain.", layers.reverse(z, self.lam * ramp) + label @ params["domain.label"])
        source = episode.domain.unsqueeze(1).expand(episode.y.shape)
        surprise = cross_entropy(guess.flatten(0, 1), source.flatten(), reduction="none")
        rows = label.flatten(0, 1)
        count = rows.sum(0)
        weights = rows @ (1.0 / count.clamp(min=1.0)) / (count > 0).sum()
        return net.losses_from_logits(logits, episode.y).mean() + (weights * surprise).sum()

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(params, "domain.")
