"""What holds for all algorithms: none is aggregation under another name, and each trains networks of images."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close
from torch.utils._pytree import tree_map

import seqdg
from seqdg import Episode, Net, build
from seqdg.algorithms import _branches as branches
from seqdg.algorithms.agg import AGG
from seqdg.base import tree
from seqdg.bench.learners.contract import TRAINING
from seqdg.core import collect_rules
from seqdg.nets import Point, resnet18
from seqdg.testing import Case, build_nets
from toys import mark_others

LEFT_OUT = ("mldg", "s-mldg", "eqrm", "rdm")  # of a ResNet: the former are slow, the latter follow the worst domain
RATES = {"ffo-s-mldg": 1.0}  # of plain steps, where they are not 0.1
IMAGES = [name for name in seqdg.list_algorithms() if name not in LEFT_OUT]
OTHERS = [name for name in seqdg.list_algorithms() if name not in ("agg", "t3a", "d-mtae")]  # whose last stage is AGG's


def moved(params, seed=0):
    g = torch.Generator().manual_seed(seed)
    return {name: w + 0.1 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in params.items()}


def as_one_net(algorithm, net, params):
    """What is deployed, or of several networks their mean, by the net's names; flat."""
    deployed = algorithm.deploy(params, {})
    found = {**deployed, **branches.average(branches.select_copies(deployed))}
    return torch.cat([found[name].flatten() for name in net.names]), {name: found[name] for name in net.names}


@pytest.mark.parametrize("name", OTHERS)
def test_the_direction_is_not_that_of_aggregation(name, net, weights, episode_of):
    settings = {"p": 1.0} if "p" in collect_rules(build(name)) else {}
    algorithm, episode = build(name, **settings), episode_of(3)
    if algorithm.needs_points:
        case = Case(algorithm, *build_nets(with_points=True).values(), 3)
        net, weights, episode = case.net, case.net.params(), case.draw_episode()
    episode = episode._replace(y=(episode.y[:1] + torch.arange(3).unsqueeze(1)) % 3)  # so that gradients conflict
    start = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
    params = moved(start)
    stage = algorithm.stages()[-1][1]
    direction, *_ = stage.step(net, params, algorithm.memory(net, start, 3), episode)
    still = {n: torch.zeros_like(w) for n, w in params.items()}
    flat, _ = as_one_net(algorithm, net, {**still, **direction})
    _, at = as_one_net(algorithm, net, params)
    plain, _ = AGG().gradient(net, at, episode)
    alike = cosine_similarity(flat, torch.cat([plain[n].flatten() for n in net.names]), dim=0)
    assert alike < 1 - 1e-6


@pytest.mark.parametrize("name", seqdg.list_algorithms())
def test_no_setting_has_the_name_of_one_of_the_training(name):
    assert not set(collect_rules(build(name))) & set(TRAINING)


def images(sources, size, seed=0):
    g = torch.Generator().manual_seed(seed)
    return Episode(
        x=torch.randn((sources, 4, 3, size, size), generator=g),
        y=torch.randint(5, (sources, 4), generator=g),
        domain=torch.randperm(sources, generator=g),
        progress=torch.tensor(0.5),
        key=torch.randint(2**62, (), generator=g),
    )


@pytest.fixture(scope="module")
def convolutional():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), Point("after1"), nn.AdaptiveAvgPool2d(2))
        return nn.Sequential(*body, Point("after2"), nn.Flatten(), nn.Linear(16, 5))


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
@pytest.mark.parametrize("name", seqdg.list_algorithms())
def test_a_net_of_images_trains_in_a_stack_as_it_does_alone(name, policy, convolutional):
    net, algorithm = Net(convolutional, policy).to(dtype=torch.float64), build(name)
    episodes = [images(2, 8, seed)._replace(x=images(2, 8, seed).x.double()) for seed in range(2)]
    starts = [algorithm.init(net, moved(net.params(), s), 2, torch.Generator().manual_seed(s)) for s in range(2)]
    for k in range(len(algorithm.stages())):

        def step(params, episode, k=k):
            return algorithm.stages()[k][1].step(net, params, algorithm.memory(net, params, 2), episode)

        together = vmap(step)(tree.stack(starts), tree_map(lambda *x: torch.stack(x), *episodes))
        for i, (start, episode) in enumerate(zip(starts, episodes, strict=True)):
            direction, value, memory = step(start, episode)
            assert_close({n: d[i] for n, d in together[0].items()}, direction)
            assert_close(together[1][i], value)
            assert_close({n: m[i] for n, m in together[2].items()}, memory)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", mark_others([n for n in seqdg.list_algorithms() if n not in LEFT_OUT], pytest.mark.soak)
)
def test_a_resnet_18_learns_its_minibatches(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net(resnet18(5), "frozen")
    settings = {"branches": "head"} if name.endswith("undo-bias") else {}
    algorithm, episode = build(name, **settings), images(2, 32)
    algorithm.check(net, 2)
    params = algorithm.init(net, net.params(), 2, torch.Generator().manual_seed(0))
    memory = algorithm.memory(net, params, 2)
    x, y, losses = episode.x.flatten(0, 1), episode.y.flatten(), []
    for _ in range(5):
        deployed = algorithm.deploy(params, memory)
        logits = algorithm.predict(net, {**deployed, **algorithm.statistics(net, deployed, x)}, x)
        losses.append(float(net.criterion(logits, y)))
        direction, _, memory = algorithm.stages()[-1][1].step(net, params, memory, episode)
        params |= {n: params[n] - RATES.get(name, 0.1) * d for n, d in direction.items()}
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.05
