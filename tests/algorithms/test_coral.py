"""CORAL and its chain: moments by loops over rows, pairs by loops over domains."""

from __future__ import annotations

import pytest
import torch
from torch.func import vmap
from torch.testing import assert_close

from seqdg import Sequential, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.coral import CORAL
from seqdg.base import tree


def moments(z):
    """Mean and covariance of rows, one row at a time."""
    mean = sum(z) / len(z)
    return mean, sum(torch.outer(row - mean, row - mean) for row in z) / (len(z) - 1)


def distance(z, other):
    (m, c), (n, d) = moments(z), moments(other)
    return sum((a - b) ** 2 for a, b in zip(m, n, strict=True)) / len(m) + sum(
        (a - b) ** 2 for a, b in zip(c.flatten(), d.flatten(), strict=True)
    ) / (len(m) ** 2)


@pytest.fixture
def literal_coral(literal_loss, literal_forward):
    def loss(theta, episode, gamma):
        n = episode.domains
        z = [literal_forward(theta, x)[0] for x in episode.x]
        losses = [literal_loss(theta, episode.minibatch(i)) for i in range(n)]
        apart = [distance(z[i], z[j]) for i in range(n) for j in range(i + 1, n)]
        return sum(losses) / n + gamma * sum(apart) / len(apart)

    return loss


@pytest.mark.parametrize("domains", [2, 3, 5])
def test_the_direction_is_that_of_the_transcription(
    net, weights, theta, episode_of, literal_coral, assert_direction, domains
):
    episode = episode_of(domains)
    got, value = build("coral", gamma=1.7).gradient(net, weights, episode)
    want = literal_coral(theta, episode, 1.7)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_without_a_weight_or_between_equal_domains_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    assert_close(build("coral", gamma=0.0).gradient(net, weights, episode), AGG().gradient(net, weights, episode))
    same = episode._replace(x=episode.x[:1].expand(3, -1, -1))
    assert_close(build("coral", gamma=9.0).gradient(net, weights, same), AGG().gradient(net, weights, same))


@pytest.mark.parametrize("domains", [2, 4])
def test_chained_by_pairs_it_is_itself_times_the_domains_whatever_the_path(net, weights, episode_of, domains):
    episode = episode_of(domains)
    with pytest.warns(UserWarning, match=r"Sequential\(CORAL\) is CORAL itself, times the number of domains"):
        chain = Sequential(CORAL(gamma=1.7))
    direction, value = CORAL(gamma=1.7).gradient(net, weights, episode)
    want = tree.scale(direction, domains), domains * value
    assert_close(chain.gradient(net, weights, episode), want)
    back = episode._replace(x=episode.x.flip(0), y=episode.y.flip(0), domain=episode.domain.flip(0))
    assert_close(chain.gradient(net, weights, back), want)


def test_a_batch_of_one_row_is_refused(net, weights, episode_of):
    short = episode_of(3)._replace(x=episode_of(3).x[:, :1], y=episode_of(3).y[:, :1])
    for name in ("coral", "irm", "ib-erm", "ib-irm"):
        with pytest.raises(UsageError, match="minibatch, but it has 1: give a batch of at least 2"):
            build(name).loss(net, weights, short)
        with pytest.raises(UsageError, match="give a batch of at least 2"):
            vmap(lambda x, n=name: build(n).loss(net, weights, short._replace(x=x)))(short.x.unsqueeze(0))
