"""V-REx, and the chain of it, which is V-REx."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import seqdg
from seqdg import Sequential, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.vrex import VREx
from seqdg.base import tree


def test_the_direction_is_that_of_the_transcription(net, weights, theta, episode_of, literal_loss, assert_direction):
    episode = episode_of(4)
    losses = [literal_loss(theta, episode.minibatch(i)) for i in range(4)]
    mean = sum(losses) / 4
    want = mean + 3.0 * sum((loss - mean) ** 2 for loss in losses) / 4
    got, value = build("vrex", lam=3.0).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_without_a_weight_or_between_equal_domains_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    assert_close(build("vrex", lam=0.0).gradient(net, weights, episode), AGG().gradient(net, weights, episode))
    same = episode._replace(x=episode.x[:1].expand(3, -1, -1), y=episode.y[:1].expand(3, -1))
    assert_close(build("vrex", lam=9.0).gradient(net, weights, same), AGG().gradient(net, weights, same))


@pytest.mark.parametrize("domains", [2, 3, 5])
def test_chained_it_is_itself_times_the_domains_whatever_the_path(net, weights, episode_of, domains):
    episode = episode_of(domains)
    with pytest.warns(UserWarning, match=r"Sequential\(VREx\) is VREx itself, .* Use VREx, and report it as that"):
        chain = Sequential(VREx(lam=3.0))
    direction, value = VREx(lam=3.0).gradient(net, weights, episode)
    want = tree.scale(direction, domains), domains * value
    for seed in range(3):
        order = torch.randperm(domains, generator=torch.Generator().manual_seed(seed))
        path = episode._replace(x=episode.x[order], y=episode.y[order], domain=episode.domain[order])
        assert_close(chain.gradient(net, weights, path), want)


def test_a_base_that_folds_into_itself_has_no_sequential_name():
    assert "vrex" in seqdg.list_algorithms()
    assert "s-vrex" not in seqdg.list_algorithms()
    with pytest.raises(UsageError, match="s-vrex"):
        build("s-vrex")
