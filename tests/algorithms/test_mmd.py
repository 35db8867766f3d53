"""MMD: kernel values one by one."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG


def mean_kernel(a, b):
    values = [
        torch.exp(-(10.0**power) * ((one - other) ** 2).sum()) for one in a for other in b for power in range(-3, 4)
    ]
    return sum(values) / (len(a) * len(b))


@pytest.mark.parametrize("domains", [2, 3])
def test_the_direction_is_that_of_the_transcription(
    net, weights, theta, episode_of, literal_loss, literal_forward, assert_direction, domains
):
    episode = episode_of(domains)
    z = [literal_forward(theta, x)[0] for x in episode.x]
    pairs = [(i, j) for i in range(domains) for j in range(i + 1, domains)]
    apart = [mean_kernel(z[i], z[i]) + mean_kernel(z[j], z[j]) - 2 * mean_kernel(z[i], z[j]) for i, j in pairs]
    want = sum(literal_loss(theta, episode.minibatch(i)) for i in range(domains)) / domains
    want = want + 0.8 * sum(apart) / len(pairs)
    got, value = build("mmd", gamma=0.8).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_without_a_weight_or_between_equal_domains_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    assert_close(build("mmd", gamma=0.0).gradient(net, weights, episode), AGG().gradient(net, weights, episode))
    same = episode._replace(x=episode.x[:1].expand(3, -1, -1))
    assert_close(build("mmd", gamma=9.0).gradient(net, weights, same), AGG().gradient(net, weights, same))
