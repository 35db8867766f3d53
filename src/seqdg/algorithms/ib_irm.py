"""IB-IRM: IRM on features that vary little."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from seqdg.algorithms._penalties import anneal_setting, split_stages, weaken
from seqdg.algorithms.irm import estimate_squares
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("ib-irm")
@dataclass(frozen=True)
class IBIRM(Algorithm):
    """Invariant risk minimization with an information bottleneck, IB-IRM (Ahuja et al., NeurIPS 2021).

        L(w) = 1/N * sum over i of l(D_i, w) + lam * g_i(even rows) * g_i(odd rows)
               + bottleneck * mean over features of Var(z of D_i)

    with g_i as in `irm` and z the features that enter the head, as in `ib-erm`.

    lam: weight of IRM's penalty. DomainBed's 100, searched from 0.1 to 100000, presupposes Adam at a rate of 5e-5.
    bottleneck: weight of the variance; DomainBed's is the same 100.
    anneal: share of the steps, at first, in which lam is at most 1 and bottleneck is 0 (DomainBed: 500 of 5,001 steps).
    """

    lam: Number = setting(0.1, least=0.0, search=Range(0.01, 100.0))
    bottleneck: Number = setting(1.0, least=0.0, search=Range(0.01, 100.0))
    anneal: float = anneal_setting()
    needs_features: ClassVar[bool] = True

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.anneal, replace(self, lam=weaken(self.lam), bottleneck=0.0, anneal=0.0), self)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        logits = net.head(params, z)
        losses = net.losses_from_logits(logits, episode.y) + self.lam * estimate_squares(net, logits, episode)
        return losses.mean() + self.bottleneck * z.var(1).mean()
