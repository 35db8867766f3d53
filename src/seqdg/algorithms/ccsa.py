"""CCSA: rows of one class lie close in any two domains, rows of different classes apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

EPSILON = 1e-6  # a distance is sqrt(d^2 + EPSILON^2), which has a gradient at d = 0 too


@register("ccsa")
@dataclass(frozen=True)
class CCSA(Algorithm):
    """Classification and contrastive semantic alignment (Motiian, Piccirilli, Adjeroh and Doretto, ICCV 2017).

    Over pairs of rows from two different domains, with d the distance of the features z that enter the head:

        L(w) = (1 - gamma) * 1/N * sum over i of l(D_i, w) + gamma * (L_SA + L_S)
        L_SA = mean over pairs of one class of d^2 / 2
        L_S = mean over pairs of different classes of max(0, margin - d)^2 / 2

    All such pairs of an episode take part; where a step has no pair of a kind, its term is 0. The authors' code
    (github.com/samotiian/CCSA) draws pairs and takes one mean over both kinds without the halves; two means weigh both
    kinds alike.

    gamma: weight of the pairs, 0.25 in the authors' code; with 0 this is AGG.
    margin: distance from which rows of different classes are left alone, 1 in the authors' code.
    """

    gamma: Number = setting(0.25, least=0.0, most=1.0, search=Range(0.01, 0.9))
    margin: Number = setting(1.0, least=0.0, search=Range(0.1, 10.0))
    needs: ClassVar[int] = 2
    hard_labels: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        align, separate = compare_pairs(z, episode.y, self.margin)
        return (1.0 - self.gamma) * layers.label_loss(net, params, z, episode.y) + self.gamma * (align + separate)


def compare_pairs(z: Tensor, y: Tensor, margin: Number) -> tuple[Tensor, Tensor]:
    """Return L_SA and L_S of features (domain, batch, feature) and labels (domain, batch)."""
    rows, labels = z.flatten(0, 1), y.flatten()
    rows = rows - rows.mean(0).detach()  # changes no distance, only its rounding
    domain = torch.arange(z.shape[0], device=z.device).repeat_interleave(z.shape[1])
    lengths = (rows**2).sum(1)
    square = (lengths.unsqueeze(1) + lengths.unsqueeze(0) - 2.0 * rows @ rows.mT).clamp_min(0.0)
    short = (margin - torch.sqrt(square + EPSILON**2)).clamp_min(0.0)
    across = domain.unsqueeze(1) != domain
    alike = labels.unsqueeze(1) == labels
    return _average(0.5 * square, across & alike), _average(0.5 * short**2, across & ~alike)


def _average(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where the mask holds, or 0 where it holds nowhere."""
    chosen = mask.to(values.dtype)
    return (chosen * values).sum() / chosen.sum().clamp_min(1.0)
