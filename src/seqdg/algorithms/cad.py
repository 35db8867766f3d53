"""CAD: features that do not reveal the domain, by contrast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

BASE_TEMPERATURE = 0.07  # of DomainBed, so that `lam` means what it means there


@register("cad")
@dataclass(frozen=True)
class CAD(Algorithm):
    """Contrastive adversarial domain bottleneck, CAD and CondCAD (Ruan, Dubois and Maddison, ICLR 2022).

    From the features z of a row it should be hard to find rows of its own domain among all others:

        L(w) = 1/N * sum over i of l(D_i, w) - lam * temperature/0.07 * mean over rows r of log(S_r(others) / S_r(all))
        S_r(set) = sum over rows q of the set of exp(z_r . z_q / temperature)

    `others` are the rows of other domains, `all` the rows but r. Conditional, both have the label of r. As in
    DomainBed, rows without a partner count in no mean: without another row of their label, or, conditional, without
    one in another domain.

    lam: weight of the bottleneck. DomainBed's 0.1, searched from 0.0001 to 100, presupposes Adam at a rate of 5e-5.
    temperature: the lower, the more the nearest rows count.
    conditional: compare only rows of one label (CondCAD).
    """

    lam: Number = setting(0.01, least=0.0, search=Range(1e-4, 100.0))
    temperature: Number = setting(0.1, above=0.0, search=(0.05, 0.1))
    conditional: bool = setting(False)
    needs: ClassVar[int] = 2
    hard_labels: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        rows, y, domain = z.flatten(0, 1), episode.y.flatten(), episode.domain.repeat_interleave(z.shape[1])
        scores = rows @ rows.mT / self.temperature
        same, partners = y.unsqueeze(1) == y, ~torch.eye(len(y), dtype=torch.bool, device=y.device)
        others = domain.unsqueeze(1) != domain
        valid = (same & partners).any(1)
        if self.conditional:
            others, partners = others & same, partners & same
            valid = others.any(1)
        odds = log_sum(scores, others, valid) - log_sum(scores, partners, valid)
        bottleneck = -(odds * valid).sum() / valid.sum().clamp_min(1)
        weight = self.lam * self.temperature / BASE_TEMPERATURE
        return layers.label_loss(net, params, z, episode.y) + weight * bottleneck


def log_sum(scores: Tensor, mask: Tensor, valid: Tensor) -> Tensor:
    """Return (row,) the logarithm of the sum of exp(scores) where the mask is; of all of them in a row that is not
    valid, so that it is finite."""
    return scores.masked_fill(~(mask | ~valid.unsqueeze(1)), -torch.inf).logsumexp(1)
