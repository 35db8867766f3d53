"""Mixup between domains, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.base import Episode, Params, UsageError, noise
from seqdg.core import Number, Range, Wrapper, register, setting
from seqdg.nets import Criterion, Net

STREAM = 0x6D697875700000  # makes a key of its own from an episode's


@register("mixup")
@dataclass(frozen=True)
class Mixup(Wrapper):
    """Mixup between domains (Zhang et al., ICLR 2018; Yan et al. 2020; Wang et al. 2020).

    Each domain of the path is mixed with the next, and the last with the first:

        x_i <- m_i * x_i + (1 - m_i) * x_{i+1},   loss <- m_i * l(., y_i) + (1 - m_i) * l(., y_{i+1})
        m_i drawn from Beta(mix, mix), once for all rows of the domain

    base: the algorithm inside, which sees mixed domains.
    mix: both parameters of the Beta distribution; the smaller, the less is mixed.
    """

    mix: Number = setting(0.2, above=0.0, search=Range(0.1, 10.0))
    acts_on: ClassVar[str] = "inputs"

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        if self.base.hard_labels:
            raise UsageError(
                f"{type(self.base).__name__} reads the label of each row, and mixup gives a row two: drop +mixup."
            )

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        return self.base.loss(*self._mix(net, params, episode))

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        mixed_net, _, mixed = self._mix(net, params, episode)
        return super().step(mixed_net, params, memory, mixed)

    def _mix(self, net: Net, params: Params, episode: Episode) -> tuple[Net, Params, Episode]:
        share = noise.beta(episode.key ^ STREAM, self.mix, (episode.domains,), episode.x.dtype)
        rows = share.reshape(-1, *(1,) * (episode.x.dim() - 1))
        x = rows * episode.x + (1 - rows) * episode.x.roll(-1, 0)
        shares = share[:, None, None].expand(*episode.y.shape[:2], 1)
        y = episode.y.to(x.dtype).reshape(*episode.y.shape[:2], -1)
        labels = torch.cat([y, y.roll(-1, 0), shares], -1)
        return net.with_criterion(judge_both(net.criterion, net.is_regression)), params, episode._replace(x=x, y=labels)


def judge_both(criterion: Criterion, is_regression: bool = False) -> Criterion:
    """Make a criterion of labels (row, 3): that of a row, that of its partner, and the share of the first; with weights
    of rows, (row, 5), as each of the two labels then has a weight beside it."""

    def judge(logits: Tensor, labels: Tensor) -> Tensor:
        share, count = labels[0, -1], labels.shape[-1] // 2
        first, second = labels[:, :count], labels[:, count : 2 * count]
        row_loss, partner_loss = (criterion(logits, read(y)) for y in (first, second))
        return share * row_loss + (1 - share) * partner_loss

    def read(y: Tensor) -> Tensor:
        if y.shape[-1] > 1:
            return y
        return y.squeeze(-1) if is_regression else y.squeeze(-1).long()

    return judge
