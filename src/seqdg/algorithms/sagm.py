"""SAGM: descend, and match the gradients here and at the worst weights nearby, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seqdg.algorithms.sam import climb, norm
from seqdg.base import Episode, Params, tree
from seqdg.core import BASE, Algorithm, Number, Range, Wrapper, register, setting
from seqdg.nets import Net


@register("sagm")
@dataclass(frozen=True)
class SAGM(Wrapper):
    """Sharpness-aware gradient matching (Wang et al., CVPR 2023), of any direction d.

        d_SAGM(w) = 1/2 * (d(w) + d(w + (rho / || d(w) || - align) * d(w)))

    It lowers the loss L(w), the perturbed loss and the angle between their gradients at once.

    base: the algorithm inside.
    rho: how far away the worst weights are looked for.
    align: how strongly the two gradients are matched.
    """

    rho: Number = setting(0.05, least=0.0, search=Range(0.01, 0.2))
    align: Number = setting(0.001, least=0.0, search=Range(0.0002, 0.01))
    loss = Algorithm.loss  # it has none: it is a direction

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        direction, value, kept = super().step(net, params, memory, episode)
        worst = climb(params, direction, self.rho / norm(direction) - self.align)
        sharp, _, _ = self.base.step(net, worst, tree.under_prefix(memory, BASE), episode)
        return tree.scale(tree.add(direction, sharp), 0.5), value, kept
