"""V-REx, risk extrapolation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from seqdg.algorithms._penalties import anneal_setting, split_stages, weaken
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Chainable, Loss, Number, Range, register, setting
from seqdg.nets import Net


@register("vrex")
@dataclass(frozen=True)
class VREx(Chainable):
    """Variance risk extrapolation, V-REx (Krueger et al., ICML 2021): the losses of all domains should be equal.

        L(w) = 1/N * sum over i of l(D_i, w) + lam * 1/N * sum over i of (l(D_i, w) - mean over j of l(D_j, w))^2

    Chained, a new domain is compared with the mean of those before it,

        L_i = L_{i-1} + l(D_i, w) + lam * (i - 1)/i * (l(D_i, w) - mean over j < i of l(D_j, w))^2

    which by Welford's identity is N times V-REx itself, whatever the path: there is no S-VREx to report.

    lam: weight of the variance. DomainBed's 10, searched from 0.1 to 100000, presupposes Adam at a rate of 5e-5.
    anneal: share of the steps, at first, in which the weight is at most 1 (DomainBed: 500 of 5,001 steps).
    """

    lam: Number = setting(1.0, least=0.0, search=Range(0.1, 100.0))
    anneal: float = anneal_setting()
    needs: ClassVar[int] = 2
    symmetric: ClassVar[bool] = True

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.anneal, replace(self, lam=weaken(self.lam), anneal=0.0), self)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        losses = net.losses(params, episode)
        return losses.mean() + self.lam * losses.var(0, correction=0)

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        def total(weights: Params) -> Tensor:
            losses = net.losses(weights, episode.part(0, i + 1))
            new, before = losses.select(0, i), losses.narrow(0, 0, i).mean()
            return past(weights) + new + self.lam * i / (i + 1) * (new - before) ** 2

        return total
