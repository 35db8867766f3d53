"""Spectral decoupling: the squares of the logits, one by one."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG


def test_the_direction_is_that_of_the_transcription(
    net, weights, theta, episode_of, literal_loss, literal_forward, assert_direction
):
    episode = episode_of(3)
    squares = [f**2 for x in episode.x for row in literal_forward(theta, x)[1] for f in row]
    want = sum(literal_loss(theta, episode.minibatch(i)) for i in range(3)) / 3 + 0.3 * sum(squares) / len(squares)
    got, value = build("sd", lam=0.3).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_without_a_weight_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    assert_close(build("sd", lam=0.0).gradient(net, weights, episode), AGG().gradient(net, weights, episode))
