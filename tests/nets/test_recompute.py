"""Activations that are forgotten and computed again change no number, and take less memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.testing import assert_close

from seqdg import Episode, Net, build
from seqdg.nets import RecomputingNet, resnet18
from seqdg.paper.cost import LivingMemory


def deep() -> Net:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())]
    return Net(nn.Sequential(*layers, nn.Linear(32, 3)), batchnorm="none").to(dtype=torch.float64)


def episode_of(sources: int, rows: int = 8) -> Episode:
    g = torch.Generator().manual_seed(1)
    x = torch.randn((sources, rows, 32), generator=g, dtype=torch.float64)
    return Episode(x, torch.randint(0, 3, (sources, rows), generator=g), torch.arange(sources), torch.tensor(0.0))


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["mldg", "s-mldg"])
@pytest.mark.parametrize("sources", [2, 4])
def test_no_direction_changes(name, order, sources):
    net, episode = deep(), episode_of(sources)
    plain, again = (build(name, alpha=0.3, order=order, recompute=on) for on in (False, True))
    assert_close(again.gradient(net, net.params(), episode), plain.gradient(net, net.params(), episode))
    assert_close(again.loss(net, net.params(), episode), plain.loss(net, net.params(), episode))


def test_nor_in_a_stack():
    net, episode = deep(), episode_of(3)
    stacked = {name: torch.stack([w, 1.1 * w]) for name, w in net.params().items()}
    plain, again = (build("s-mldg", alpha=0.3, recompute=on) for on in (False, True))
    got, want = (vmap(lambda w, a=a: a.gradient(net, w, episode))(stacked) for a in (again, plain))
    assert_close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_a_gradient_of_a_gradient_of_a_net_with_batchnorm(policy):
    torch.manual_seed(0)
    net = Net(resnet18(3), policy).to(dtype=torch.float64)
    params = {name: w.double() for name, w in net.params().items()}
    x, y = torch.randn(4, 3, 16, 16, dtype=torch.float64), torch.tensor([0, 1, 2, 1])

    def bent(of: Net):
        return grad(lambda w: sum((g**2).sum() for g in grad(of.loss)(w, (x, y)).values()))(params)

    assert_close(bent(RecomputingNet(net)), bent(net))


@pytest.mark.slow
def test_it_takes_less_memory():
    net, episode = deep(), episode_of(4, rows=256)
    peaks = []
    for on in (True, False):
        algorithm = build("s-mldg", alpha=0.1, recompute=on)
        with LivingMemory() as living:
            algorithm.gradient(net, net.params(), episode)
        peaks.append(living.peak)
    assert peaks[0] < 0.5 * peaks[1]
