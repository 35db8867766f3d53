"""Undo-Bias for deep networks. `Sequential` of it is S-Undo-Bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from seqdg.algorithms import _branches as branches
from seqdg.base import Episode, Params, tree
from seqdg.core import Chainable, Loss, Number, Range, register, setting
from seqdg.nets import Net

EPSILON = 1e-6  # the norm is sqrt(s + EPSILON^2), so that equal copies (the start) give no kick


@register("undo-bias")
@dataclass(frozen=True)
class UndoBias(Chainable):
    """Undo-Bias (Khosla et al., ECCV 2012) for deep networks, as Li et al. (2020, appendix B) restate it.

    Every source domain has its own copy w_i of the chosen weights, drawn to the mean of all copies, which is deployed:

        L(w_1, ..., w_N) = sum over i of l(D_i, w_i) + lam * || w_i - mean over j of w_j ||

    `Sequential` of it is S-Undo-Bias: along the path, a copy is drawn to the mean of those before it,

        L_i = L_{i-1} + l(D_i, w_i) + lam * || w_i - mean over j < i of w_j ||

    and gradients reach those too.

    The pulls cancel in the mean of all copies, which they never move. A norm pulls as strongly however near the copies
    are, so they swing about their mean by some lr * lam: keep that small beside the weights, or take the square. With
    the square, S-Undo-Bias averaged over all paths is Undo-Bias with lam * (1 + (1 + 1/2 + ... + 1/(N-1)) / (N-1)),
    1.75 times lam for 3 domains. `tests/paper/test_shallow_undo_bias.py` shows it on linear models.

    The paper says that S-Undo-Bias saves computation over Undo-Bias. Here it does not: all N distances of Undo-Bias are
    to one mean, S-Undo-Bias has a mean for each position. With branches in the head both take the same time within
    errors, and in stacks of small networks on a GPU with branches of the whole net too.

    lam: how strongly copies are drawn together.
    squared: the squared norm in place of the norm.
    branches: which weights have a copy per domain: all, those of the head, or those whose name matches.
    """

    lam: Number = setting(2.0, least=0.0, search=Range(0.1, 100.0))
    squared: bool = setting(False)
    branches: str = setting("all")
    needs: ClassVar[int] = 2
    sums: ClassVar[bool] = True

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        self.check_path(net, sources)

    def check_path(self, net: Net, length: int) -> None:
        branches.select_names(net, self.branches)

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        return branches.split(params, branches.select_names(net, self.branches), sources)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        copies = branches.order_copies(params, episode.domain)
        centre = branches.average(copies)
        distances = vmap(lambda copy: self._distance(copy, centre))(copies)
        return (
            branches.compute_losses(net, branches.select_shared(params), copies, episode).sum()
            + self.lam * distances.sum()
        )

    def begin(self, net: Net, episode: Episode) -> Loss:
        return lambda weights: net.loss(branches.select_weights(weights, episode, 0), episode.minibatch(0))

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        def total(weights: Params) -> Tensor:
            here = branches.select_weights(weights, episode, i)
            before = branches.average_copies(weights, episode.domain.narrow(0, 0, i))
            return past(weights) + net.loss(here, episode.minibatch(i)) + self.lam * self._distance(here, before)

        return total

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        return self._gradient(net, params, episode, branches.build_contrast)

    def along(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        """The whole path at once."""
        return self._gradient(net, params, episode, branches.build_past_contrast)

    def _gradient(
        self, net: Net, params: Params, episode: Episode, build: Callable[[Tensor], Tensor]
    ) -> tuple[Params, Tensor]:
        """That of the losses and that of the pull in closed form: contrasts C w of the copies have

        d/dw of lam * sum over i of || (C w)_i ||  =  C' (lam / || (C w)_i || * (C w)_i)
        """
        direction, value = branches.compute_gradient(net, params, episode)
        met = branches.select_met(episode.domain, branches.count_sources(params), episode.x.dtype)
        contrasts = branches.Contrasts(build(met), branches.select_copies(params))
        square = contrasts.measure()
        distance = square if self.squared else torch.sqrt(square + EPSILON**2)
        pull = 2.0 * self.lam * torch.ones_like(square) if self.squared else self.lam / distance
        for name in contrasts.copies:
            full = branches.PREFIX + name
            direction[full] = contrasts.add_pull(name, pull, direction[full])
        return direction, value + self.lam * distance.sum()

    def deploy(self, params: Params, memory: Params) -> Params:
        return {**branches.select_shared(params), **branches.average(branches.select_copies(params))}

    def _distance(self, copy: Params, centre: Params) -> Tensor:
        square = tree.squared_norm({name: copy[name] - w for name, w in centre.items()})
        return square if self.squared else torch.sqrt(square + EPSILON**2)
