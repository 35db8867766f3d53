"""MetaReg: learn a regularizer by meta-learning, then train with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from seqdg.algorithms import _branches as branches
from seqdg.base import Episode, Params, UsageError, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("metareg")
@dataclass(frozen=True)
class MetaReg(Algorithm):
    """MetaReg (Balaji, Sankaranarayanan and Chellappa, NeurIPS 2018).

    First stage, on copies: a feature net u and a head h_i for each source domain learn, and beside them the weights
    phi of a regularizer R(h) = sum over k of max(phi_k, 0) * |h_k|. For a pair of domains a, b (the first two of the
    path), the head of a makes some steps with the regularizer, each on fresh rows D_a,k of a, and phi learns from how
    b then fares:

        u by 1/N * sum over i of grad_u l(D_i, u, h_i),   h_i by grad l(D_i, u, h_i)
        h = h_a,   for k = 1, 2, ...:  h <- h - alpha * grad_h (l(D_a,k, u, h) + R(h))
        phi by meta_rate * grad_phi l(D_b, u, h)

    Second stage, of as many steps as any other algorithm has: the net w itself, still as it was at first, learns on
    all domains with the regularizer on its head:

        L(w) = 1/N * sum over i of l(D_i, w) + R(head of w)

    So the whole takes two trainings, which is what Table 4 of Li et al. (2020) suggests (20.0 minutes, AGG 11.0).
    Balaji et al. update u once for each domain, we by their mean, so that one learning rate suits both stages; they
    judge phi after that update, we before it. The rows D_a,k are equal parts of the minibatch of a. The max is ours, so
    that no weight is rewarded for growing; in the first stage the gradient passes straight through it, so that a phi
    below 0 may come back. The lengths of both stages and all defaults are ours.

    share: steps of the first stage, in units of the second's.
    inner_steps: how many the head of a makes; a minibatch has at least as many rows.
    alpha: their length.
    meta_rate: learning rate of phi, in units of the optimizer's.
    start: what phi is at first, for every weight of the head.
    """

    share: float = setting(1.0, above=0.0, static=True)
    inner_steps: int = setting(4, least=1)
    alpha: Number = setting(0.1, above=0.0, search=Range(1e-3, 1.0))
    meta_rate: Number = setting(0.3, above=0.0, search=Range(0.03, 3.0))
    start: Number = setting(1e-2, least=0.0, search=Range(1e-5, 3e-2))
    needs: ClassVar[int] = 2

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        if not net.head_names:
            raise UsageError(
                "MetaReg regularizes the head, but this net does not end in a linear layer: "
                "end it in one, or choose another algorithm, such as agg."
            )

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = {name: params[name] for name in net.head_names}
        phi = {name: torch.zeros_like(w) + self.start for name, w in head.items()}
        body = {name: w for name, w in params.items() if name not in head}
        return {
            **params,
            **tree.with_prefix(body, "task."),
            **branches.split(head, head, sources),
            **tree.with_prefix(phi, "phi."),
        }

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return ((self.share, LearnRegularizer(self)), (1.0, self))

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        phi = {name: torch.relu(p) for name, p in tree.under_prefix(params, "phi.").items()}

        def loss(weights: Params) -> Tensor:
            return net.losses(weights, episode).mean() + weighted_l1(phi, weights)

        return grad_and_value(loss)({name: params[name] for name in net.names})

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(branches.select_shared(tree.without_prefix(params, "task.")), "phi.")


@dataclass(frozen=True)
class LearnRegularizer(Algorithm):
    """The first stage."""

    method: MetaReg
    trains_head: ClassVar[bool] = False

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        def tasks(weights: Params) -> tuple[Tensor, Tensor]:
            heads = branches.order_copies(weights, episode.domain)
            z = net.domain_features(tree.under_prefix(weights, "task."), episode)
            logits = vmap(net.head)(heads, z)
            return net.losses_from_logits(logits, episode.y).sum(), z

        trained = {name: w for name, w in params.items() if name.startswith(("task.", branches.PREFIX))}
        direction, (value, z) = grad_and_value(tasks, has_aux=True)(trained)
        direction = {name: d / episode.domains if name.startswith("task.") else d for name, d in direction.items()}
        phi = tree.under_prefix(params, "phi.")
        learned = grad(lambda p: self.judge(net, params, episode, z, p))(phi)
        phi_direction = tree.with_prefix(tree.scale(learned, self.method.meta_rate), "phi.")
        return {**direction, **phi_direction}, value / episode.domains

    def judge(self, net: Net, params: Params, episode: Episode, z: Tensor, phi: Params) -> Tensor:
        """Return the loss on the second domain of the path after the head of the first has made its steps with phi.

        z: (domain, batch, feature) the features of the episode.
        """
        y, count = episode.y[0], self.method.inner_steps
        if len(y) < count:
            raise UsageError(
                f"MetaReg makes inner_steps = {count} steps, each on rows of its own, but a minibatch has {len(y)}: "
                "raise batch or lower inner_steps."
            )
        used = {name: p + (torch.relu(p) - p).detach() for name, p in phi.items()}
        head = branches.average_copies(params, episode.domain.narrow(0, 0, 1))
        for rows, labels in zip(z[0].tensor_split(count), y.tensor_split(count), strict=True):

            def penalized(h: Params, rows: Tensor = rows, labels: Tensor = labels) -> Tensor:
                return net.criterion(net.head(h, rows), labels) + weighted_l1(used, h)

            head = tree.add(head, grad(penalized)(head), -self.method.alpha)
        return net.criterion(net.head(head, z[1]), episode.y[1])


def weighted_l1(phi: Params, weights: Params) -> Tensor:
    return torch.stack([(p * weights[name].abs()).sum() for name, p in phi.items()]).sum()
