"""S-IRM: IRM along the path, with a look-ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from seqdg.algorithms._look_ahead import FirstOrderLookAhead
from seqdg.algorithms._penalties import anneal_setting, split_stages, weaken
from seqdg.algorithms.irm import compute_slopes
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Loss, Number, Range, register_chain, setting
from seqdg.nets import Net


@register_chain("s-irm")
@dataclass(frozen=True)
class ChainedIRM(FirstOrderLookAhead):
    """S-IRM: sequential learning (Li et al. 2020) of IRM (Arjovsky, Bottou, Gulrajani and Lopez-Paz 2019).

    A net that has made a step on the past should be best as it is on a new domain, and not with its logits f scaled:

        L_i(w) = L_{i-1}(w) + beta * (l(D_i, w') + lam * g_i(w')^2),   w' = w - alpha * stop(grad L_{i-1}(w))
        g_i(w) = d/ds l(D_i, s f) at s = 1,   L_1(w) = l(D_1, w) + lam * g_1(w)^2

    The square is that of the whole minibatch, so that the penalty is never negative; IRM itself multiplies two halves.
    Without lam it is FO-S-MLDG.

    lam: weight of the penalty.
    anneal: share of the steps, at first, in which the weight is at most 1.
    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    beta: weight of the new domain, one for all positions or the last few of beta_2, ..., beta_N (1 where missing).
    """

    lam: Number = setting(0.1, least=0.0, search=Range(0.01, 100.0))
    anneal: float = anneal_setting()

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.anneal, replace(self, lam=weaken(self.lam), anneal=0.0), self)

    def begin(self, net: Net, episode: Episode) -> Loss:
        return self.judge_domain(net, episode, 0)

    def judge_domain(self, net: Net, episode: Episode, i: int) -> Loss:
        """Return the loss on the i-th domain, and the square of its slope."""
        part = episode.part(i, i + 1)

        def loss(weights: Params) -> Tensor:
            logits = net.domain_logits(weights, part)
            losses = net.losses_from_logits(logits, part.y)
            return (losses + self.lam * compute_slopes(net, logits, part.y) ** 2).squeeze(0)

        return loss
