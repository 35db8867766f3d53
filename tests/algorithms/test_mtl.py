"""MTL: the head on a row's features and its domain's mean, written out with a head of twice as many inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqdg import Net, UsageError, build

WEIGHT = "mean.weight"


@pytest.fixture
def more(net, weights):
    """The weights of both parts of the head."""
    drawn = build("mtl").init(net, weights, 3, torch.Generator().manual_seed(1))
    return {**drawn, WEIGHT: 2.0 * drawn[WEIGHT]}


@pytest.mark.parametrize("ema", [1.0, 0.99, 0.5])
def test_two_steps_are_those_of_the_equations(net, more, episode_of, assert_direction, ema):
    mtl, episode = build("mtl", ema=ema), episode_of(3)
    again = episode._replace(x=episode.x.flip(1) + 0.4, domain=episode.domain.flip(0))
    memory = mtl.memory(net, more, 3)
    stored = {source: torch.zeros(4, dtype=torch.float64) for source in range(3)}
    for now in (episode, again):
        got, value, memory = mtl.step(net, more, memory, now)
        theta = [w.clone().requires_grad_() for w in more.values()]
        w1, b1, w2, b2, v = theta
        head = torch.cat([w2, v], 1)  # (class, 2 x feature)
        total = torch.zeros((), dtype=torch.float64)
        for i, source in enumerate(now.domain.tolist()):
            z = torch.tanh(now.x[i] @ w1.T + b1)
            embedding = ema * z.mean(0) + (1 - ema) * stored[source]
            stored[source] = embedding.detach()
            for row, y in zip(z, now.y[i], strict=True):
                logits = head @ torch.cat([row, embedding]) + b2
                total = total + (logits.logsumexp(0) - logits[y]) / len(z) / 3
        torch.testing.assert_close(value, total.detach())
        assert_direction(got, torch.autograd.grad(total, theta))
        torch.testing.assert_close(memory["embedding"], torch.stack([stored[s] for s in range(3)]))


def test_a_batch_of_an_unseen_domain_is_its_own_embedding(net, more):
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    got = build("mtl").predict(net, more, x)
    w1, b1, w2, b2, v = more.values()
    z = torch.tanh(x @ w1.T + b1)
    want = torch.stack([torch.cat([w2, v], 1) @ torch.cat([row, sum(z) / 6]) + b2 for row in z])
    torch.testing.assert_close(got, want)


def test_without_weights_on_the_mean_it_is_agg(net, weights, more, episode_of):
    blind = {**more, WEIGHT: torch.zeros_like(more[WEIGHT])}
    got, value, _ = build("mtl").step(net, blind, build("mtl").memory(net, blind, 3), episode_of(3))
    want, loss = build("agg").gradient(net, weights, episode_of(3))
    torch.testing.assert_close(value, loss)
    torch.testing.assert_close({name: got[name] for name in want}, want)
    x = episode_of(3).x[0]
    torch.testing.assert_close(build("mtl").predict(net, blind, x), net(weights, x))


def test_a_net_without_a_linear_head_is_refused():
    bare = Net(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), "none")
    with pytest.raises(UsageError, match="MTL works on the features that enter the head, but this net does not end"):
        build("mtl").check(bare, 3)
