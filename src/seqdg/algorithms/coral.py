"""CORAL: features with the same mean and covariance in every domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.algorithms import _penalties as penalties
from seqdg.base import Episode, Params
from seqdg.core import Chainable, Loss, Number, Range, check_features, register, setting
from seqdg.nets import Net


@register("coral")
@dataclass(frozen=True)
class CORAL(Chainable):
    """Deep CORAL (Sun and Saenko, ECCV 2016 workshops), for domain generalization as in DomainBed (2021).

    The features z that enter the head have nearly the same mean m and covariance C in any two domains:

        L(w) = 1/N * sum over i of l(D_i, w) + gamma * mean over pairs i < j of d_ij
        d_ij = mean of (m_i - m_j)^2 + mean of (C_i - C_j)^2,   over their entries

    The mean over pairs is twice the variance over domains. `Sequential` of it, where a new domain is compared with each
    earlier one, is N times CORAL itself, whatever the path: all pairs are all pairs. `s-coral` is the chain that adds
    something.

    gamma: weight of the distances (DomainBed: 1, searched from 0.1 to 10).
    """

    gamma: Number = setting(1.0, least=0.0, search=Range(0.1, 10.0))
    needs: ClassVar[int] = 2
    needs_features: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True

    def check_path(self, net: Net, length: int) -> None:
        check_features(net, "CORAL")

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        penalties.check_rows(episode, "CORAL")
        z = net.domain_features(params, episode)
        spread = sum((2.0 * moment.var(0).mean() for moment in penalties.compute_moments(z)), z.new_zeros(()))
        return layers.label_loss(net, params, z, episode.y) + self.gamma * spread

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        def total(weights: Params) -> Tensor:
            z = net.domain_features(weights, episode.part(0, i + 1))
            mean, covariance = penalties.compute_moments(z)
            moments = [(mean.select(0, j), covariance.select(0, j)) for j in range(i + 1)]
            apart = sum((penalties.compare_moments(moments[i], before) for before in moments[:i]), z.new_zeros(()))
            new = net.criterion(net.head(weights, z.select(0, i)), episode.y.select(0, i))
            return past(weights) + new + self.gamma * 2.0 / (episode.domains - 1) * apart

        return total
