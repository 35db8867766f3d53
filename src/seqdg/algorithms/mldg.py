"""MLDG. `Sequential` of it is S-MLDG, exact or of a given order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vjp

from seqdg import tree
from seqdg.algorithm import Loss, setting
from seqdg.episode import Episode, Params
from seqdg.look_ahead import LookAhead, exact_by_products, halves, second_order
from seqdg.models.net import Net
from seqdg.recompute import Recomputing
from seqdg.registry import register


@register("mldg", sequential="s-mldg")
@dataclass(frozen=True)
class MLDG(LookAhead):
    """Meta-learning for domain generalization (Li et al., AAAI 2018).

    A new domain is judged at the weights that one gradient step on the past would give:

        L_i(w) = L_{i-1}(w) + beta * l(D_i, w - alpha * grad L_{i-1}(w))

    By itself, the past is the mean over all domains of the path but the last, and the last is the meta-test domain.
    `Sequential` of it is S-MLDG, Algorithm 1 of Li et al. (2020). Its cost grows exponentially with the path. Of order
    r it looks ahead along the direction of order r - 1, and differentiates through that:

        L^r_i(w) = L^r_{i-1}(w) + beta * l(D_i, w - alpha * d^{r-1}_{i-1}(w)),   d^r_i = grad L^r_i,   d^0 = stop(d^1)

    Order 1 is the first-order approximation, order 2 costs a multiple of it whatever the path, and order r is exact for
    paths of at most r domains.

    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    beta: weight of the new domain, one for all positions or the last few of beta_2, ..., beta_N (1 where missing).
    order: how often the look-ahead is differentiated through; 0 is exact.
    recompute: forget activations and compute them again on the way back: less memory, more time.
    """

    order: int = setting(0, least=0)
    recompute: bool = setting(False)
    inert: ClassVar[tuple[str, ...]] = (*LookAhead.inert, "recompute")

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        net = self._trained(net)
        before, last = halves(episode)
        alpha, beta = self.coefficients(1, 2)
        step, so_far = grad_and_value(lambda weights: net.losses(weights, before).mean())(params)
        ahead = tree.add(params, tree.detach(step) if self.order == 1 else step, -alpha)
        total: Tensor = so_far + beta * net.loss(ahead, episode.minibatch(last))
        return total

    def begin(self, net: Net, episode: Episode) -> Loss:
        return super().begin(self._trained(net), episode)

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        net = self._trained(net)
        alpha, beta = self.coefficients(i, episode.domains)

        def total(weights: Params) -> Tensor:
            step, so_far = grad_and_value(past)(weights)
            if self.order:
                step = self._directions(net, episode, self.order - 1, i)(weights)[-1]
            extended: Tensor = so_far + beta * net.loss(tree.add(weights, step, -alpha), episode.minibatch(i))
            return extended

        return total

    def along(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        """The whole path at once, by the cheapest way to its order."""
        net, n = self._trained(net), episode.domains
        if self.order == 2 and n > 2 and not self.recompute:
            return second_order(self, net, params, episode)
        if 0 < self.order < n:
            terms = self._terms(net, episode, self.order, n)
            direction, value = grad_and_value(lambda weights: terms(weights).sum())(params)
            return direction, value
        if episode.x.is_cuda and 1 < n <= 3 and not self.recompute:
            return exact_by_products(self, net, params, episode)
        exact, total = replace(self, order=0), self.begin(net, episode)
        for i in range(1, n):
            total = exact.extend(net, total, episode, i)
        direction, value = grad_and_value(total)(params)
        return direction, value

    def _trained(self, net: Net) -> Net:
        return Recomputing(net) if self.recompute and not isinstance(net, Recomputing) else net

    def _terms(self, net: Net, episode: Episode, order: int, count: int) -> Callable[[Params], Tensor]:
        """(domain,) what each of the first `count` domains adds to the loss."""

        def terms(weights: Params) -> Tensor:
            found = [net.loss(weights, episode.minibatch(0))]
            pasts = self._directions(net, episode, order - 1, count - 1)(weights) if count > 1 else []
            for i, past in enumerate(pasts, 1):
                alpha, beta = self.coefficients(i, episode.domains)
                found.append(beta * net.loss(tree.add(weights, past, -alpha), episode.minibatch(i)))
            return torch.stack(found)

        return terms

    def _directions(self, net: Net, episode: Episode, order: int, count: int) -> Callable[[Params], list[Params]]:
        """Of that order over the first domain, the first two, ..., the first `count`."""
        if order == 0:
            return lambda weights: [tree.detach(d) for d in self._walked(net, episode, count, weights)]
        if order == 1 or count == 1:
            return lambda weights: self._walked(net, episode, count, weights)

        def directions(weights: Params) -> list[Params]:
            values, pull, *_ = vjp(self._terms(net, episode, order, count), weights)
            parts = [pull(one)[0] for one in torch.eye(count, dtype=values.dtype, device=values.device)]
            return [{n: torch.stack([p[n] for p in parts[: k + 1]]).sum(0) for n in weights} for k in range(count)]

        return directions

    def _walked(self, net: Net, episode: Episode, count: int, weights: Params) -> list[Params]:
        """The first-order directions d_i = d_{i-1} + beta * grad l(D_i, .) at w - alpha * d_{i-1}."""
        found = [grad(net.loss)(weights, episode.minibatch(0))]
        for i in range(1, count):
            alpha, beta = self.coefficients(i, episode.domains)
            new = grad(net.loss)(tree.add(weights, found[-1], -alpha), episode.minibatch(i))
            found.append(tree.add(found[-1], new, beta))
        return found
