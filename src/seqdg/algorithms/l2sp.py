"""L2-SP: weights are pulled to those that training starts from, around any algorithm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Number, Range, Wrapper, register, setting
from seqdg.nets import Net

FIRST = "first."  # in the memory


@register("l2sp")
@dataclass(frozen=True)
class L2SP(Wrapper):
    """A pull towards the first weights w_0 (Li, Grandvalet and Davoine, "L2-SP", ICML 2018), of any direction d.

        d(w) + grad R(w),   R(w) = pull / 2 * || w - w_0 ||^2 below the head  +  shrink / 2 * || w ||^2 of the head

    It takes the place of weight decay, which pulls towards zero: set weight_decay to 0 beside it.

    base: the algorithm inside.
    pull: to where training starts, of the weights below the head.
    shrink: to zero, of the head, which starts anywhere.
    """

    pull: Number = setting(0.01, least=0.0, search=Range(1e-4, 1.0))
    shrink: Number = setting(0.01, least=0.0, search=Range(1e-4, 1.0))
    acts_on: ClassVar[str] = "loss"
    loss = Algorithm.loss  # the pull depends on what is remembered

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return {**super().memory(net, params, sources), **tree.with_prefix(params, FIRST)}

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        direction, value, kept = super().step(net, params, memory, episode)
        first, moved = tree.under_prefix(memory, FIRST), {name: params[name] for name in direction}
        back, penalty = grad_and_value(lambda w: self.penalize(w, first, net.head_names))(moved)
        return tree.add(direction, back), value + penalty, kept

    def penalize(self, params: Params, first: Params, head: Collection[str]) -> Tensor:
        """Return R of weights. first: those before training.   head: the names of the head's."""
        ends = tuple(f".{name}" for name in head)  # copies of sources have prefixes
        parts = [
            self.shrink * (w * w).sum() if f".{name}".endswith(ends) else self.pull * ((w - first[name]) ** 2).sum()
            for name, w in params.items()
        ]
        return 0.5 * torch.stack(parts).sum()
