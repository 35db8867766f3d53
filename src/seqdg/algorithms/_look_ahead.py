"""What the members of the MLDG family share: a new domain is judged one step ahead of the past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, jvp, vjp

from seqdg import kernels
from seqdg.base import Episode, Params, tree
from seqdg.core import Chainable, Loss, Number, Numbers, Range, check_count, pick, pick_from_end, setting
from seqdg.nets import Net

Gradient = Callable[[Params], tuple[Params, Tensor]]  # gradient and value of a loss, at these weights


@dataclass(frozen=True)
class LookAhead(Chainable):
    """The two settings of MLDG, per position of the path."""

    alpha: Numbers = setting(0.1, least=0.0, per_position=True, search=Range(1e-3, 1.0))
    beta: Numbers = setting(1.0, least=0.0, per_position=True, search=Range(0.5, 2.0))
    needs: ClassVar[int] = 2
    inert: ClassVar[tuple[str, ...]] = ("beta_1",)  # the first domain has no past to be judged after

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        self.check_path(net, 2)

    def check_path(self, net: Net, length: int) -> None:
        check_count("alpha", self.alpha, (length - 1,), length)
        check_count("beta", self.beta, tuple(range(1, length + 1)), length)

    def coefficients(self, position: int, length: int) -> tuple[Number, Number]:
        """Return alpha and beta for the domain at a position; the first has position 0, and no past."""
        if position == 0:
            return 0.0, 1.0
        return pick(self.alpha, position - 1), pick_from_end(self.beta, position, length)


REDUCTIONS = ("mean", "sum")


def combine(losses: Tensor, reduction: str) -> Tensor:
    """Return the mean or the sum of the meta-train losses (domain,) of MLDG by itself."""
    return losses.sum() if reduction == "sum" else losses.mean()


def split_last(episode: Episode) -> tuple[Episode, int]:
    """Return meta-train and meta-test of MLDG by itself: all domains of the path but the last, and the last."""
    last = episode.domains - 1
    return episode.part(0, last), last


def judge(net: Net, episode: Episode, i: int) -> Loss:
    """Return the loss on the i-th domain of the path."""
    return lambda weights: net.loss(weights, episode.minibatch(i))


def extend_first_order(past: Loss, new: Loss, alpha: Number, beta: Number) -> Loss:
    """Return past(w) + beta * new(w - alpha * stop(grad past(w))), as a function of w."""

    def total(weights: Params) -> Tensor:
        step, so_far = grad_and_value(past)(weights)
        extended: Tensor = so_far + beta * new(tree.add(weights, tree.detach(step), -alpha))
        return extended

    return total


def advance_first_order(
    params: Params, past: tuple[Params, Tensor], new: Loss, alpha: Number, beta: Number
) -> tuple[Params, Tensor]:
    """Return gradient and value of `extend_first_order`, from those of the past."""
    direction, so_far = past
    step, value = grad_and_value(new)(tree.add(params, direction, -alpha))
    return tree.add(direction, step, beta), so_far + beta * value


@dataclass(frozen=True)
class FirstOrderLookAhead(LookAhead):
    """A chain whose look-ahead step counts as a constant, so that each domain takes one ordinary gradient."""

    def judge_domain(self, net: Net, episode: Episode, i: int) -> Loss:
        """Return the loss by which the i-th domain of the path is judged."""
        return judge(net, episode, i)

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        return extend_first_order(past, self.judge_domain(net, episode, i), *self.coefficients(i, episode.domains))

    def advance(
        self, net: Net, params: Params, past: tuple[Params, Tensor], episode: Episode, i: int
    ) -> tuple[Params, Tensor]:
        new = self.judge_domain(net, episode, i)
        return advance_first_order(params, past, new, *self.coefficients(i, episode.domains))


def differentiate_to_order(
    algorithm: LookAhead, net: Net, params: Params, episode: Episode, order: int
) -> tuple[Params, Tensor]:
    """S-MLDG of any order from 1 on, by its definition; the directions over the past are shared by all domains."""
    terms = _terms(algorithm, net, episode, order, episode.domains)
    direction, value = grad_and_value(lambda weights: terms(weights).sum())(params)
    return direction, value


def _terms(algorithm: LookAhead, net: Net, episode: Episode, order: int, count: int) -> Callable[[Params], Tensor]:
    """(domain,) what each of the first `count` domains adds to the loss."""

    def terms(weights: Params) -> Tensor:
        losses = [net.loss(weights, episode.minibatch(0))]
        pasts = compute_directions(algorithm, net, episode, order - 1, count - 1)(weights) if count > 1 else []
        for i, past in enumerate(pasts, 1):
            alpha, beta = algorithm.coefficients(i, episode.domains)
            losses.append(beta * net.loss(tree.add(weights, past, -alpha), episode.minibatch(i)))
        return torch.stack(losses)

    return terms


def compute_directions(
    algorithm: LookAhead, net: Net, episode: Episode, order: int, count: int
) -> Callable[[Params], list[Params]]:
    """d^r as `MLDG` defines it, r the order, over the first domain, the first two, ..., the first `count`."""
    if order == 0:
        return lambda weights: [tree.detach(d) for d in _walk(algorithm, net, episode, count, weights)]
    if order == 1 or count == 1:
        return lambda weights: _walk(algorithm, net, episode, count, weights)

    def differentiate(weights: Params) -> list[Params]:
        values, pull, *_ = vjp(_terms(algorithm, net, episode, order, count), weights)
        parts = [pull(one)[0] for one in torch.eye(count, dtype=values.dtype, device=values.device)]
        return [{n: torch.stack([p[n] for p in parts[: k + 1]]).sum(0) for n in weights} for k in range(count)]

    return differentiate


def _walk(algorithm: LookAhead, net: Net, episode: Episode, count: int, weights: Params) -> list[Params]:
    """Return the first-order directions d_i = d_{i-1} + beta * grad l(D_i, .) at w - alpha * d_{i-1}."""
    directions = [grad(net.loss)(weights, episode.minibatch(0))]
    for i in range(1, count):
        alpha, beta = algorithm.coefficients(i, episode.domains)
        new = grad(net.loss)(tree.add(weights, directions[-1], -alpha), episode.minibatch(i))
        directions.append(tree.add(directions[-1], new, beta))
    return directions


def second_order(algorithm: LookAhead, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
    """S-MLDG of order 2: N gradients on the way out, N - 1 Hessian-vector products on the way back.

    On the way out, w_i = w - alpha_i * d_{i-1}, g_i = grad l(D_i, .) at w_i, d_i = d_{i-1} + beta_i * g_i. On the way
    back, with s the sensitivity of the loss to d_i and H_i the Hessian of l(D_i, .) at w_i:

        u_i = beta_i * (g_i + H_i s),   s <- s - alpha_i * u_i,   and the direction is the sum of all u_i.
    """
    n = episode.domains
    of_domain: list[Loss] = [lambda w, i=i: net.loss(w, episode.minibatch(i)) for i in range(n)]  # type: ignore[misc]
    past, total = tree.scale(params, 0.0), episode.x.new_zeros(())
    bends, gradients = [], []
    bend = _bend_back if can_nest(net, episode) else _bend_forward
    for i, loss in enumerate(of_domain):
        alpha, beta = algorithm.coefficients(i, n)
        with kernels.nest():
            g, value, product = (bend if i < n - 1 else _bend_forward)(loss, tree.add(params, past, -alpha))
        bends.append(product)
        gradients.append(g)
        past, total = tree.add(past, g, beta), total + beta * value
    alpha, beta = algorithm.coefficients(n - 1, n)
    direction = tree.scale(gradients[-1], beta)
    s = tree.scale(direction, -alpha)
    for i in reversed(range(n - 1)):
        alpha, beta = algorithm.coefficients(i, n)
        u = tree.scale(tree.add(gradients[i], bends[i](s)), beta)
        direction, s = tree.add(direction, u), tree.add(s, u, -alpha)
    return direction, total


Bent = tuple[Params, Tensor, Callable[[Params], Params]]  # gradient, value, and the Hessian's product with a vector


def _bend_forward(loss: Loss, weights: Params) -> Bent:
    """Take a product with the Hessian forward through another gradient."""
    g, value = grad_and_value(loss)(weights)
    return g, value, lambda s: jvp(grad(loss), (weights,), (s,))[1]


def _bend_back(loss: Loss, weights: Params) -> Bent:
    """Take a product with the Hessian back through the gradient, whose arithmetic it shares."""
    taken: Any = vjp(grad_and_value(loss), weights, has_aux=True)
    g, pull, value = taken
    return g, value, lambda s: pull(s)[0]


def can_nest(net: Net, episode: Episode) -> bool:
    """Whether gradients of this net's gradients go by `kernels.nested`."""
    return net.nests and episode.x.dim() > 3 and kernels.can_nest(episode.x)


def prefers_products(net: Net, episode: Episode) -> bool:
    """Whether a Hessian-vector product is taken sooner forward through a gradient than back through it: a GPU is slow
    at the second derivative of a convolution, unless `kernels.nested` computes it."""
    return episode.x.is_cuda and episode.x.dim() > 3 and not can_nest(net, episode)


def look_ahead_by_product(
    past: Gradient, new: Loss, weights: Params, alpha: Number, beta: Number
) -> tuple[Params, Tensor]:
    """Return the exact gradient of past(w) + beta * new(w - alpha * grad past(w)), and its value:

        d + beta * (v - alpha * H v),   d = grad past(w), H its Hessian, v = grad new at w - alpha * d

    past: returns gradient and value.
    """
    direction, so_far = past(weights)
    v, value = grad_and_value(new)(tree.add(weights, direction, -alpha))
    bent = jvp(past, (weights,), (v,), has_aux=True)[1]
    return tree.add(tree.add(direction, v, beta), bent, -alpha * beta), so_far + beta * value


def exact_by_products(algorithm: LookAhead, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
    """S-MLDG, exact: along the path, what was looked ahead from so far is the past of the next domain.

    Each domain costs four times the one before it, where nested gradients cost three.
    """
    past: Gradient = grad_and_value(judge(net, episode, 0))
    for i in range(1, episode.domains):
        past = _look_ahead_from(past, judge(net, episode, i), *algorithm.coefficients(i, episode.domains))
    return past(params)


def _look_ahead_from(past: Gradient, new: Loss, alpha: Number, beta: Number) -> Gradient:
    return lambda weights: look_ahead_by_product(past, new, weights, alpha, beta)
