"""FFO-S-MLDG against Algorithm 2, written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build


def algorithm_2(loss, theta, domains, alpha, beta, gamma):
    """The weights after one pass of Algorithm 2's loop."""
    walker = [t.detach().clone() for t in theta]
    for i, domain in enumerate(domains):
        walker = [t.detach().requires_grad_() for t in walker]
        g = torch.autograd.grad(beta[i] * loss(walker, domain), walker)
        walker = [t - alpha[i] * d for t, d in zip(walker, g, strict=True)]
    return [(t + gamma * (w - t)).detach() for t, w in zip(theta, walker, strict=True)]


@pytest.mark.parametrize(
    ("alpha", "beta", "alphas", "betas"),
    [
        pytest.param(0.3, 1.5, (0.3, 0.3, 0.3), (1.5, 1.5, 1.5), id="one for all"),
        pytest.param((0.3, 0.7, 0.2), (0.9, 1.1, 1.5), (0.3, 0.7, 0.2), (0.9, 1.1, 1.5), id="one each"),
        pytest.param((0.3, 0.7), (1.5,), (0.3, 0.7, 0.7), (1.0, 1.0, 1.5), id="as the paper lists them"),
    ],
)
def test_ffo_with_plain_sgd_is_algorithm_2(net, weights, theta, episode_of, literal_loss, alpha, beta, alphas, betas):
    episode, gamma = episode_of(3), 0.85
    algorithm = build("ffo-s-mldg", alpha=alpha, beta=beta)
    algorithm.check(net, 3)
    direction, _ = algorithm.gradient(net, weights, episode)
    assert algorithm.optimizer == "sgd"
    leaves = [w.clone().requires_grad_() for w in weights.values()]
    for leaf, d in zip(leaves, direction.values(), strict=True):
        leaf.grad = d
    torch.optim.SGD(leaves, lr=gamma).step()
    domains = [(episode.x[i], episode.y[i]) for i in range(3)]
    want = algorithm_2(literal_loss, theta, domains, alphas, betas, gamma)
    assert_close([leaf.detach() for leaf in leaves], want, rtol=1e-10, atol=1e-12)


def test_the_loss_of_ffo_is_what_the_walk_met(net, weights, episode_of, literal_loss, theta):
    episode = episode_of(2)
    _, value = build("ffo-s-mldg", alpha=0.4, beta=(1.2, 0.8)).gradient(net, weights, episode)
    domains = [(episode.x[i], episode.y[i]) for i in range(2)]
    after = algorithm_2(literal_loss, theta, domains[:1], (0.4,), (1.2,), gamma=1.0)
    want = 1.2 * literal_loss(theta, domains[0]) + 0.8 * literal_loss(after, domains[1])
    assert_close(value, want.detach())


def test_on_one_domain_ffo_is_a_scaled_gradient(net, weights, episode_of):
    episode = episode_of(1)
    got, _ = build("ffo-s-mldg", alpha=0.25, beta=2.0).gradient(net, weights, episode)
    want, _ = build("agg").gradient(net, weights, episode)
    assert_close(got, {name: 0.5 * g for name, g in want.items()}, rtol=1e-10, atol=1e-14)
