"""First-order MLDG. `Sequential` of it is FO-S-MLDG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import grad_and_value

from seqdg.algorithms._look_ahead import (
    REDUCTIONS,
    FirstOrderLookAhead,
    advance_first_order,
    combine,
    extend_first_order,
    judge,
    split_last,
)
from seqdg.base import Episode, Params
from seqdg.core import Loss, register, setting
from seqdg.nets import Net


@register("fo-mldg", sequential="fo-s-mldg")
@dataclass(frozen=True)
class FirstOrderMLDG(FirstOrderLookAhead):
    """First-order MLDG (Li et al. 2020, section 4.2): the look-ahead step counts as a constant.

        L_i(w) = L_{i-1}(w) + beta * l(D_i, w - alpha * stop(grad L_{i-1}(w)))
        g_i = g_{i-1} + beta * grad l(D_i, .) at w - alpha * g_{i-1}

    so that a path of N domains takes N ordinary gradients. By itself, the past is the mean or the sum over all domains
    of the path but the last; see MLDG for what the sum does to alpha. `Sequential` of it is FO-S-MLDG, what the paper's
    tables call S-MLDG.

    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    beta: weight of the new domain, one for all positions or the last few of beta_2, ..., beta_N (1 where missing).
    reduction: of the losses before the last domain, mean or sum; `Sequential` sums always.
    """

    reduction: str = setting("mean", choices=REDUCTIONS, added="mean")
    alone: ClassVar[tuple[str, ...]] = ("reduction",)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        before, last = split_last(episode)
        past: Loss = lambda weights: combine(net.losses(weights, before), self.reduction)  # noqa: E731
        return extend_first_order(past, judge(net, episode, last), *self.coefficients(1, 2))(params)

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        before, last = split_last(episode)
        past = grad_and_value(lambda weights: combine(net.losses(weights, before), self.reduction))(params)
        return advance_first_order(params, past, judge(net, episode, last), *self.coefficients(1, 2))
