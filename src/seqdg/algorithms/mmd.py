"""MMD: features with the same distribution in every domain, as kernels see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.algorithms import _penalties as penalties
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("mmd")
@dataclass(frozen=True)
class MMD(Algorithm):
    """Maximum mean discrepancy between the features of domains (the penalty of Li, Pan, Wang and Kot, CVPR 2018).

        L(w) = 1/N * sum over i of l(D_i, w) + gamma * mean over pairs i < j of k_ii + k_jj - 2 k_ij

    where k_ij is the mean kernel between a row of domain i and one of domain j, a row and itself included, and the
    kernel is the sum of exp(-s |a - b|^2) over s = 0.001, 0.01, ..., 1000, as in DomainBed. The paper's auto-encoder is
    in `mmd-aae`.

    gamma: weight of the discrepancy. DomainBed's 1, searched from 0.1 to 10, presupposes Adam at a rate of 5e-5.
    """

    gamma: Number = setting(0.1, least=0.0, search=Range(0.01, 10.0))
    needs: ClassVar[int] = 2
    needs_features: ClassVar[bool] = True

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        return layers.label_loss(net, params, z, episode.y) + self.gamma * penalties.compute_discrepancy(z)
