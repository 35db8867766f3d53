"""DSU: styles as random variables between the layers of a net."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, noise
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

STREAM = 0x445355


@register("dsu")
@dataclass(frozen=True)
class DSU(Algorithm):
    """Uncertainty modelling for out-of-distribution generalization (Li et al., ICLR 2022).

    At some points of the net, the style of each row h gets noise, as wide as styles vary over the rows of the batch:

        h <- s * (h - mean(h)) / dev(h) + m,   m = mean(h) + e_m * D(mean),   s = dev(h) + e_s * D(dev)
        D: the deviation over rows,   e_m, e_s: standard normal, for each row and channel

    Mean and deviation of h are over the positions of a channel; of vectors, which have no positions, over their
    entries. In a step, each point adds noise with probability p. The loss is AGG's.

    p: the probability that a point adds noise.
    points: where: `all`, or names such as `after1,after2`.
    """

    p: Number = setting(0.5, least=0.0, most=1.0, search=Range(0.2, 1.0, log=False))
    points: str = setting("all")
    needs_points: ClassVar[bool] = True

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        layers.choose_points(net, self.points, "DSU")

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        names = layers.choose_points(net, self.points, "DSU")
        shaking = net.with_points({name: self._shake(episode, i) for i, name in enumerate(names)})
        return shaking.losses(params, episode).mean()

    def _shake(self, episode: Episode, number: int) -> Callable[[Tensor], Tensor]:
        key = layers.draw_key(episode, STREAM, number)

        def add_noise(part: Tensor, number: int) -> Tensor:
            width = torch.sqrt(part.var(0, keepdim=True) + layers.EPSILON)
            return part + noise.normal(noise.fold(key, number), part.shape, part.dtype) * width

        def shake(h: Tensor) -> Tensor:
            mean, deviation = layers.measure_style(h)
            shaken = (h - mean) / deviation * add_noise(deviation, 0) + add_noise(mean, 1)
            return torch.where(noise.uniform(noise.fold(key, 2), (), h.dtype) < self.p, shaken, h)

        return shake
