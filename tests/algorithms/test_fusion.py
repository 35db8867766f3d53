"""Fusion: training and prediction against loops in float64, and the ensemble of heads as a limit."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, UsageError, build


@pytest.fixture
def params(net, weights):
    start = build("fusion").init(net, weights, 3, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    return {name: w + 0.4 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}


def encode(p, x):
    return torch.tanh(p["0.weight"] @ x + p["0.bias"])


def classify(p, z):
    """The probabilities of each head."""
    return [torch.softmax(w @ z + b, 0) for w, b in zip(p["branch.2.weight"], p["branch.2.bias"], strict=True)]


def literal_loss(p, episode, lam, agnostic):
    total = 0.0
    domains, batch = episode.y.shape
    for x, y, domain in zip(episode.x, episode.y, episode.domain, strict=True):
        for r in range(batch):
            z = encode(p, x[r])
            mixed = 0.0
            for i, head in enumerate(classify(p, z)):
                mixed = mixed + (agnostic / domains + (1 - agnostic if i == int(domain) else 0)) * head[y[r]]
            guess = torch.softmax(p["domain.weight"] @ z + p["domain.bias"], 0)[int(domain)]
            total = total - (torch.log(mixed) + lam * torch.log(guess)) / (domains * batch)
    return total


@pytest.mark.parametrize(("lam", "agnostic"), [(0.5, 0.25), (1.7, 1.0), (0.3, 0.0)])
def test_the_direction_is_that_of_the_objective_row_by_row(net, params, episode_of, lam, agnostic):
    episode = episode_of(3)
    got, value = build("fusion", lam=lam, agnostic=agnostic).gradient(net, params, episode)
    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    want = literal_loss(leaves, episode, lam, agnostic)
    assert_close(value, want.detach())
    gradients = torch.autograd.grad(want, list(leaves.values()))
    assert_close(got, dict(zip(leaves, gradients, strict=True)))


def test_a_row_is_predicted_by_the_heads_of_the_domains_that_it_looks_like(net, params, episode_of):
    algorithm, rows = build("fusion", agnostic=0.2), episode_of(3).x[1]
    got = algorithm.predict(net, algorithm.deploy(params, {}), rows).softmax(-1)
    for x, chances in zip(rows, got, strict=True):
        z = encode(params, x)
        q = torch.softmax(params["domain.weight"] @ z + params["domain.bias"], 0)
        assert_close(chances, sum((0.8 * q[i] + 0.2 / 3) * head for i, head in enumerate(classify(params, z))))


def test_uniform_weights_are_the_ensemble_of_heads(net, params, episode_of):
    x = episode_of(3).x[0]
    body = {f"branch.{n}": params[n].expand(3, *params[n].shape) for n in ("0.weight", "0.bias")}
    nets = {**body, **{n: w for n, w in params.items() if n.startswith("branch.")}}
    ensemble = build("ensemble").predict(net, nets, x)
    assert_close(build("fusion", agnostic=1.0).predict(net, params, x), ensemble)
    blind = {**params, "domain.weight": 0 * params["domain.weight"], "domain.bias": 0 * params["domain.bias"]}
    assert_close(build("fusion", agnostic=0.0).predict(net, blind, x), ensemble)


def test_without_an_agnostic_share_a_sure_branch_predicts_by_one_head(net, params, episode_of):
    x, sure = episode_of(3).x[0], torch.tensor([0.0, 300.0, 0.0], dtype=torch.float64)
    known = {**params, "domain.weight": 0 * params["domain.weight"], "domain.bias": sure}
    one = {**params, "2.weight": params["branch.2.weight"][1], "2.bias": params["branch.2.bias"][1]}
    assert_close(build("fusion", agnostic=0.0).predict(net, known, x), torch.log_softmax(net(one, x), -1))


def test_at_the_start_every_head_is_the_nets(net, weights, episode_of):
    algorithm, x = build("fusion"), episode_of(3).x[0]
    start = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
    assert_close(algorithm.predict(net, start, x), torch.log_softmax(net(weights, x), -1))


def test_one_source_or_a_net_without_features_is_refused_with_a_sentence(net):
    with pytest.raises(UsageError, match="needs at least 2 source domains"):
        build("fusion").check(net, 1)
    with pytest.raises(UsageError, match="works on the features that enter the head"):
        build("fusion").check(Net(nn.Linear(3, 2), "none"), 3)
