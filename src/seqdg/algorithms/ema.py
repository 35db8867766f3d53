"""EMA: a moving average of the weights, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seqdg.base import tree
from seqdg.base.episode import Params
from seqdg.core import Averaging, Number, Range, register, setting


@register("ema")
@dataclass(frozen=True)
class EMA(Averaging):
    """A moving average of the weights, in place of the last (Polyak and Juditsky 1992; Izmailov et al., UAI 2018).

        m_0 = w_0,   m_t = decay * m_{t-1} + (1 - decay) * w_t,   and m is deployed

    The first weights have the share decay^t of it: with 0.99, 5 % after 300 steps, but 74 % after 30. Where it is above
    10 % a note says so: train longer, or take a smaller decay.

    base: the algorithm whose weights are averaged.
    decay: how much of the past is kept at every step.
    """

    decay: Number = setting(0.99, least=0.0, most=1.0, search=Range(0.9, 0.999))

    def begin(self, params: Params) -> Params:
        return dict(params)

    def observe(self, seen: Params, params: Params, progress: Tensor) -> Params:
        return self.average(seen, params)

    def weigh_first(self, steps: int) -> float:
        return float(self.decay) ** steps

    def average(self, seen: Params, params: Params) -> Params:
        return tree.mix(params, seen, self.decay)
