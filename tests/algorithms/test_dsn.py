"""DSN: every term of the objective against loops in float64, and limits where it is simpler."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.dsn import compare_codes

ZERO = {"alpha": 0.0, "beta": 0.0, "gamma": 0.0}


def start(net, weights, **settings):
    first = build("dsn", hidden=6, **settings).init(net, weights, 3, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    return {name: w + 0.2 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in first.items()}


def two_layers(p, name, h, i=None):
    parts = [p[f"{name}.{part}"] for part in ("hidden.weight", "hidden.bias", "output.weight", "output.bias")]
    w1, b1, w2, b2 = parts if i is None else [w[i] for w in parts]
    return w2 @ torch.tanh(w1 @ h + b1) + b2


def codes(p, episode):
    """Shared and private codes, row by row."""
    shared = [[torch.tanh(p["0.weight"] @ x + p["0.bias"]) for x in rows] for rows in episode.x]
    private = [
        [two_layers(p, "branch.private", x, int(i)) for x in rows]
        for rows, i in zip(episode.x, episode.domain, strict=True)
    ]
    return shared, private


def literal_separation(p, episode, alpha, beta):
    """Label loss, scale-invariant reconstruction and difference."""
    shared, private = codes(p, episode)
    domains, batch = episode.y.shape
    total = 0.0
    for i in range(domains):
        crossed = torch.zeros(4, 4, dtype=torch.float64)
        middles = [sum(rows) / batch for rows in (shared[i], private[i])]
        for r in range(batch):
            s, h = shared[i][r], private[i][r]
            label = -torch.log_softmax(p["2.weight"] @ s + p["2.bias"], 0)[episode.y[i, r]]
            error = two_layers(p, "decoder", s + h) - episode.x[i, r]
            k = len(error)
            restored = sum(e**2 for e in error) / k - sum(error) ** 2 / k**2
            total = total + (label + alpha * restored) / (domains * batch)
            s, h = s - middles[0], h - middles[1]
            crossed = crossed + torch.outer(s / s.norm(), h / h.norm())
        total = total + beta * sum(c**2 for c in crossed.flatten()) / batch**2 / domains
    return total


def literal_adversary(p, episode):
    shared, _ = codes(p, episode)
    total = 0.0
    for rows, i in zip(shared, episode.domain, strict=True):
        for s in rows:
            total = total - torch.log_softmax(two_layers(p, "domain", s), 0)[int(i)] / episode.y.numel()
    return total


def test_with_an_adversary_every_part_learns_by_its_own_objective(net, weights, episode_of):
    episode, settings = episode_of(3), {"alpha": 0.7, "beta": 1.3, "gamma": 0.4}
    params = start(net, weights)
    got, value = build("dsn", hidden=6, **settings).gradient(net, params, episode)
    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    rest, told = literal_separation(leaves, episode, 0.7, 1.3), literal_adversary(leaves, episode)
    assert_close(value, (rest + 0.4 * told).detach())
    for name, w in leaves.items():
        sign = 1 if name.startswith("domain.") else -1  # the encoder learns against the classifier
        (want,) = torch.autograd.grad(rest + sign * 0.4 * told, w, retain_graph=True)
        assert want.abs().max() > 1e-6
        assert_close(got[name], want)


def test_with_kernels_the_similarity_is_that_of_mmd(net, weights, episode_of):
    episode, params = episode_of(3), start(net, weights, similarity="mmd")
    assert not any(name.startswith("domain.") for name in params)
    got, _ = build("dsn", hidden=6, similarity="mmd", **{**ZERO, "gamma": 0.3}).gradient(net, params, episode)
    want, _ = build("mmd", gamma=0.3).gradient(net, {name: params[name] for name in net.names}, episode)
    assert_close({name: got[name] for name in net.names}, want)


def test_without_weights_the_net_learns_by_aggregation(net, weights, episode_of):
    episode, params = episode_of(3), start(net, weights)
    got, _ = build("dsn", hidden=6, **ZERO).gradient(net, params, episode)
    want, _ = AGG().gradient(net, {name: params[name] for name in net.names}, episode)
    assert_close({name: got[name] for name in net.names}, want)
    assert all(not d.any() for name, d in got.items() if name not in net.names)


def test_the_reconstruction_is_blind_to_an_error_that_is_the_same_for_all_numbers(net, weights, episode_of):
    algorithm, episode, params = build("dsn", hidden=6), episode_of(3), start(net, weights)
    raised = {**params, "decoder.output.bias": params["decoder.output.bias"] + 5.0}
    assert_close(algorithm.loss(net, raised, episode), algorithm.loss(net, params, episode))
    bent = params["decoder.output.bias"] + torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64)
    bent = algorithm.loss(net, {**params, "decoder.output.bias": bent}, episode)
    assert bent > algorithm.loss(net, params, episode) + 0.01


def test_codes_that_vary_alone_cost_nothing_and_codes_that_vary_together_the_most():
    """Both vary along one direction each, which need not be the same: the difference is their squared correlation."""
    e = torch.eye(4, dtype=torch.float64)
    sign = torch.tensor([1.0, 1, -1, -1], dtype=torch.float64).unsqueeze(1)
    other = torch.tensor([1.0, -1, 1, -1], dtype=torch.float64).unsqueeze(1)
    for private, cost in ((sign * e[1], 1.0), (3 * sign * e[0] + 5, 1.0), (-sign * e[2], 1.0), (other * e[1], 0.0)):
        difference = compare_codes((2 * sign * e[0] + 1).unsqueeze(0), private.unsqueeze(0))
        assert_close(difference, torch.tensor(cost, dtype=torch.float64))


def test_the_net_alone_is_deployed(net, weights):
    for similarity in ("dann", "mmd"):
        assert set(build("dsn").deploy(start(net, weights, similarity=similarity), {})) == set(net.names)


def test_one_source_or_a_net_without_features_is_refused_with_a_sentence(net):
    with pytest.raises(UsageError, match="needs at least 2 source domains"):
        build("dsn").check(net, 1)
    with pytest.raises(UsageError, match="works on the features that enter the head"):
        build("dsn").check(Net(nn.Linear(3, 2), "none"), 3)
