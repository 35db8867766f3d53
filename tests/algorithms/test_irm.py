"""IRM: the slope of a factor on the logits by its closed form, in two halves."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG


def slope(logits, y):
    """d/ds of the mean over rows of -log softmax(s f)[y] at s = 1: the mean of sum_c p_c f_c - f_y."""
    rows = [(torch.softmax(f, 0) * f).sum() - f[label] for f, label in zip(logits, y.tolist(), strict=True)]
    return sum(rows) / len(rows)


def test_the_direction_is_that_of_the_transcription(
    net, weights, theta, episode_of, literal_loss, literal_forward, assert_direction
):
    episode = episode_of(3)  # of five rows: three even ones, two odd ones
    want = 0.0
    for i in range(3):
        x, y, _ = episode.minibatch(i)
        logits = literal_forward(theta, x)[1]
        want = (
            want + literal_loss(theta, (x, y)) / 3 + 4.0 * slope(logits[::2], y[::2]) * slope(logits[1::2], y[1::2]) / 3
        )
    got, value = build("irm", lam=4.0).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_without_a_weight_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    assert_close(build("irm", lam=0.0).gradient(net, weights, episode), AGG().gradient(net, weights, episode))


@pytest.mark.parametrize("name", ["irm", "vrex"])
def test_at_first_the_weight_is_one_and_then_lam(name, net, weights, episode_of):
    (first, weak), (rest, full) = build(name, lam=50.0, anneal=0.3).stages()
    assert (first, rest) == pytest.approx((0.3, 0.7))
    assert (weak.lam, full.lam) == (1.0, 50.0)
    assert build(name, lam=0.2).stages()[0][1].lam == 0.2
    assert build(name, anneal=0.0).stages() == ((1.0, build(name, anneal=0.0)),)
