"""FFO-S-MLDG against Algorithm 2, written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Episode, Net, build


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


def walk_with_m_sgd(loss, theta, domains, alpha, beta, momentum, decay):
    """Where the inner loop of Algorithm 2 ends if its steps are those of M-SGD with weight decay."""
    walker, velocity = [t.detach().clone() for t in theta], [torch.zeros_like(t) for t in theta]
    for i, domain in enumerate(domains):
        walker = [t.detach().requires_grad_() for t in walker]
        g = torch.autograd.grad(beta[i] * loss(walker, domain), walker)
        velocity = [momentum * v + d + decay * t for v, d, t in zip(velocity, g, walker, strict=True)]
        walker = [t - alpha[i] * v for t, v in zip(walker, velocity, strict=True)]
    return [t.detach() for t in walker]


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.0), (0.0, 0.03), (0.7, 0.03)])
def test_the_inner_steps_may_be_those_of_m_sgd(net, weights, theta, episode_of, literal_loss, momentum, decay):
    episode = episode_of(4)
    algorithm = build(
        "ffo-s-mldg", alpha=(0.3, 0.7, 0.2, 0.4), beta=(1.2, 1.75), inner_momentum=momentum, inner_decay=decay
    )
    direction, _ = algorithm.gradient(net, weights, episode)
    domains = [(episode.x[i], episode.y[i]) for i in range(4)]
    end = walk_with_m_sgd(literal_loss, theta, domains, (0.3, 0.7, 0.2, 0.4), (1.0, 1.0, 1.2, 1.75), momentum, decay)
    want = [(t - e).detach() for t, e in zip(theta, end, strict=True)]
    assert_close(list(direction.values()), want, rtol=1e-10, atol=1e-12)


def test_inner_momentum_is_that_of_torch_and_starts_anew_with_every_path(net, weights, episode_of, literal_loss):
    episode = episode_of(3)
    algorithm = build("ffo-s-mldg", alpha=0.2, inner_momentum=0.9, inner_decay=0.01)
    first, _ = algorithm.gradient(net, weights, episode)
    again, _ = algorithm.gradient(net, weights, episode)
    assert_close(again, first, rtol=0, atol=0)
    leaves = [w.clone().requires_grad_() for w in weights.values()]
    optimizer = torch.optim.SGD(leaves, lr=0.2, momentum=0.9, weight_decay=0.01)
    for i in range(3):
        optimizer.zero_grad()
        literal_loss(leaves, (episode.x[i], episode.y[i])).backward()
        optimizer.step()
    want = [w - leaf.detach() for w, leaf in zip(weights.values(), leaves, strict=True)]
    assert_close(list(first.values()), want, rtol=1e-10, atol=1e-12)


def test_without_inner_momentum_and_decay_ffo_is_algorithm_2_to_the_bit(net, weights, episode_of):
    episode = episode_of(3)
    plain, loss = build("ffo-s-mldg", alpha=(0.3, 0.7), beta=(1.5,)).gradient(net, weights, episode)
    walker = weights
    for i, length in enumerate((0.3, 0.7, 0.7 * 1.5)):
        minibatch = episode.minibatch(i)
        g = torch.func.grad(net.loss)(walker, minibatch)
        walker = {name: torch.add(w, g[name], alpha=-length) for name, w in walker.items()}
    assert all(torch.equal(plain[name], w - walker[name]) for name, w in weights.items())
    settings = {"inner_momentum": 0.0, "inner_decay": 0.0}
    asked, same = build("ffo-s-mldg", alpha=(0.3, 0.7), beta=(1.5,), **settings).gradient(net, weights, episode)
    assert torch.equal(loss, same)
    assert all(torch.equal(plain[name], d) for name, d in asked.items())


def test_tiny_inner_momentum_and_decay_change_next_to_nothing(net, weights, episode_of):
    episode = episode_of(3)
    plain, _ = build("ffo-s-mldg").gradient(net, weights, episode)
    tiny, _ = build("ffo-s-mldg", inner_momentum=1e-9, inner_decay=1e-9).gradient(net, weights, episode)
    assert_close(tiny, plain, rtol=1e-6, atol=1e-9)
    strong, _ = build("ffo-s-mldg", inner_momentum=0.9).gradient(net, weights, episode)
    assert max(float((strong[name] - d).abs().max()) for name, d in plain.items()) > 1e-3


def test_on_parabolas_a_step_multiplies_the_distance_by_what_the_docstring_says():
    """For the paper's settings on PACS the factor passes -1 at a curvature of 176."""

    def multiply(h, gamma=0.9):
        module = nn.Linear(1, 1, bias=False).double()
        net = Net(module, "none", loss=lambda logits, y: 0.5 * h * (logits**2).mean())
        ones = torch.ones(3, 2, 1, dtype=torch.float64)
        episode = Episode(ones, torch.zeros(3, 2, dtype=torch.int64), torch.arange(3), torch.tensor(0.0))
        w = {"weight": torch.full((1, 1), 2.0, dtype=torch.float64)}
        direction, _ = build("ffo-s-mldg", alpha=0.01, beta=(1.75,)).gradient(net, w, episode)
        return float((w["weight"] - gamma * direction["weight"]) / w["weight"])

    for h in (3.0, 150.0, 400.0):
        want = 1 - 0.9 * (1 - (1 - 0.01 * h) * (1 - 0.01 * h) * (1 - 0.0175 * h))
        assert multiply(h) == pytest.approx(want, rel=1e-12)
    assert multiply(176.0) > -1 > multiply(177.0)
