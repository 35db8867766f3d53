"""Fishr and S-Fishr: variances of gradients of single rows, in a literal loop over them."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.fishr import compute_variances


def literal_variance(theta, x, y):
    """Of the gradient of each row's loss, for the head's weights and biases: one vector."""
    w1, b1, w2, b2 = theta
    gradients = []
    for row, label in zip(x, y.tolist(), strict=True):
        logits = torch.tanh(w1 @ row + b1) @ w2.T + b2
        loss = logits.logsumexp(0) - logits[label]
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, (w2, b2), create_graph=True)]))
    mean = sum(gradients) / len(gradients)
    return sum((g - mean) ** 2 for g in gradients) / len(gradients)


def flatten(variances, i):
    return torch.cat([v[i].flatten() for v in variances.values()])


def test_variances_are_those_of_a_loop_over_rows(net, weights, theta, episode_of):
    episode = episode_of(3)
    losses, variances = compute_variances(net, weights, episode)
    assert_close(losses, net.losses(weights, episode))
    for i in range(3):
        want = literal_variance(theta, episode.x[i], episode.y[i]).detach()
        assert_close(flatten(variances, i), want, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("lam", "keep"), [(7.0, 0.95), (50.0, 0.3), (3.0, 0.0)])
def test_three_steps_are_those_of_the_published_loss(
    net, weights, theta, episode_of, literal_loss, assert_direction, lam, keep
):
    algorithm = build("fishr", lam=lam, keep=keep)
    memory, averages = algorithm.memory(net, weights, 3), dict.fromkeys(range(3), 0.0)
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        episode = episode_of(3)._replace(domain=torch.randperm(3, generator=g))
        episode = episode._replace(x=episode.x + torch.randn(episode.x.shape, generator=g, dtype=torch.float64))
        got, value, memory = algorithm.step(net, weights, memory, episode)
        label, seen = 0.0, []
        for i, source in enumerate(episode.domain.tolist()):
            label = label + literal_loss(theta, (episode.x[i], episode.y[i])) / 3
            average = keep * averages[source] + (1 - keep) * literal_variance(theta, episode.x[i], episode.y[i])
            averages[source] = average.detach()
            seen.append(average / (1 - keep))
        centre = sum(seen) / 3
        want = label + lam * sum(((u - centre) ** 2).mean() for u in seen) / 3
        assert_close(value, want.detach())
        assert_direction(got, torch.autograd.grad(want, theta))


@pytest.mark.parametrize("n", [2, 4])
def test_the_chain_is_its_equation_written_out(net, weights, theta, episode_of, literal_loss, assert_direction, n):
    episode, lam = episode_of(n), 40.0
    algorithm = build("s-fishr", lam=lam)
    got, value = algorithm.gradient(net, weights, episode)
    domains = [(episode.x[i], episode.y[i]) for i in range(n)]
    variances = [literal_variance(theta, *domain) for domain in domains]
    want = literal_loss(theta, domains[0])
    for i in range(1, n):
        past = (sum(variances[:i]) / i).detach()
        want = want + literal_loss(theta, domains[i]) + lam * ((variances[i] - past) ** 2).mean()
    assert_close(value, want.detach())
    assert_close(algorithm.loss(net, weights, episode), want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_the_chain_depends_on_the_path_and_keeps_no_memory(net, weights, episode_of):
    episode, algorithm = episode_of(3), build("s-fishr", lam=100.0)
    back = episode._replace(x=episode.x.flip(0), y=episode.y.flip(0), domain=episode.domain.flip(0))
    there, again = (algorithm.gradient(net, weights, e)[0] for e in (episode, back))
    assert (there["0.weight"] - again["0.weight"]).abs().max() > 1e-3
    assert algorithm.memory(net, weights, 3) == {}


def test_domains_that_are_alike_are_aggregated(net, weights, episode_of):
    episode = episode_of(3)
    same = episode._replace(x=episode.x[:1].expand(3, -1, -1), y=episode.y[:1].expand(3, -1))
    algorithm = build("fishr", lam=1000.0)
    got, _, _ = algorithm.step(net, weights, algorithm.memory(net, weights, 3), same)
    assert_close(got, AGG().gradient(net, weights, same)[0])


def test_the_first_stage_is_aggregation_that_already_remembers(net, weights, episode_of):
    (share, first), _ = build("fishr", anneal=0.25).stages()
    got, _, memory = first.step(net, weights, first.memory(net, weights, 3), episode_of(3))
    assert share == 0.25
    assert_close(got, AGG().gradient(net, weights, episode_of(3))[0])
    assert all(m.any() for m in memory.values())
