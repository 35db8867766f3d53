"""Aggregation, the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seqdg.base import Episode, Params
from seqdg.core import Algorithm, register
from seqdg.nets import Net


@register("agg")
@dataclass(frozen=True)
class AGG(Algorithm):
    """Aggregation of all source domains (the baseline of Li et al., ICCV 2017; empirical risk minimization).

    The mean loss over the union of the minibatches:

        L(w) = 1/N * sum over i of l(D_i, w)

    It has no settings.
    """

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        return net.losses(params, episode).mean()
