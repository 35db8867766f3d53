"""EMA: a moving average of the weights, around any algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from seqdg.base import Params, tree
from seqdg.core import Averaging, Number, Range, register, setting

COUNT = "#steps"  # in the memory, beside the average: how many steps are in it


@register("ema")
@dataclass(frozen=True)
class EMA(Averaging):
    """A moving average of the weights, in place of the last (Polyak and Juditsky 1992; Izmailov et al., UAI 2018).

        m_0 = w_0,   m_t = decay * m_{t-1} + (1 - decay) * w_t,   and m is deployed

    The first weights have the share decay^t of it: with 0.99, 5 % after 300 steps, but 74 % after 30. Where it is above
    10 % a note says so: train longer, or take a smaller decay, or one that grows. With `grows`

        m_t = d_t * m_{t-1} + (1 - d_t) * w_t,   d_t = min(decay, (1 + t) / (10 + t))

    so that a short training is averaged over about its last tenth, whatever the decay.

    base: the algorithm whose weights are averaged.
    decay: how much of the past is kept at every step.
    grows: whether less of the past is kept at first.
    """

    decay: Number = setting(0.99, least=0.0, most=1.0, search=Range(0.9, 0.999))
    grows: bool = setting(False, added=False)

    def begin(self, params: Params) -> Params:
        some = next(iter(params.values()))
        return {**params, COUNT: torch.zeros((), dtype=some.dtype, device=some.device)} if self.grows else dict(params)

    def observe(self, seen: Params, params: Params, progress: Tensor) -> Params:
        mean = self.average(seen, params)
        return {**mean, COUNT: seen[COUNT] + 1} if self.grows else mean

    def weigh_first(self, steps: int) -> float:
        if not self.grows:
            return float(self.decay) ** steps
        return math.prod(min(float(self.decay), (1 + t) / (10 + t)) for t in range(1, steps + 1))

    def average(self, seen: Params, params: Params) -> Params:
        if not self.grows:
            return tree.mix(params, seen, self.decay)
        t = seen[COUNT]
        kept = torch.clamp((1 + t) / (10 + t), max=self.decay)
        return tree.mix(params, {name: value for name, value in seen.items() if name != COUNT}, kept)
