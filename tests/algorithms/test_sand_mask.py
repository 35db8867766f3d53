"""SAND-mask: a soft mask, by the published equation entry by entry; hard, it is AND-mask."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from seqdg import build


def sign(value: float) -> int:
    return (value > 0) - (value < 0)


def literal_direction(loss, theta, episode, tau, k):
    n = episode.domains
    each = [torch.autograd.grad(loss(theta, (episode.x[i], episode.y[i])), theta) for i in range(n)]
    direction = []
    for t in range(len(theta)):
        columns = list(zip(*[g[t].flatten().tolist() for g in each], strict=True))
        mask = []
        for column in columns:
            mean = sum(column) / n
            variance = sum((g - mean) ** 2 for g in column) / (n - 1)
            mask.append(max(0.0, math.tanh(k * (abs(sum(map(sign, column))) / n - tau) / variance)))
        kept = sum(mask) / len(mask)
        values = [m * sum(column) / n / (kept + 1e-10) for m, column in zip(mask, columns, strict=True)]
        direction.append(torch.tensor(values, dtype=torch.float64).reshape(theta[t].shape))
    return direction


@pytest.mark.parametrize(("tau", "k"), [(0.5, 1e-3), (0.2, 0.03), (0.0, 1e-5), (0.9, 10.0)])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_direction_is_the_published_one(net, weights, theta, episode_of, literal_loss, assert_direction, n, tau, k):
    episode = episode_of(n)
    got, value = build("sand-mask", tau=tau, k=k).gradient(net, weights, episode)
    assert_direction(got, literal_direction(literal_loss, theta, episode, tau, k))
    assert_close(value, net.losses(weights, episode).mean())


def test_a_mask_that_is_hard_is_and_mask_s(net, weights, episode_of):
    episode = episode_of(3)
    got, _ = build("sand-mask", tau=0.5, k=1e6).gradient(net, weights, episode)
    assert_close(got, build("and-mask", tau=0.5).gradient(net, weights, episode)[0])


def test_at_tau_1_nothing_ever_learns(net, weights, episode_of):
    got, _ = build("sand-mask", tau=1.0).gradient(net, weights, episode_of(3))
    assert not any(d.any() for d in got.values())


def test_gradients_that_are_all_0_give_a_direction_of_0(net, weights, episode_of):
    episode = episode_of(3)
    for tau in (0.0, 0.5, 1.0):
        got, _ = build("sand-mask", tau=tau).gradient(net, weights, episode._replace(x=0.0 * episode.x))
        assert not got["0.weight"].any()
