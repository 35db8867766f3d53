"""IB-ERM: features that vary little."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.algorithms._penalties import anneal_setting, check_rows, split_stages
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("ib-erm")
@dataclass(frozen=True)
class IBERM(Algorithm):
    """Empirical risk minimization with an information bottleneck, IB-ERM (Ahuja et al., NeurIPS 2021).

    Of all features z that tell the classes, those of least entropy, here of least variance within a domain:

        L(w) = 1/N * sum over i of l(D_i, w) + lam * mean over features of Var(z of D_i)

    lam: weight of the variance. DomainBed's 100, searched from 0.1 to 100000, presupposes Adam at a rate of 5e-5.
    anneal: share of the steps, at first, without the penalty (DomainBed: 500 of 5,001 steps).
    """

    lam: Number = setting(1.0, least=0.0, search=Range(0.01, 100.0))
    anneal: float = anneal_setting()
    needs_features: ClassVar[bool] = True

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.anneal, replace(self, lam=0.0, anneal=0.0), self)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        check_rows(episode, "IB-ERM")
        z = net.domain_features(params, episode)
        return layers.label_loss(net, params, z, episode.y) + self.lam * z.var(1).mean()
