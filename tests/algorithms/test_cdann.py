"""CDANN: the domain classifier sees the label, every class weighs the same, and features learn against it."""

from __future__ import annotations

import math

import pytest
import torch
from torch.func import grad
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG


def domain_loss(net, params, episode, sources, labels):
    """Class by class and row by row, on features that are not reversed."""
    total, classes = 0.0, sorted({y for row in labels for y in row})
    for label in classes:
        rows = []
        for i, source in enumerate(sources):
            for r, y in enumerate(labels[i]):
                if y == label:
                    z = net.features(params, episode.x[i])[r] + params["domain.label"][label]
                    hidden = torch.tanh(params["domain.hidden.weight"] @ z + params["domain.hidden.bias"])
                    logits = params["domain.output.weight"] @ hidden + params["domain.output.bias"]
                    rows.append(cross_entropy(logits, torch.tensor(source)))
        total = total + torch.stack(rows).mean()
    return total / len(classes)


@pytest.fixture
def params(net, weights):
    return build("cdann", hidden=6).init(net, weights, 3, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("lam", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("classes", [3, 2])  # of 2, one class has no row
def test_the_direction_is_that_of_both_losses_by_hand(net, weights, params, episode_of, lam, classes):
    episode = episode_of(3)._replace(progress=torch.tensor(0.07, dtype=torch.float64))
    episode = episode._replace(y=episode.y.clamp(max=classes - 1))
    ramp = 2 / (1 + math.exp(-0.7)) - 1
    got, value = build("cdann", hidden=6, lam=lam).gradient(net, params, episode)
    plain, plain_value = AGG().gradient(net, weights, episode)
    sources, labels = episode.domain.tolist(), episode.y.tolist()
    domains = grad(lambda p: domain_loss(net, p, episode, sources, labels))(params)
    assert_close(value, plain_value + domain_loss(net, params, episode, sources, labels))
    for name in got:
        if name.startswith("domain."):
            assert_close(got[name], domains[name])
        elif name in net.head_names:
            assert_close(got[name], plain[name])
        else:
            assert_close(got[name], plain[name] - lam * ramp * domains[name])


def test_without_label_vectors_and_with_balanced_classes_it_is_dann(net, params, episode_of):
    episode = episode_of(3)._replace(x=episode_of(3).x[:, :3], y=torch.arange(3).expand(3, 3))
    mute = {**params, "domain.label": torch.zeros_like(params["domain.label"])}
    got, _ = build("cdann", hidden=6, lam=0.7).gradient(net, mute, episode)
    dann = {name: w for name, w in mute.items() if name != "domain.label"}
    want, _ = build("dann", hidden=6, lam=0.7).gradient(net, dann, episode)
    for name, d in want.items():
        assert_close(got[name], d)
