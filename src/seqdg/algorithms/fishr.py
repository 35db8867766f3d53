"""Fishr: the gradients of single rows vary alike in all domains. `Sequential` of it is S-Fishr."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from seqdg.algorithms import _branches as branches
from seqdg.algorithms._penalties import split_stages
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Chainable, Loss, Number, Range, check_features, register, setting
from seqdg.nets import Net


@register("fishr")
@dataclass(frozen=True)
class Fishr(Chainable):
    """Invariant gradient variances for out-of-distribution generalization (Rame, Dancette and Cord, ICML 2022).

    v_i is the variance, over the rows of D_i, of the gradient of a row's loss for each of the head's weights, and m_i
    its moving average over the steps. After some steps of AGG, and with a new optimizer:

        m_i <- keep * m_i + (1 - keep) * v_i,   u_i = m_i / (1 - keep)
        L(w) = 1/N * sum over i of l(D_i, w) + lam * 1/N * sum over i of mean((u_i - 1/N * sum over j of u_j)^2)

    where the mean is over the head's weights, and what m_i was before is a constant: as in the authors' code.

    `Sequential` of it is S-Fishr: a new domain's variances are to be as those of the path so far, which are held fixed,

        L_i(w) = L_{i-1}(w) + l(D_i, w) + lam * mean((v_i - stop(1/(i-1) * sum over j < i of v_j))^2)

    and the path takes the place of the moving average.

    lam: weight of the penalty. The published 1000 presupposes Adam at 5e-5.
    keep: how much of a moving average is kept at every step.
    anneal: the share of the steps with AGG; 0.3 is published.
    """

    lam: Number = setting(10.0, least=0.0, search=Range(0.1, 1000.0))
    keep: Number = setting(0.95, least=0.0, most=0.999, search=Range(0.9, 0.99, log=False))
    anneal: float = setting(0.3, least=0.0, most=0.9, static=True, search=(0.0, 0.3, 0.6))
    needs: ClassVar[int] = 2
    alone: ClassVar[tuple[str, ...]] = ("keep",)
    needs_features: ClassVar[bool] = True

    def check_path(self, net: Net, length: int) -> None:
        check_features(net, "Fishr")

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return split_stages(self.anneal, replace(self, lam=0.0), self)

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return {
            f"variance.{name}": torch.zeros_like(params[name]).expand(sources, *params[name].shape).clone()
            for name in net.head_names
        }

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        all_before = tree.under_prefix(memory, "variance.")
        before = {name: m.index_select(0, episode.domain) for name, m in all_before.items()}

        def compute(weights: Params) -> tuple[Tensor, Params]:
            losses, variances = compute_variances(net, weights, episode)
            kept = {name: self.keep * before[name] + (1.0 - self.keep) * v for name, v in variances.items()}
            apart = {name: (m - m.mean(0)) / (1.0 - self.keep) for name, m in kept.items()}
            return losses.mean() + self.lam * mean_square(apart), tree.detach(kept)

        direction, (value, kept) = grad_and_value(compute, has_aux=True)(params)
        after = {name: branches.replace_met(m, kept[name], episode.domain) for name, m in all_before.items()}
        return direction, value, tree.with_prefix(after, "variance.")

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        def total(weights: Params) -> Tensor:
            losses, variances = compute_variances(net, weights, episode.part(0, i + 1))
            return past(weights) + losses.select(0, i) + self.lam * mean_square(compare(variances, i))

        return total

    def along(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        def total(weights: Params) -> Tensor:
            losses, variances = compute_variances(net, weights, episode)
            apart = [mean_square(compare(variances, i)) for i in range(1, episode.domains)]
            return losses.sum() + self.lam * sum(apart, torch.zeros_like(losses.sum()))

        direction, value = grad_and_value(total)(params)
        return direction, value


def compute_variances(net: Net, params: Params, episode: Episode) -> tuple[Tensor, Params]:
    """Return (domain,) the losses, and (domain, ...) the variances of the rows' gradients, by names of the head.

    The head is linear: a row's gradient is d z' for its weight and d for its bias, d that of the row's logits.
    """
    z = net.domain_features(params, episode)
    logits = net.head(params, z)
    # A criterion takes the mean over rows: here of one.
    by_row = vmap(vmap(grad(lambda row, label: net.criterion(row.unsqueeze(0), label.unsqueeze(0)))))
    d = by_row(logits, episode.y)
    rows = d.shape[1]
    weight, *bias = net.head_names
    squares, mean = (d**2).transpose(1, 2) @ z**2 / rows, d.transpose(1, 2) @ z / rows
    return net.losses_from_logits(logits, episode.y), {
        weight: squares - mean**2,
        **{name: d.var(1, unbiased=False) for name in bias},
    }


def compare(variances: Params, i: int) -> Params:
    """Return the variances of domain i less the mean of those before it, which is a constant."""
    return {name: v.select(0, i) - v.narrow(0, 0, i).mean(0).detach() for name, v in variances.items()}


def mean_square(values: Params) -> Tensor:
    return torch.cat([v.flatten() for v in values.values()]).square().mean()
