"""IGA: domains whose gradients are alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("iga")
@dataclass(frozen=True)
class IGA(Algorithm):
    """Inter-environmental gradient alignment (Koyama and Yamaguchi 2020): the gradients g_i of all domains agree.

        L(w) = 1/N * sum over i of l(D_i, w) + penalty * sum over i of |g_i - mean over j of g_j|^2

    It is differentiated twice, at about three times the cost of AGG.

    penalty: weight of the distances. DomainBed's 1000, searched from 10 to 100000, presupposes Adam at a rate of 5e-5.
    """

    penalty: Number = setting(0.01, least=0.0, search=Range(1e-3, 1e3))
    needs: ClassVar[int] = 2

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        net.check_nesting(type(self).__name__)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        gradients, losses = vmap(grad_and_value(net.loss), (None, 0))(params, episode.minibatches)
        apart = torch.stack([((g - g.mean(0)) ** 2).sum() for g in gradients.values()]).sum()
        total: Tensor = losses.mean() + self.penalty * apart
        return total
