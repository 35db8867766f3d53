"""WiSE: between the weights before training and those after it, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seqdg.base import Params, tree
from seqdg.core import Averaging, Number, Range, register, setting


@register("wise")
@dataclass(frozen=True)
class WiSE(Averaging):
    """Weights between the first and the last (Wortsman et al., "WiSE-FT", CVPR 2022).

        (1 - tuned) * w_first + tuned * w_last   is deployed

    The first weights are those that the last stage starts from: after `+lp`, the pretrained features with a head that
    is trained on them. Without it the head of w_first is as random as a new head is.

    base: the algorithm that fine-tunes.
    tuned: the share of the last weights.
    """

    tuned: Number = setting(0.5, least=0.0, most=1.0, search=Range(0.2, 1.0, log=False))

    def begin(self, params: Params) -> Params:
        return dict(params)

    def observe(self, seen: Params, params: Params, progress: Tensor) -> Params:
        return seen

    def average(self, seen: Params, params: Params) -> Params:
        return tree.mix(seen, params, self.tuned)
