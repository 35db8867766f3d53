"""The naive ensemble against networks that are trained and asked one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, build
from seqdg.algorithms import _branches as branches
from seqdg.algorithms.agg import AGG
from seqdg.base import tree


def members_of(params, sources):
    return [{name: w[i] for name, w in branches.select_copies(params).items()} for i in range(sources)]


def test_every_net_trains_as_it_would_on_its_domain_alone(net, weights, episode_of):
    algorithm, episode = build("ensemble"), episode_of(3)
    together, alone = algorithm.init(net, weights, 3, torch.Generator()), [weights] * 3
    for _ in range(4):
        together = tree.add(together, algorithm.gradient(net, together, episode)[0], -0.3)
        for row, source in enumerate(episode.domain.tolist()):
            direction, _ = AGG().gradient(net, alone[source], episode.part(row, row + 1))
            alone[source] = tree.add(alone[source], direction, -0.3)
    for got, want in zip(members_of(together, 3), alone, strict=True):
        assert_close(got, want)


def test_probabilities_are_averaged(net, weights, episode_of):
    algorithm, x = build("ensemble"), episode_of(2).x[0]
    params = algorithm.init(net, weights, 3, torch.Generator())
    params = {name: w + torch.randn(w.shape, generator=torch.Generator().manual_seed(1)) for name, w in params.items()}
    got = algorithm.predict(net, algorithm.deploy(params, {}), x)
    want = torch.stack([net(member, x).softmax(-1) for member in members_of(params, 3)]).mean(0)
    assert_close(got.exp(), want)
    assert_close(got.softmax(-1), want)


@pytest.mark.parametrize("policy", ["recalibrate", "frozen"])
def test_every_net_has_batchnorm_statistics_of_its_own(policy):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).double()
    net, algorithm, g = Net(module, policy), build("ensemble"), torch.Generator().manual_seed(2)
    x = torch.randn((7, 3), generator=g, dtype=torch.float64)
    params = algorithm.init(net, net.params(), 2, g)
    params = {name: w + torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in params.items()}
    deployed = {**params, **algorithm.statistics(net, params, x)}
    want = [net({**member, **net.statistics(member, x)}, x).softmax(-1) for member in members_of(params, 2)]
    assert_close(algorithm.predict(net, deployed, x).exp(), (want[0] + want[1]) / 2)
