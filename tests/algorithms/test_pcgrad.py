"""PCGrad and S-PCGrad against the published loops over flat gradients."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.pcgrad import project


def flat_gradients(loss, theta, episode):
    each = [torch.autograd.grad(loss(theta, (episode.x[i], episode.y[i])), theta) for i in range(episode.domains)]
    return [torch.cat([g.flatten() for g in gradient]) for gradient in each]


def literal_pcgrad(gradients):
    """Algorithm 1 of the paper, with the other tasks in the order of the path."""
    projected = []
    for i, gradient in enumerate(gradients):
        p = gradient.clone()
        for j, other in enumerate(gradients):
            if j != i and torch.dot(p, other) < 0:
                p = p - torch.dot(p, other) / torch.dot(other, other) * other
        projected.append(p)
    return sum(projected)


def literal_chain(gradients):
    d = gradients[0]
    for g in gradients[1:]:
        if torch.dot(g, d) < 0:
            g = g - torch.dot(g, d) / torch.dot(d, d) * d
        d = d + g
    return d


def flatten(direction):
    return torch.cat([d.flatten() for d in direction.values()])


def conflicting(episode):
    """The same labels turned round from domain to domain, so that gradients conflict."""
    turn = torch.arange(episode.domains).unsqueeze(1)
    return episode._replace(y=(episode.y[:1] + turn) % 3, x=episode.x[:1] + 0.3 * episode.x)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(("name", "literal"), [("pcgrad", literal_pcgrad), ("s-pcgrad", literal_chain)])
def test_the_direction_is_that_of_the_published_loop(net, weights, theta, episode_of, literal_loss, name, literal, n):
    for episode in (episode_of(n), conflicting(episode_of(n))):
        gradients = flat_gradients(literal_loss, theta, episode)
        got, value = build(name).gradient(net, weights, episode)
        assert_close(flatten(got), literal(gradients), rtol=1e-9, atol=1e-12)
        assert_close(value, net.losses(weights, episode).sum())
    assert min(float(torch.dot(a, b)) for a in gradients for b in gradients) < 0


@pytest.mark.parametrize("name", ["pcgrad", "s-pcgrad"])
def test_domains_without_conflict_are_added_up(net, weights, episode_of, name):
    episode = episode_of(3)
    alike = episode._replace(x=episode.x[:1] + 0.01 * episode.x, y=episode.y[:1].expand(3, -1))
    got, _ = build(name).gradient(net, weights, alike)
    assert_close(flatten(got), 3 * flatten(AGG().gradient(net, weights, alike)[0]))


def test_the_path_decides_who_gives_way(net, weights, episode_of):
    episode = conflicting(episode_of(3))
    back = episode._replace(x=episode.x.flip(0), y=episode.y.flip(0), domain=episode.domain.flip(0))
    there, _ = build("s-pcgrad").gradient(net, weights, episode)
    again, _ = build("s-pcgrad").gradient(net, weights, back)
    assert (flatten(there) - flatten(again)).norm() > 0.05 * flatten(there).norm()


def test_two_opposite_gradients_leave_nothing():
    gradients = torch.tensor([[1.0, 2.0], [-1.0, -2.0]], dtype=torch.float64)
    assert_close(project(gradients @ gradients.T) @ gradients, torch.zeros(2, 2, dtype=torch.float64))


def test_a_gradient_of_0_conflicts_with_none():
    gradients = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0]], dtype=torch.float64)
    assert_close(project(gradients @ gradients.T) @ gradients, gradients)
