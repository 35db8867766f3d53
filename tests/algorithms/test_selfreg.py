"""SelfReg: its partners share the label, and the loss is the published one row by row."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch.testing import assert_close

from seqdg import build, noise
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.selfreg import draw_partners


def draw(seed):
    return torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed))


def literal_projector(params, rows):
    """Linear, BatchNorm in training mode and ReLU, three times, without the last ReLU."""
    for k in (1, 2, 3):
        rows = [params[f"projector.{k}.weight"] @ row for row in rows]
        mean = sum(rows) / len(rows)
        variance = sum((row - mean) ** 2 for row in rows) / len(rows)
        scale, shift = params[f"projector.{k}.scale"], params[f"projector.{k}.shift"]
        rows = [(row - mean) / (variance + 1e-5).sqrt() * scale + shift for row in rows]
        if k < 3:
            rows = [row.clamp(min=0) for row in rows]
    return rows


def literal_loss(net, params, episode, logit, feature):
    x, y = episode.x.flatten(0, 1), episode.y.flatten()
    features = [net.features(params, x[r : r + 1])[0] for r in range(len(x))]
    logits = [params["2.weight"] @ z + params["2.bias"] for z in features]
    projected = literal_projector(params, features)
    label = sum(p.logsumexp(0) - p[y[r]] for r, p in enumerate(logits)) / len(x)
    g = math.sin(math.pi / 2 * float(noise.uniform(noise.fold(episode.key, 0), ()))) ** 2
    first, second = (draw_partners(noise.fold(episode.key, k), y).int().argmax(1).tolist() for k in (1, 2))
    total = 0.0
    for weight, here, there in ((logit, logits, logits), (feature, features, projected)):
        for r, u in enumerate(here):
            a, b = there[first[r]], there[second[r]]
            near = ((u - a) ** 2).mean()
            mixed = ((u - (g * a + (1 - g) * b)) ** 2).mean()
            total = total + weight * (g * near + (1 - g) * mixed) / len(here)
    return label + min(float(label.detach()), 1.0) * total


@pytest.mark.parametrize("scale", [1.0, 6.0])  # so that the label loss is below 1, and above
@pytest.mark.parametrize("n", [1, 3])
def test_the_direction_is_that_of_the_published_loss(net, weights, episode_of, n, scale):
    algorithm = build("selfreg", logit=0.7, feature=0.4)
    start = algorithm.init(net, weights, n, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    params = {k: scale * (w + 0.1 * torch.randn(w.shape, generator=g, dtype=w.dtype)) for k, w in start.items()}
    episode = episode_of(n)._replace(key=draw(3))
    got, value = algorithm.gradient(net, params, episode)
    assert_close(algorithm.loss(net, params, episode), value)
    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    want = literal_loss(net, leaves, episode, 0.7, 0.4)
    assert_close(value, want.detach())
    # The factor min(l, 1) is a constant in both.
    for name, d in zip(leaves, torch.autograd.grad(want, list(leaves.values())), strict=True):
        assert_close(got[name], d)


def test_without_pulls_it_is_aggregation(net, weights, episode_of):
    algorithm, episode = build("selfreg", logit=0.0, feature=0.0), episode_of(3)
    params = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
    got, _ = algorithm.gradient(net, params, episode)
    for name, d in AGG().gradient(net, weights, episode)[0].items():
        assert_close(got[name], d)


def test_partners_are_a_permutation_that_keeps_every_label():
    for seed in range(20):
        y = torch.randint(4, (17,), generator=torch.Generator().manual_seed(seed))
        matrix = draw_partners(draw(seed), y)
        assert (matrix.sum(0) == 1).all()
        assert (matrix.sum(1) == 1).all()
        assert torch.equal(y[matrix.int().argmax(1)], y)


def test_all_partners_of_a_label_are_equally_likely():
    y = torch.tensor([1, 0, 1, 1, 0])
    counts = Counter(tuple(draw_partners(draw(s), y).int().argmax(1).tolist()) for s in range(600))
    assert len(counts) == 12  # 3! * 2!
    assert min(counts.values()) > 25


def test_the_projector_is_not_deployed(net, weights):
    algorithm = build("selfreg")
    assert set(algorithm.deploy(algorithm.init(net, weights, 2, torch.Generator()), {})) == set(net.names)
