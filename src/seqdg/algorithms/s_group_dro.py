"""S-GroupDRO: FO-S-MLDG whose weights of the domains follow their losses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.algorithms._look_ahead import extend_first_order, judge
from seqdg.algorithms.group_dro import begin_weights, follow_losses, select_weights
from seqdg.base import Episode, Params, tree
from seqdg.core import Chainable, Loss, Number, Numbers, Range, check_count, pick, register_chain, setting
from seqdg.nets import Net


@register_chain("s-group-dro")
@dataclass(frozen=True)
class ChainedGroupDRO(Chainable):
    """S-GroupDRO: sequential learning (Li et al. 2020) of GroupDRO (Sagawa, Koh, Hashimoto and Liang, ICLR 2020).

    The path is FO-S-MLDG's. How much a domain counts in it follows from its losses after the look-ahead, in the steps
    before: q is equal for all sources at first, and carried from step to step.

        g_i = g_{i-1} + beta_i * grad l(D_i, .) at w_i,   w_i = w - alpha * g_{i-1},   beta_i = N * q_i,   g_0 = 0
        after the step  q_i <- q_i * exp(eta * l(D_i, w_i)) / Z

    where q_i is that of the source of D_i. Without eta it is FO-S-MLDG.

    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    eta: how fast the weights follow the losses.
    """

    alpha: Numbers = setting(0.1, least=0.0, per_position=True, search=Range(1e-3, 1.0))
    eta: Number = setting(0.01, least=0.0, search=Range(1e-3, 0.1))

    def check_path(self, net: Net, length: int) -> None:
        check_count("alpha", self.alpha, (length - 1,), length)

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return begin_weights(params, sources)

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        """Return the loss of the first step, in which all weights are equal."""
        return extend_first_order(past, judge(net, episode, i), pick(self.alpha, i - 1), 1.0)

    def follow(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        betas, losses = select_weights(memory["q"], episode.domain), []
        direction, ahead = tree.scale(params, 0.0), params
        for i in range(episode.domains):
            if i:
                ahead = tree.add(params, direction, -pick(self.alpha, i - 1))
            new, loss = grad_and_value(net.loss)(ahead, episode.minibatch(i))
            direction = tree.add(direction, new, betas.select(0, i))
            losses.append(loss)
        met = torch.stack(losses)
        q = follow_losses(memory["q"], met.detach(), episode.domain, self.eta)
        return direction, (betas * met).sum(), {"q": q}
