"""T3A: a head made of templates, at test time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from seqdg.algorithms import _layers as layers
from seqdg.algorithms.agg import AGG
from seqdg.base import Params, UsageError
from seqdg.core import register, setting
from seqdg.nets import Net


@register("t3a")
@dataclass(frozen=True)
class T3A(AGG):
    """Test-time classifier adjustment (Iwasawa and Matsuo, NeurIPS 2021). Training is AGG's.

    At test time the head gives way to a template per class, the mean direction of its supports: the head's own weights
    of that class, and the features of the rows that the head puts into it. Of these, the `filter_k` that the head is
    surest of (least entropy) are kept:

        S_k = {w_k} and {z : argmax head(z) = k}, of these the filter_k of least H(softmax(head(.)))
        t_k = sum over s in S_k of s / |s|,   logit_k(z) = z . t_k / |t_k|

    In the paper supports accumulate over a stream of rows, so that a prediction depends on all that came before. Here
    they are those of the rows that are predicted together, so that predictions do not depend on the order of batches.

    filter_k: supports of a class that are kept, at most; -1: all.
    """

    filter_k: int = setting(20, least=-1, search=(1, 5, 20, -1))
    inert: ClassVar[tuple[str, ...]] = ("filter_k",)  # where a class has fewer supports
    together: ClassVar[int] = 256
    needs_classes: ClassVar[bool] = True

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        layers.check_head(net, "T3A")
        if self.filter_k == 0:
            raise UsageError("filter_k is 0, but a class needs at least 1 support: give 1 or more, or -1 for all.")

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        z, head = net.features(deployed, x), deployed[net.head_names[0]]
        return z @ self.make_templates(net, deployed, torch.cat([head, z]), len(head)).T

    def make_templates(self, net: Net, params: Params, supports: Tensor, classes: int) -> Tensor:
        """Return the templates (class, feature), of length 1. supports: the head's weights, then features."""
        logits = net.head(params, supports)
        log_p = torch.log_softmax(logits, -1)
        entropy = -(log_p.exp() * log_p).sum(-1)
        label = torch.cat(
            [torch.arange(classes, device=logits.device), logits.narrow(0, classes, len(logits) - classes).argmax(-1)]
        )
        kept = layers.one_hot(label, logits)
        if self.filter_k != -1:  # supports that are equally sure share a rank: those of a row that occurs twice, too
            surer = (entropy.unsqueeze(0) < entropy.unsqueeze(1)) & (label.unsqueeze(0) == label.unsqueeze(1))
            kept = kept * (surer.sum(1) < self.filter_k).unsqueeze(1)
        return normalize(kept.T @ normalize(supports, dim=-1), dim=-1)
