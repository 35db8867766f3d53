"""IB-ERM and IB-IRM: the variance of features, one by one."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.irm import IRM


@pytest.fixture
def literal_variance(literal_forward):
    """Mean over domains and features of the variance over rows, over row - 1."""

    def variance(theta, episode):
        total, count = 0.0, 0
        for x in episode.x:
            for column in literal_forward(theta, x)[0].T:
                mean = sum(column) / len(column)
                total, count = total + sum((v - mean) ** 2 for v in column) / (len(column) - 1), count + 1
        return total / count

    return variance


def test_the_direction_of_ib_erm_is_that_of_the_transcription(
    net, weights, theta, episode_of, literal_loss, literal_variance, assert_direction
):
    episode = episode_of(3)
    want = sum(literal_loss(theta, episode.minibatch(i)) for i in range(3)) / 3 + 5.0 * literal_variance(theta, episode)
    got, value = build("ib-erm", lam=5.0).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_ib_irm_adds_the_variance_to_irm(net, weights, theta, episode_of, literal_variance, assert_direction):
    episode = episode_of(3)
    spread = literal_variance(theta, episode)
    added = torch.autograd.grad(5.0 * spread, theta, allow_unused=True, materialize_grads=True)
    direction, value = IRM(lam=4.0).gradient(net, weights, episode)
    got, total = build("ib-irm", lam=4.0, bottleneck=5.0).gradient(net, weights, episode)
    assert_close(total, value + 5.0 * spread.detach())
    assert_direction(got, [d + a for d, a in zip(direction.values(), added, strict=True)])


def test_at_first_and_without_weights_there_is_no_bottleneck(net, weights, episode_of):
    episode = episode_of(3)
    first = build("ib-erm", anneal=0.2).stages()[0][1]
    assert_close(first.gradient(net, weights, episode), AGG().gradient(net, weights, episode))
    first = build("ib-irm", lam=9.0, anneal=0.2).stages()[0][1]
    assert_close(first.gradient(net, weights, episode), IRM(lam=1.0).gradient(net, weights, episode))
