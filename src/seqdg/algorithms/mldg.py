"""MLDG. `Sequential` of it is S-MLDG, exact or of a given order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor
from torch.func import grad_and_value

from seqdg import kernels
from seqdg.algorithms._look_ahead import (
    REDUCTIONS,
    LookAhead,
    combine,
    compute_directions,
    differentiate_to_order,
    exact_by_products,
    judge,
    look_ahead_by_product,
    prefers_products,
    second_order,
    split_last,
)
from seqdg.base import Episode, Params, tree
from seqdg.core import Loss, register, setting
from seqdg.nets import Net, RecomputingNet


@register("mldg", sequential="s-mldg")
@dataclass(frozen=True)
class MLDG(LookAhead):
    """Meta-learning for domain generalization (Li et al., AAAI 2018).

    A new domain is judged at the weights that one gradient step on the past would give:

        L_i(w) = L_{i-1}(w) + beta * l(D_i, w - alpha * grad L_{i-1}(w))

    By itself, the past is the mean over all domains of the path but the last, and the last is the meta-test domain. The
    authors' public code has the sum of these N - 1 losses in place of their mean, and differentiates through the
    look-ahead, as order 0 does. With k = N - 1,

        sum at alpha, beta = k * (mean at k * alpha, beta / k)

    so that an alpha for the sum is k times as long on the mean, and its learning rate too.

    `Sequential` of it is S-MLDG, Algorithm 1 of Li et al. (2020). Its cost grows exponentially with the path. Of order
    r it looks ahead along the direction of order r - 1, and differentiates through that:

        L^r_i(w) = L^r_{i-1}(w) + beta * l(D_i, w - alpha * d^{r-1}_{i-1}(w)),   d^r_i = grad L^r_i,   d^0 = stop(d^1)

    Order 1 is the first-order approximation, order 2 costs a multiple of it whatever the path, and order r is exact for
    paths of at most r domains.

    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    beta: weight of the new domain, one for all positions or the last few of beta_2, ..., beta_N (1 where missing).
    order: how often the look-ahead is differentiated through; 0 is exact.
    recompute: forget activations and compute them again on the way back: less memory, more time.
    reduction: of the losses before the last domain, mean or sum; `Sequential` sums always.
    """

    order: int = setting(0, least=0)
    recompute: bool = setting(False)
    reduction: str = setting("mean", choices=REDUCTIONS, added="mean")
    inert: ClassVar[tuple[str, ...]] = (*LookAhead.inert, "recompute")
    alone: ClassVar[tuple[str, ...]] = ("reduction",)

    def check_path(self, net: Net, length: int) -> None:
        super().check_path(net, length)
        if self.order != 1 and length > 1:
            net.check_nesting(type(self).__name__)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        net = self._wrap(net)
        before, last = split_last(episode)
        alpha, beta = self.coefficients(1, 2)
        step, so_far = grad_and_value(lambda weights: combine(net.losses(weights, before), self.reduction))(params)
        ahead = tree.add(params, tree.detach(step) if self.order == 1 else step, -alpha)
        total: Tensor = so_far + beta * net.loss(ahead, episode.minibatch(last))
        return total

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        if self.order == 0 and prefers_products(net, episode) and not self.recompute:
            before, last = split_last(episode)
            past = grad_and_value(lambda weights: combine(net.losses(weights, before), self.reduction))
            return look_ahead_by_product(past, judge(net, episode, last), params, *self.coefficients(1, 2))
        with kernels.nest():
            return super().gradient(net, params, episode)

    def begin(self, net: Net, episode: Episode) -> Loss:
        return super().begin(self._wrap(net), episode)

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        net = self._wrap(net)
        alpha, beta = self.coefficients(i, episode.domains)

        def total(weights: Params) -> Tensor:
            step, so_far = grad_and_value(past)(weights)
            if self.order:
                step = compute_directions(self, net, episode, self.order - 1, i)(weights)[-1]
            extended: Tensor = so_far + beta * net.loss(tree.add(weights, step, -alpha), episode.minibatch(i))
            return extended

        return total

    def along(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        """The whole path at once, by the cheapest way to its order."""
        net, n = self._wrap(net), episode.domains
        if self.order == 2 and n > 2 and not self.recompute:
            return second_order(self, net, params, episode)
        if 0 < self.order < n:
            return differentiate_to_order(self, net, params, episode, self.order)
        if prefers_products(net, episode) and 1 < n <= 3 and not self.recompute:
            return exact_by_products(self, net, params, episode)
        exact, total = replace(self, order=0), self.begin(net, episode)
        for i in range(1, n):
            total = exact.extend(net, total, episode, i)
        with kernels.nest():
            direction, value = grad_and_value(total)(params)
        return direction, value

    def _wrap(self, net: Net) -> Net:
        return RecomputingNet(net) if self.recompute and not isinstance(net, RecomputingNet) else net
