"""SAND-mask: an AND-mask that is soft, and softer where the domains' gradients differ more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms._penalties import apply_mask, compute_gradients, measure_agreement
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

TINY = 1e-30  # where all gradients are 0, so is their variance


@register("sand-mask")
@dataclass(frozen=True)
class SANDMask(Algorithm):
    """SAND-mask (Shahtalebi et al. 2021): an AND-mask that also asks how far the domains' gradients lie apart.

    With g_i = grad l(D_i, w), and per entry of the weights:

        m = max(0, tanh(k * (|1/N * sum over i of sign(g_i)| - tau) / variance over i of g_i))
        direction = m / mean(m) * 1/N * sum over i of g_i

    with mean(m) over the entries of each tensor of weights. Published are tau = 1 and k = 10. But at tau = 1 no entry
    ever learns, for m is 0 even where all signs agree; and k = 10 makes the mask of gradients that are small beside 1
    as hard as AND-mask's.

    tau: agreement below which an entry does not learn.
    k: how hard the mask is.
    """

    tau: Number = setting(0.3, least=0.0, most=1.0, search=Range(0.0, 0.95, log=False))
    k: Number = setting(1.0, above=0.0, search=Range(1e-3, 10.0))
    needs: ClassVar[int] = 2

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        gradients, losses = compute_gradients(net, params, episode)
        masked = {name: apply_mask(self.mask(g), g) for name, g in gradients.items()}
        return masked, losses.mean()

    def mask(self, gradients: Tensor) -> Tensor:
        surplus = measure_agreement(gradients) - self.tau
        return torch.relu(torch.tanh(self.k * surplus / (gradients.var(0) + TINY)))
