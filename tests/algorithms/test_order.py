"""S-MLDG of a given order: how often the look-ahead is differentiated through."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms._look_ahead import exact_by_products
from seqdg.algorithms.mldg import MLDG
from seqdg.base import UsageError

ALPHA, BETA = (0.4, 0.9, 0.3), (1.0, 1.3, 0.6, 0.8)


def loss_of_order(loss, theta, domains, alpha, beta, order):
    """L^r over the domains, by the recursion of the docstring written out with torch.autograd; no sharing."""
    total = loss(theta, domains[0])
    for i in range(1, len(domains)):
        step = direction_of_order(loss, theta, domains[:i], alpha, beta, order - 1)
        total = total + beta[i] * loss([t - alpha[i - 1] * d for t, d in zip(theta, step, strict=True)], domains[i])
    return total


def direction_of_order(loss, theta, domains, alpha, beta, order):
    if order == 0:
        return [d.detach() for d in direction_of_order(loss, theta, domains, alpha, beta, 1)]
    if order == 1:  # gradients at points that move with theta, one after the other
        found = torch.autograd.grad(loss(theta, domains[0]), theta, create_graph=True)
        for i in range(1, len(domains)):
            ahead = [t - alpha[i - 1] * d for t, d in zip(theta, found, strict=True)]
            new = torch.autograd.grad(loss(ahead, domains[i]), ahead, create_graph=True)
            found = [d + beta[i] * g for d, g in zip(found, new, strict=True)]
        return found
    total = loss_of_order(loss, theta, domains, alpha, beta, order)
    return torch.autograd.grad(total, theta, create_graph=True)


def settings(n):
    return {"alpha": ALPHA[: n - 1], "beta": BETA[:n]}


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_s_mldg_of_an_order_is_its_recursion_written_out(
    net, weights, theta, episode_of, literal_loss, assert_direction, n, order
):
    episode = episode_of(n)
    algorithm = build("s-mldg", **settings(n), order=order)
    got, value = algorithm.gradient(net, weights, episode)
    domains = [(episode.x[i], episode.y[i]) for i in range(n)]
    want = loss_of_order(literal_loss, theta, domains, ALPHA, BETA, order)
    assert_close(value, want.detach())
    assert_close(algorithm.loss(net, weights, episode), want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_order_1_is_first_order_and_an_order_of_the_path_s_length_is_exact(net, weights, episode_of, n):
    episode = episode_of(n)
    exact, _ = build("s-mldg", **settings(n)).gradient(net, weights, episode)
    first, _ = build("fo-s-mldg", **settings(n)).gradient(net, weights, episode)
    for name in exact:
        assert_close(build("s-mldg", **settings(n), order=1).gradient(net, weights, episode)[0][name], first[name])
        for order in (n, n + 1):
            got, _ = build("s-mldg", **settings(n), order=order).gradient(net, weights, episode)
            assert_close(got[name], exact[name])
    if n > 2:
        second, _ = build("s-mldg", **settings(n), order=2).gradient(net, weights, episode)
        assert max((second[k] - exact[k]).abs().max() for k in exact) > 1e-4
        assert max((second[k] - first[k]).abs().max() for k in exact) > 1e-4


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_hessian_vector_products_give_the_exact_direction_and_loss(net, weights, episode_of, n):
    episode, given = episode_of(n), settings(n) if n > 1 else {}
    exact, value = build("s-mldg", **given).gradient(net, weights, episode)
    got, total = exact_by_products(MLDG(**given), net, weights, episode)
    assert_close(total, value)
    for name in exact:
        assert_close(got[name], exact[name])


def test_higher_orders_come_closer_to_exact_as_the_step_shrinks(net, weights, episode_of):
    episode = episode_of(4)

    def error(order, alpha):
        exact, _ = build("s-mldg", alpha=alpha).gradient(net, weights, episode)
        got, _ = build("s-mldg", alpha=alpha, order=order).gradient(net, weights, episode)
        return max((got[k] - exact[k]).abs().max().item() for k in exact)

    for order in (1, 2, 3):  # what is left out is of the order-th power of alpha
        assert error(order, 0.02) / error(order, 0.01) > 0.85 * 2**order


def test_mldg_of_order_1_is_first_order_mldg(net, weights, episode_of):
    episode = episode_of(3)
    got, _ = build("mldg", alpha=0.5, order=1).gradient(net, weights, episode)
    want, _ = build("fo-mldg", alpha=0.5).gradient(net, weights, episode)
    for name, value in want.items():
        assert_close(got[name], value)
    with pytest.raises(UsageError, match="order is -1"):
        build("mldg", order=-1)
