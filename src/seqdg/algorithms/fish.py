"""Fish: Reptile over the domains, with Adam inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual constants


@register("fish")
@dataclass(frozen=True)
class Fish(Algorithm):
    """Gradient matching for domain generalization (Shi et al., ICLR 2022): walk the path by Adam, then step towards
    where it ended.

        w_1 = w,   w_{i+1} = w_i - alpha * Adam(grad l(D_i, .) at w_i),   direction = w - w_{N+1}

    Adam's moments go on from step to step. With plain SGD at learning rate gamma the update is
    w + gamma * (w_{N+1} - w), and gamma is the paper's epsilon, DomainBed's meta_lr (0.5). With plain inner steps it is
    `ffo-s-mldg`.

    alpha: length of an inner step. DomainBed's is 1e-3 for small images and 5e-5 for pretrained networks.
    """

    alpha: Number = setting(1e-3, above=0.0, search=Range(1e-5, 1e-2))
    optimizer: ClassVar[str] = "sgd"

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        zeros = {name: torch.zeros_like(w) for name, w in params.items()}
        count = torch.zeros((), dtype=torch.int64, device=next(iter(params.values())).device)
        return {**tree.with_prefix(zeros, "first."), **tree.with_prefix(zeros, "second."), "count": count}

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        first, second = tree.under_prefix(memory, "first."), tree.under_prefix(memory, "second.")
        weights, count, losses = params, memory["count"], []
        for i in range(episode.domains):
            g, loss = grad_and_value(net.loss)(weights, episode.minibatch(i))
            count = count + 1
            first = {name: FIRST * m + (1.0 - FIRST) * g[name] for name, m in first.items()}
            second = {name: SECOND * m + (1.0 - SECOND) * g[name] ** 2 for name, m in second.items()}
            a, b = (1.0 - torch.pow(decay, count.to(loss.dtype)) for decay in (FIRST, SECOND))
            weights = {
                n: w - self.alpha * first[n] / a / (torch.sqrt(second[n] / b) + EPSILON) for n, w in weights.items()
            }
            losses.append(loss)
        kept = {**tree.with_prefix(first, "first."), **tree.with_prefix(second, "second."), "count": count}
        return tree.add(params, weights, -1.0), torch.stack(losses).mean(), kept
