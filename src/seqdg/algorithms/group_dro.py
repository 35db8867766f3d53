"""GroupDRO: the worst domain counts most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("group-dro")
@dataclass(frozen=True)
class GroupDRO(Algorithm):
    """Group distributionally robust optimization (Sagawa, Koh, Hashimoto and Liang, ICLR 2020), its Algorithm 1.

    The weights q of the domains, equal at first, are carried from step to step and grow where the loss is large:

        q_i <- q_i * exp(eta * l(D_i, w)) / Z,   direction = sum over i of q_i * grad l(D_i, w)

    where Z makes them sum to 1.

    eta: how fast the weights follow the losses (DomainBed: 0.01, searched from 0.001 to 0.1).
    """

    eta: Number = setting(0.01, least=0.0, search=Range(1e-3, 0.1))
    needs: ClassVar[int] = 2

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return begin_weights(params, sources)

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        def robust(weights: Params) -> tuple[Tensor, Params]:
            losses = net.losses(weights, episode)
            q = follow_losses(memory["q"], losses.detach(), episode.domain, self.eta)
            return (select_weights(q, episode.domain) * losses).mean(), {"q": q}

        direction, (value, kept) = grad_and_value(robust, has_aux=True)(params)
        return direction, value, kept

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        """Return those of the first step."""
        return self.step(net, params, self.memory(net, params, episode.domains), episode)[:2]


def begin_weights(params: Params, sources: int) -> Params:
    """Return q (source,), all equal."""
    like = next(iter(params.values()))
    return {"q": torch.full((sources,), 1.0 / sources, dtype=like.dtype, device=like.device)}


def follow_losses(q: Tensor, losses: Tensor, domain: Tensor, eta: Number) -> Tensor:
    """Return the new q (source,) after losses (domain,) of the path."""
    up = eta * losses @ _find_sources(domain, q)  # 0 for sources that were not met
    raised = q * torch.exp(up - up.max())
    return raised / raised.sum()


def select_weights(q: Tensor, domain: Tensor) -> Tensor:
    """Return (domain,) those of the domains of the path, in its order, times the number of sources: 1 at first."""
    return len(q) * (_find_sources(domain, q) @ q)


def _find_sources(domain: Tensor, q: Tensor) -> Tensor:
    """Return (domain, source) 1 where the domain is the source, else 0."""
    return (domain.unsqueeze(1) == torch.arange(len(q), device=domain.device)).to(q.dtype)
