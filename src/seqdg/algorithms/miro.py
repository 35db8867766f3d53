"""MIRO: stay near the features of the first weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.nn.functional import softplus

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

PREFIX, FIRST = "variance.", "first."
START, EPSILON = 0.1, 1e-5  # of the variances


@register("miro")
@dataclass(frozen=True)
class MIRO(Algorithm):
    """Domain generalization by mutual-information regularization with pre-trained models (Cha et al., ECCV 2022).

    At some points the net's h stays near h0, what passes there with the first (pre-trained) weights, on a scale v that
    is learned for each channel:

        L(w, v) = 1/N * sum over i of l(D_i, w) + lam * sum over points of mean of 1/2 * ((h - h0)^2 / v + log v)

    lam: weight of the regularizer (the paper searches 0.001 to 1).
    points: where: `all`, or names such as `after3,after4`.
    rate: how many times as fast as the net the scales learn.

    The defaults are for Adam, as in the paper. Under momentum take a smaller lam: the pull to h0 grows with the squares
    of what passes, and 0.1 threw an EfficientNet-Lite0 far from its first weights within three steps.
    """

    lam: Number = setting(0.1, least=0.0, search=Range(0.001, 1.0))
    points: str = setting("all")
    rate: Number = setting(10.0, above=0.0)
    needs_points: ClassVar[bool] = True

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        layers.choose_points(net, self.points, "MIRO")

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        like = next(iter(params.values()))
        start = math.log(math.expm1(START - EPSILON))
        names = layers.choose_points(net, self.points, "MIRO")
        return {**params, **{PREFIX + name: like.new_full((net.count_channels(name),), start) for name in names}}

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return tree.with_prefix({name: params[name] for name in net.names}, FIRST)

    def pace(self, name: str) -> Number:
        return self.rate if name.startswith(PREFIX) else 1.0

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        names, first = layers.choose_points(net, self.points, "MIRO"), tree.under_prefix(memory, FIRST)
        before: Params = {}
        net.with_points({name: look(before, name) for name in names}).losses(first, episode)

        def loss(weights: Params) -> Tensor:
            now: Params = {}
            looking = net.with_points({name: look(now, name) for name in names})
            value = looking.losses(tree.without_prefix(weights, PREFIX), episode).mean()
            for name in names:
                value = value + self.lam * compare(now[name], before[name], weights[PREFIX + name])
            return value

        direction, value = grad_and_value(loss)(params)
        return direction, value, memory

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(params, PREFIX)


def look(seen: Params, name: str) -> Callable[[Tensor], Tensor]:
    """Make a function for a point that notes what passes."""

    def note(h: Tensor) -> Tensor:
        seen[name] = h
        return h

    return note


def compare(h: Tensor, h0: Tensor, raw: Tensor) -> Tensor:
    """Return the mean of 1/2 * ((h - h0)^2 / v + log v); v is positive and has an entry for each channel."""
    v = softplus(raw) + EPSILON
    shape = (1, 1, -1) if h.dim() == 3 else (1, -1, *(1,) * (h.dim() - 2))  # tokens have their channels last
    v = v.reshape(shape)
    return 0.5 * ((h - h0.detach()) ** 2 / v + torch.log(v)).mean()
