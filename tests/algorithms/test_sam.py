from __future__ import annotations

import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.sagm import SAGM
from seqdg.algorithms.sam import SAM
from toys import Remembers


def literal_directions(theta, literal_loss, episode, rho, align):
    """The gradient g at the weights, and that at weights moved by (rho / |g| - align) g, by hand."""
    domains = [episode.minibatch(i) for i in range(3)]
    first = torch.autograd.grad(sum(literal_loss(theta, d) for d in domains) / 3, theta)
    length = torch.sqrt(sum((g**2).sum() for g in first))
    moved = [(w + (rho / length - align) * g).detach().requires_grad_() for w, g in zip(theta, first, strict=True)]
    second = torch.autograd.grad(sum(literal_loss(moved, d) for d in domains) / 3, moved)
    return first, second


def test_sam_is_the_gradient_at_the_worst_weights_nearby(
    net, weights, theta, episode_of, literal_loss, assert_direction
):
    episode = episode_of(3)
    _, want = literal_directions(theta, literal_loss, episode, 0.3, 0.0)
    direction, value = SAM(AGG(), rho=0.3).gradient(net, weights, episode)
    assert_direction(direction, want)
    assert_close(value, AGG().loss(net, weights, episode))


def test_sagm_is_the_mean_of_two_gradients(net, weights, theta, episode_of, literal_loss, assert_direction):
    episode = episode_of(3)
    first, second = literal_directions(theta, literal_loss, episode, 0.3, 0.05)
    direction, _ = SAGM(AGG(), rho=0.3, align=0.05).gradient(net, weights, episode)
    assert_direction(direction, [0.5 * (a + b) for a, b in zip(first, second, strict=True)])


def test_no_distance_is_the_algorithm_inside(net, weights, episode_of):
    for name in ("agg", "fo-s-mldg"):
        plain = build(name)
        want, _ = plain.gradient(net, weights, episode_of(3))
        for wrapped in (SAM(plain, rho=0.0), SAGM(plain, rho=0.0, align=0.0)):
            assert_close(wrapped.gradient(net, weights, episode_of(3))[0], want)


def test_sagm_without_alignment_is_halfway_between_the_gradient_and_sam(net, weights, episode_of):
    plain, sharp = (a.gradient(net, weights, episode_of(3))[0] for a in (AGG(), SAM(AGG(), rho=0.2)))
    half, _ = SAGM(AGG(), rho=0.2, align=0.0).gradient(net, weights, episode_of(3))
    assert_close(half, {name: 0.5 * (plain[name] + sharp[name]) for name in plain})


def test_the_memory_is_of_the_first_of_two_directions(net, weights, episode_of):
    inside = Remembers(eta=2.0)
    for wrapped in (SAM(inside, rho=1.0), SAGM(inside, rho=1.0)):
        memory = wrapped.memory(net, weights, 3)
        _, _, kept = wrapped.step(net, weights, memory, episode_of(3))
        _, _, want = inside.step(net, weights, {"q": memory["base.q"]}, episode_of(3))
        assert_close(kept["base.q"], want["q"])


def test_a_zero_gradient_is_left_at_zero(net, weights, episode_of):
    still = {name: torch.zeros_like(w) for name, w in weights.items()}
    even = episode_of(3)._replace(x=torch.zeros(3, 3, 3, dtype=torch.float64), y=torch.arange(3).expand(3, 3))
    for wrapped in (SAM(AGG()), SAGM(AGG())):
        direction, _ = wrapped.gradient(net, still, even)
        assert all(torch.isfinite(d).all() for d in direction.values())
