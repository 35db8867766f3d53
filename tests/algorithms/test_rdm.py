"""RDM against its equation, pair by pair of rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.rdm import RDM, discrepancy


def literal_kernel(a, b):
    total = 0.0
    for s in a:
        for t in b:
            for power in range(-4, 4):
                total = total + torch.exp(-(10.0**power) * (s - t) ** 2)
    return total / (len(a) * len(b))


def variance(values):
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / (len(values) - 1)


def literal_loss(theta, episode, lam, spread):
    w1, b1, w2, b2 = theta
    rows = []
    for i in range(episode.domains):
        logits = torch.tanh(episode.x[i] @ w1.T + b1) @ w2.T + b2
        rows.append([p.logsumexp(0) - p[y] for p, y in zip(logits, episode.y[i].tolist(), strict=True)])
    means = [sum(r) / len(r) for r in rows]
    worst = rows[max(range(len(rows)), key=lambda i: float(means[i].detach()))]
    everything = [loss for r in rows for loss in r]
    square = (
        literal_kernel(worst, worst) + literal_kernel(everything, everything) - 2 * literal_kernel(worst, everything)
    )
    return sum(means) / len(means) + lam * square + spread * (variance(worst) + variance(everything))


@pytest.mark.parametrize(("lam", "spread"), [(0.3, 0.004), (5.0, 0.5)])
@pytest.mark.parametrize("n", [2, 3])
def test_the_direction_is_that_of_the_published_loss(net, weights, theta, episode_of, assert_direction, n, lam, spread):
    episode = episode_of(n)
    got, value = build("rdm", lam=lam, spread=spread).gradient(net, weights, episode)
    want = literal_loss(theta, episode, lam, spread)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_the_same_numbers_have_no_discrepancy():
    values = torch.randn(7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_close(discrepancy(values, values.flip(0)), torch.zeros((), dtype=torch.float64))
    far = discrepancy(values, values + 1e4)  # to the widest kernel too
    assert_close(far, literal_kernel(values, values) * 2)


def test_without_weights_it_is_aggregation(net, weights, episode_of):
    got, _ = build("rdm", lam=0.0, spread=0.0).gradient(net, weights, episode_of(3))
    assert_close(got, AGG().gradient(net, weights, episode_of(3))[0])


def test_aggregation_comes_first_and_then_a_smaller_rate():
    first, second = build("rdm", anneal=0.25, second_rate=0.4).stages()
    assert first == (0.25, AGG())
    assert second == (0.75, RDM(anneal=0.25, second_rate=0.4))
    assert first[1].pace("0.weight") == 1.0
    assert math.isclose(second[1].pace("0.weight"), 0.4)
