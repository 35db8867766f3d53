"""RSC: representation self-challenging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("rsc")
@dataclass(frozen=True)
class RSC(Algorithm):
    """Representation self-challenging (Huang, Wang, Xing and Huang, ECCV 2020).

    The features z of a row with label y are muted where they speak most for y, in the rows that lose most by it:

        g = d head(z)_y / dz,                                m = 0 where g is among the largest of its row, else 1
        c = softmax(head(z))_y - softmax(head(m * z))_y,     m = 1 in all rows where c is not among the largest
        L(w) = 1/N * sum over i of l(D_i, head(m * z))

    with m a constant. "Among the largest" means at or above the percentile, linearly interpolated, as in DomainBed: so
    at least one feature of at least one row is muted, even at 0.

    feature_share: of a row's features, those that are muted.
    row_share: of all rows, those whose features are muted.
    """

    feature_share: Number = setting(1 / 3, least=0.0, most=1.0, search=Range(0.05, 0.5, log=False))
    row_share: Number = setting(1 / 3, least=0.0, most=1.0, search=Range(0.05, 0.5, log=False))
    hard_labels: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        return layers.label_loss(net, params, z * self.mask(net, params, z, episode.y).detach(), episode.y)

    def mask(self, net: Net, params: Params, z: Tensor, y: Tensor) -> Tensor:
        """Return (domain, batch, feature) 0 where a feature is muted, else 1."""
        logits = net.head(params, z)
        chosen = layers.one_hot(y, logits)
        towards = chosen @ params[net.head_names[0]]  # the gradient of the label's logit, for the head is linear
        keep = towards < percentile(towards, 1.0 - self.feature_share)
        before, after = torch.softmax(logits, -1), torch.softmax(net.head(params, z * keep), -1)
        change = ((before - after) * chosen).sum(-1)
        return (keep | (change < percentile(change.flatten(), 1.0 - self.row_share)).unsqueeze(-1)).to(z.dtype)


def percentile(values: Tensor, share: Number) -> Tensor:
    """Return (..., 1) the value below which a share of the last axis lies, linearly interpolated."""
    last = values.shape[-1] - 1
    position = (values.new_zeros(()) + share * last).to(values.dtype)
    whole = position.round()
    position = torch.where((position - whole).abs() < 1e-4, whole, position)  # else rounding decides what is equal
    weights = torch.relu(1.0 - (torch.arange(last + 1, device=values.device) - position).abs())
    return (values.sort(-1).values * weights).sum(-1, keepdim=True)
