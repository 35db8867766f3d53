"""Spectral decoupling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("sd")
@dataclass(frozen=True)
class SpectralDecoupling(Algorithm):
    """Spectral decoupling, against gradient starvation (Pezeshki et al., NeurIPS 2021).

    Small logits keep one strong feature from taking the gradient away from the others:

        L(w) = 1/N * sum over i of l(D_i, w) + lam * mean of f(x, w)^2,   over all rows and classes

    lam: weight of the squared logits (DomainBed: 0.1, searched from 0.00001 to 0.1).
    """

    lam: Number = setting(0.1, least=0.0, search=Range(1e-5, 0.1))
    needs_classes: ClassVar[bool] = True  # of numbers, the penalty would only draw predictions to their mean

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        logits = net.domain_logits(params, episode)
        return net.losses_from_logits(logits, episode.y).mean() + self.lam * (logits**2).mean()
