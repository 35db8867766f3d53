"""EQRM: the quantile of the domains' losses."""

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

TINY = 1e-6  # of the spread, so that domains of equal loss have a quantile
POINTS, ROUNDS = 32, 5  # of the search for the quantile


@register("eqrm")
@dataclass(frozen=True)
class EQRM(Algorithm):
    """Probable domain generalization via quantile risk minimization (Eastwood et al., NeurIPS 2022).

    After some steps of AGG, and with a new optimizer, the loss is what a share `quantile` of all domains stays below,
    if their losses are distributed as those of the minibatches, s their standard deviation:

        L(w) = q   such that   1/N * sum over i of Phi((q - l(D_i, w)) / h) = quantile,   h = 1.06 * s * N^(-1/5)

    a kernel density estimate. The gradient is that of q itself, where DomainBed's holds the place of q between the
    smallest and the largest loss fixed. With `gaussian`, L(w) = mean + s * Phi^-1(quantile).

    quantile: the share of domains; 0.5 is near AGG, 1 the worst domain and beyond.
    burn_in: the share of the steps with AGG.
    second_rate: factor of the learning rate after them.
    density: of the domains' losses, kernel or gaussian.
    """

    quantile: Number = setting(0.75, above=0.0, most=0.999, search=Range(0.5, 0.99, log=False))
    burn_in: float = setting(0.5, least=0.0, most=0.9, static=True, search=(0.1, 0.3, 0.5))
    second_rate: Number = setting(0.02, above=0.0, search=Range(0.02, 1.0))
    density: str = setting("kernel", choices=("kernel", "gaussian"))
    needs: ClassVar[int] = 2

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.burn_in, AGG(), self)

    def pace(self, name: str) -> Number:
        return self.second_rate

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        losses = net.losses(params, episode)
        quantile = (losses.new_zeros(()) + self.quantile).to(losses.dtype)
        spread = torch.sqrt(losses.var() + TINY**2)
        if self.density == "gaussian":
            shifted: Tensor = losses.mean() + spread * torch.special.ndtri(quantile)
            return shifted
        return find_quantile(losses, 1.06 * spread * len(losses) ** -0.2, quantile)


def find_quantile(losses: Tensor, width: Tensor, quantile: Tensor) -> Tensor:
    """Return where the mean of normal distributions about the losses reaches the quantile."""
    fixed, scale = losses.detach(), width.detach()
    reach = scale * torch.special.ndtri(quantile)
    low, step = fixed.min() + reach, (fixed.max() - fixed.min()) / POINTS
    for _ in range(ROUNDS):  # the quantile lies in one of POINTS intervals, which is split again
        points = low + step * torch.arange(1, POINTS, device=losses.device)
        passed = torch.special.ndtr((points.unsqueeze(1) - fixed) / scale).mean(1) < quantile
        low, step = low + step * passed.sum(), step / POINTS
    # A step of Newton's method, whose gradient is that of the quantile by the theorem of implicit functions.
    density = torch.exp(-0.5 * ((low - fixed) / scale) ** 2).mean() / scale / (2.0 * torch.pi) ** 0.5
    below = torch.special.ndtr((low - losses) / width).mean()
    reached: Tensor = low + (quantile - below) / density
    return reached
