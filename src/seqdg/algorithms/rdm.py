"""RDM: the worst domain's losses are to be distributed as those of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms._penalties import split_stages
from seqdg.algorithms.agg import AGG
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

SHARPNESS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)


@register("rdm")
@dataclass(frozen=True)
class RDM(Algorithm):
    """Domain generalization via risk distribution matching (Nguyen et al., WACV 2024).

    After some steps of AGG, and with a new optimizer, the losses of the rows of the domain of largest loss, r, and of
    the rows of all domains, a, are to have one distribution and little variance:

        L(w) = 1/N * sum over i of l(D_i, w) + lam * MMD(r, a)^2 + spread * (Var r + Var a)

    with the kernel sum over g = 10^-4, 10^-3, ..., 10^3 of exp(-g * (s - t)^2) in the MMD.

    lam: weight of the discrepancy. The published 5 presupposes Adam at 5e-5 and minibatches of 88 rows.
    spread: weight of the variances.
    anneal: the share of the steps with AGG.
    second_rate: factor of the learning rate after them.
    """

    lam: Number = setting(0.3, least=0.0, search=Range(0.1, 10.0))
    spread: Number = setting(0.004, least=0.0, search=Range(0.001, 0.007))
    anneal: float = setting(0.3, least=0.0, most=0.9, static=True, search=(0.15, 0.3, 0.5))
    second_rate: Number = setting(0.3, above=0.0, search=Range(0.1, 1.0))
    needs: ClassVar[int] = 2

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.anneal, AGG(), self)

    def pace(self, name: str) -> Number:
        return self.second_rate

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        rows = net.row_losses(params, episode)
        losses = rows.mean(1)
        worst = torch.arange(len(losses), device=losses.device) == losses.argmax()
        of_worst, of_all = worst.to(rows.dtype) @ rows, rows.flatten()
        variances = of_worst.var() + of_all.var()
        return losses.mean() + self.lam * discrepancy(of_worst, of_all) + self.spread * variances


def discrepancy(a: Tensor, b: Tensor) -> Tensor:
    """The squared MMD between two sets of numbers."""

    def kernel(s: Tensor, t: Tensor) -> Tensor:
        squares = (s.unsqueeze(1) - t) ** 2
        return torch.stack([torch.exp(-g * squares).mean() for g in SHARPNESS]).sum()

    return kernel(a, a) + kernel(b, b) - 2.0 * kernel(a, b)
