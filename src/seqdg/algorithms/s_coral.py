"""S-CORAL: CORAL along the path, with a look-ahead and a pooled past."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seqdg.algorithms import _penalties as penalties
from seqdg.algorithms._look_ahead import FirstOrderLookAhead
from seqdg.base import Episode, Params
from seqdg.core import Loss, Number, Range, check_features, register_chain, setting
from seqdg.nets import Net


@register_chain("s-coral")
@dataclass(frozen=True)
class ChainedCORAL(FirstOrderLookAhead):
    """S-CORAL: sequential learning (Li et al. 2020) of CORAL (Sun and Saenko, ECCV 2016 workshops).

    After a step on the past, a new domain should be classified well, and look like all that was met before:

        L_i(w) = L_{i-1}(w) + beta * (l(D_i, w') + gamma * d_i(w')),   w' = w - alpha * stop(grad L_{i-1}(w))
        d_i = mean of (m_i - m_<i)^2 + mean of (C_i - C_<i)^2,   over their entries

    where m_i and C_i are the mean and the covariance of the features of D_i that enter the head, and m_<i and C_<i
    those of the rows of D_1, ..., D_{i-1} together, all at w'. A pooled past and a look-ahead are what the path adds:
    CORAL over pairs of domains folds into itself. Without gamma it is FO-S-MLDG. It takes N (N + 1) / 2 passes over a
    minibatch where FO-S-MLDG takes N.

    gamma: weight of the distance to the past.
    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    beta: weight of the new domain, one for all positions or the last few of beta_2, ..., beta_N (1 where missing).
    """

    gamma: Number = setting(1.0, least=0.0, search=Range(0.1, 10.0))

    def check_path(self, net: Net, length: int) -> None:
        super().check_path(net, length)
        check_features(net, "S-CORAL")

    def judge_domain(self, net: Net, episode: Episode, i: int) -> Loss:
        """Return the loss on the i-th domain, and how far it is from the past."""
        penalties.check_rows(episode, "S-CORAL")

        def loss(weights: Params) -> Tensor:
            z = net.domain_features(weights, episode.part(0, i + 1))
            new, before = z.select(0, i), z.narrow(0, 0, i).flatten(0, 1)
            apart = penalties.compare_moments(penalties.compute_moments(new), penalties.compute_moments(before))
            return net.criterion(net.head(weights, new), episode.y.select(0, i)) + self.gamma * apart

        return loss
