"""SagNet: a net that judges by content and not by style."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, UsageError, noise, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

STREAM, PREFIX = 0x5361674E, "style."


@register("sagnet")
@dataclass(frozen=True)
class SagNet(Algorithm):
    """Reducing domain gap by reducing style bias (Nam et al., CVPR 2021).

    A point divides the net into features f and the rest c. A second rest, s, learns to judge by style. For a random
    other row h' of the batch, with style and content as in AdaIN:

        content: l(D_i, c(h with a random mixture of its style and that of h')),   which f and c learn
        style: l(D_i, s(content of h' with the style of h)),   which s alone learns
        adversary * cross-entropy of the latter against the uniform distribution,   which f alone learns

    As in the authors' program, the content of h' is a constant in the last two, so that f changes styles alone there.
    DomainBed's form divides below the head; the paper's inside the backbone.

    What differs from that program: there the last term reaches the scales and shifts of f's BatchNorm alone, by a
    gradient of at most length 0.1, and BatchNorm takes the rows of all domains together. Here it reaches all weights of
    f, at any length, as in DomainBed; and a net that normalizes by its minibatches takes each domain by itself in the
    first two terms.

    adversary: weight of the last (DomainBed: 0.1, searched from 0.01 to 10).
    point: where the net is divided; `last` is the last point.
    """

    adversary: Number = setting(0.1, least=0.0, search=Range(0.01, 10.0))
    point: str = setting("last")
    needs_points: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        point = self._find_point(net)
        if not net.list_names_after(point):
            raise UsageError(f"SagNet divides the net at '{point}', but nothing after it is trained: choose another.")

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        rest = {name: params[name] for name in net.list_names_after(self._find_point(net))}
        return {**params, **tree.with_prefix(rest, PREFIX)}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        point = self._find_point(net)
        weights, judge = tree.without_prefix(params, PREFIX), tree.under_prefix(params, PREFIX)
        key = layers.draw_key(episode, STREAM, 0)
        content = net.with_points({point: randomize_style(noise.fold(key, 0))}).losses(weights, episode).mean()
        styled = net.with_points({point: randomize_content(noise.fold(key, 1))})
        style = styled.losses({**tree.detach(weights), **judge}, episode).mean()
        x = episode.x.flatten(0, 1)
        logits = styled({**weights, **tree.detach(judge)}, x, episode.keys)
        confusion = -log_softmax(logits, -1).mean()
        return content + style + self.adversary * confusion

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(params, PREFIX)

    def _find_point(self, net: Net) -> str:
        return layers.choose_points(net, "all" if self.point == "last" else self.point, "SagNet")[-1]


def randomize_style(key: Tensor) -> Callable[[Tensor], Tensor]:
    def change(h: Tensor) -> Tensor:
        swap, (mean, deviation) = layers.shuffle_rows(noise.fold(key, 0), h), layers.measure_style(h)
        share = noise.uniform(noise.fold(key, 1), (h.shape[0], *(1,) * (h.dim() - 1)), h.dtype)
        new_mean, new_deviation = (share * part + (1 - share) * swap(part) for part in (mean, deviation))
        return (h - mean) / deviation * new_deviation + new_mean

    return change


def randomize_content(key: Tensor) -> Callable[[Tensor], Tensor]:
    def change(h: Tensor) -> Tensor:
        swap, (mean, deviation) = layers.shuffle_rows(noise.fold(key, 0), h), layers.measure_style(h)
        return swap(((h - mean) / deviation).detach()) * deviation + mean

    return change
