"""AND-mask: entries on whose sign the domains agree, one by one."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import Episode, UsageError, build
from seqdg.algorithms.agg import AGG


def sign(value: float) -> int:
    return (value > 0) - (value < 0)


def literal_direction(loss, theta, episode, tau):
    """Entry by entry, with the gradients of the domains as plain numbers."""
    n = episode.domains
    each = [torch.autograd.grad(loss(theta, (episode.x[i], episode.y[i])), theta) for i in range(n)]
    direction = []
    for k in range(len(theta)):
        columns = list(zip(*[g[k].flatten().tolist() for g in each], strict=True))
        mask = [1.0 if abs(sum(map(sign, column))) / n >= tau else 0.0 for column in columns]
        kept = sum(mask) / len(mask)
        values = [m * sum(column) / n / (kept + 1e-10) for m, column in zip(mask, columns, strict=True)]
        direction.append(torch.tensor(values, dtype=torch.float64).reshape(theta[k].shape))
    return direction


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_direction_is_the_published_one(net, weights, theta, episode_of, literal_loss, assert_direction, n, tau):
    episode = episode_of(n)
    got, value = build("and-mask", tau=tau).gradient(net, weights, episode)
    assert_direction(got, literal_direction(literal_loss, theta, episode, tau))
    assert_close(value, net.losses(weights, episode).mean())


def test_with_tau_0_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    got, _ = build("and-mask", tau=0.0).gradient(net, weights, episode)
    assert_close(got, AGG().gradient(net, weights, episode)[0])


def test_domains_that_are_all_alike_are_aggregated_at_any_tau(net, weights, episode_of):
    episode = Episode(*(t[:1].expand(3, *t.shape[1:]) for t in episode_of(3)[:3]), progress=torch.tensor(0.5))
    got, _ = build("and-mask", tau=1.0).gradient(net, weights, episode)
    assert_close(got, AGG().gradient(net, weights, episode)[0])


def test_a_tensor_on_whose_signs_no_domains_agree_gets_no_direction_at_all(net, weights, episode_of):
    episode = episode_of(5)
    got, _ = build("and-mask", tau=1.0).gradient(net, {n: 0.01 * w for n, w in weights.items()}, episode)
    for d in got.values():
        assert torch.isfinite(d).all()
    assert not got["2.bias"].any()


def test_tau_lies_between_0_and_1():
    with pytest.raises(UsageError, match=r"tau is 1\.1, but it must be at most 1\.0"):
        build("and-mask", tau=1.1)
