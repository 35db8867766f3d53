"""SAM: the direction at the worst weights nearby, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqdg.base import Episode, Params, tree
from seqdg.core import BASE, Algorithm, Number, Range, Wrapper, register, setting
from seqdg.nets import Net

TINY = 1e-12


@register("sam")
@dataclass(frozen=True)
class SAM(Wrapper):
    """Sharpness-aware minimization (Foret et al., ICLR 2021), of any direction d.

        d_SAM(w) = d(w + rho * d(w) / || d(w) ||)

    It takes two directions of the base, on the same episode; what the base remembers is of the first.

    base: the algorithm inside.
    rho: how far away the worst weights are looked for.
    """

    rho: Number = setting(0.05, least=0.0, search=Range(0.01, 0.2))
    loss = Algorithm.loss  # it has none: it is a direction

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        direction, value, kept = super().step(net, params, memory, episode)
        worst = climb(params, direction, self.rho / norm(direction))
        sharp, _, _ = self.base.step(net, worst, tree.under_prefix(memory, BASE), episode)
        return sharp, value, kept


def norm(direction: Params) -> Tensor:
    """Return the length of a direction, over all its names."""
    return torch.sqrt(tree.squared_norm(direction) + TINY**2)


def climb(params: Params, direction: Params, length: Number) -> Params:
    """Return the weights with some of the direction added, at the names that it has."""
    return {**params, **tree.add({name: params[name] for name in direction}, direction, length)}
