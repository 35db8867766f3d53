"""MixStyle: mix the styles of two rows between the layers of a net."""

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

STREAM = 0x4D53


@register("mixstyle")
@dataclass(frozen=True)
class MixStyle(Algorithm):
    """Domain generalization with MixStyle (Zhou et al., ICLR 2021).

    At some points of the net, each row h of the batch gets a mixture of its own style and that of another row, h':

        h <- s * (h - mean(h)) / dev(h) + m
        m = t * mean(h) + (1 - t) * mean(h'),   s = t * dev(h) + (1 - t) * dev(h'),   t drawn from Beta(spread, spread)

    Mean and deviation are over the positions of a channel, and no gradient flows through them; of vectors, which have
    no positions, over their entries. In a step, each point mixes with probability p. The loss is AGG's.

    p: the probability that a point mixes.
    spread: both parameters of the Beta distribution; the smaller, the less is mixed.
    points: where: `all`, or names such as `after1,after2`.
    partners: another row is one of the next `domain` of the path, or any at `random`.
    """

    p: Number = setting(0.5, least=0.0, most=1.0, search=Range(0.2, 1.0, log=False))
    spread: Number = setting(0.1, above=0.0, search=Range(0.05, 1.0))
    points: str = setting("after1,after2")
    partners: str = setting("domain", choices=("domain", "random"))
    needs_points: ClassVar[bool] = True

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        layers.choose_points(net, self.points, "MixStyle")

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        names = layers.choose_points(net, self.points, "MixStyle")
        mixing = net.with_points({name: self._mix(episode, i) for i, name in enumerate(names)})
        return mixing.losses(params, episode).mean()

    def _mix(self, episode: Episode, number: int) -> Callable[[Tensor], Tensor]:
        key = layers.draw_key(episode, STREAM, number)

        def mix(h: Tensor) -> Tensor:
            mean, deviation = (part.detach() for part in layers.measure_style(h))
            swap = layers.roll_domains(episode.domains)
            if self.partners == "random":
                swap = layers.shuffle_rows(noise.fold(key, 0), h)
            share = noise.beta(noise.fold(key, 1), self.spread, (h.shape[0],), h.dtype)
            share = share.reshape(-1, *(1,) * (h.dim() - 1))
            mixed = (h - mean) / deviation * (share * deviation + (1 - share) * swap(deviation))
            mixed = mixed + share * mean + (1 - share) * swap(mean)
            return torch.where(noise.uniform(noise.fold(key, 2), (), h.dtype) < self.p, mixed, h)

        return mix
