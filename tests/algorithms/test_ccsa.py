"""CCSA: the objective against loops over pairs in float64, and limits where it is simpler."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.ccsa import compare_pairs


def literal(theta, episode, forward, gamma, margin):
    """(1 - gamma) L_cls + gamma (L_SA + L_S), pair by pair."""
    label, alike, unlike = 0.0, [], []
    outputs = [[forward(theta, x.unsqueeze(0)) for x in rows] for rows in episode.x]
    domains, batch = episode.y.shape
    for i in range(domains):
        for r in range(batch):
            z, logits = outputs[i][r]
            label = label - torch.log_softmax(logits[0], 0)[episode.y[i, r]] / (domains * batch)
            for j in range(i + 1, domains):
                for s in range(batch):
                    distance = ((z - outputs[j][s][0]) ** 2).sum().sqrt()
                    if episode.y[i, r] == episode.y[j, s]:
                        alike.append(distance**2 / 2)
                    elif distance < margin:
                        unlike.append((margin - distance) ** 2 / 2)
                    else:
                        unlike.append(0 * distance)
    return (1 - gamma) * label + gamma * (sum(alike) / len(alike) + sum(unlike) / len(unlike))


@pytest.mark.parametrize(("gamma", "margin"), [(0.25, 1.0), (0.6, 2.5)])
def test_the_direction_is_that_of_the_published_objective(
    net, weights, theta, episode_of, literal_forward, assert_direction, gamma, margin
):
    episode = episode_of(3)
    got, value = build("ccsa", gamma=gamma, margin=margin).gradient(net, weights, episode)
    want = literal(theta, episode, literal_forward, gamma, margin)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta), rtol=1e-8)


def test_without_weight_it_is_aggregation(net, weights, episode_of):
    got, value = build("ccsa", gamma=0.0).gradient(net, weights, episode_of(3))
    want, plain = AGG().gradient(net, weights, episode_of(3))
    assert_close(got, want)
    assert_close(value, plain)


def test_rows_of_one_class_at_one_place_and_classes_beyond_the_margin_cost_nothing():
    places = 3.0 * torch.eye(3, 4, dtype=torch.float64)
    y = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1]])
    align, separate = compare_pairs(places[y], y, 1.0)
    assert abs(float(align)) < 1e-14
    assert float(separate) == 0.0
    _, nearer = compare_pairs(0.1 * places[y], y, 1.0)
    assert nearer > 0.1


def test_only_pairs_across_domains_count():
    z = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([[0, 0, 0], [1, 1, 1]])  # of one class only within a domain
    align, separate = compare_pairs(z, y, 10.0)
    assert float(align) == 0.0
    assert separate > 0
    align, separate = compare_pairs(z, torch.zeros_like(y), 10.0)
    assert align > 0
    assert float(separate) == 0.0


def test_equal_rows_have_a_finite_gradient():
    y = torch.tensor([[0, 1], [1, 0]])
    gradient = torch.func.grad(lambda z: sum(compare_pairs(z, y, 1.0)))(torch.ones(2, 2, 3))
    assert torch.isfinite(gradient).all()


def test_one_source_or_a_net_without_features_is_refused_with_a_sentence(net):
    with pytest.raises(UsageError, match="needs at least 2 source domains"):
        build("ccsa").check(net, 1)
    with pytest.raises(UsageError, match="works on the features that enter the head"):
        build("ccsa").check(Net(nn.Linear(3, 2), "none"), 3)
