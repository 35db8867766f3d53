"""IGA: gradients by autograd, domain by domain, differentiated once more."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG


def test_the_direction_is_that_of_the_transcription(net, weights, theta, episode_of, literal_loss, assert_direction):
    episode = episode_of(3)
    losses = [literal_loss(theta, episode.minibatch(i)) for i in range(3)]
    gradients = [torch.autograd.grad(loss, theta, create_graph=True) for loss in losses]
    means = [sum(parts) / 3 for parts in zip(*gradients, strict=True)]
    apart = sum(((g - m) ** 2).sum() for each in gradients for g, m in zip(each, means, strict=True))
    want = sum(losses) / 3 + 2.5 * apart
    got, value = build("iga", penalty=2.5).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_without_a_weight_or_between_equal_domains_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    assert_close(build("iga", penalty=0.0).gradient(net, weights, episode), AGG().gradient(net, weights, episode))
    same = episode._replace(x=episode.x[:1].expand(3, -1, -1), y=episode.y[:1].expand(3, -1))
    assert_close(build("iga", penalty=9.0).gradient(net, weights, same), AGG().gradient(net, weights, same))
