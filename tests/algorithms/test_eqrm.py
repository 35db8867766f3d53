"""EQRM: the quantile and its gradient, by bisection and finite differences."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from torch.func import grad
from torch.testing import assert_close

from seqdg import UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.eqrm import EQRM, find_quantile


def literal_quantile(losses, quantile):
    """By bisection of the kernel density estimate's distribution function, on plain numbers."""
    n, mean = len(losses), sum(losses) / len(losses)
    width = 1.06 * math.sqrt(sum((loss - mean) ** 2 for loss in losses) / (n - 1)) * n**-0.2
    low, high = min(losses) - 50 * width, max(losses) + 50 * width
    for _ in range(200):
        middle = (low + high) / 2
        below = sum(0.5 * (1 + math.erf((middle - loss) / width / math.sqrt(2))) for loss in losses) / n
        low, high = (low, middle) if below > quantile else (middle, high)
    return low


@pytest.mark.parametrize("quantile", [0.01, 0.3, 0.75, 0.99, 0.999])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_loss_is_the_quantile_and_the_direction_its_gradient(net, weights, episode_of, n, quantile):
    episode = episode_of(n)
    got, value = build("eqrm", quantile=quantile).gradient(net, weights, episode)

    def literal(params):
        return literal_quantile([float(net.loss(params, episode.minibatch(i))) for i in range(n)], quantile)

    assert_close(float(value), literal(weights), rtol=1e-9, atol=1e-9)
    for name, w in weights.items():
        side = torch.zeros_like(w)
        side.view(-1)[0] = 1e-5
        there, back = (literal({**weights, name: w + s * side}) for s in (1, -1))
        assert_close(float(got[name].flatten()[0]), (there - back) / 2e-5, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("quantile", [0.2, 0.75])
def test_with_a_gaussian_density_it_is_mean_and_spread(net, weights, episode_of, quantile):
    episode = episode_of(4)
    got, value = build("eqrm", quantile=quantile, density="gaussian").gradient(net, weights, episode)

    def literal(params):
        losses = [net.loss(params, episode.minibatch(i)) for i in range(4)]
        mean = sum(losses) / 4
        return mean + NormalDist().inv_cdf(quantile) * (sum((loss - mean) ** 2 for loss in losses) / 3) ** 0.5

    assert_close(value, literal(weights), rtol=1e-9, atol=1e-9)
    assert_close(got, grad(literal)(weights), rtol=1e-8, atol=1e-8)


def test_at_the_median_of_symmetric_losses_it_is_aggregation():
    losses = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    half = torch.tensor(0.5, dtype=torch.float64)
    assert_close(find_quantile(losses, torch.tensor(0.4, dtype=torch.float64), half), losses.mean())


def test_domains_of_equal_loss_are_aggregated(net, weights, episode_of):
    episode = episode_of(3)
    same = episode._replace(x=episode.x[:1].expand(3, -1, -1), y=episode.y[:1].expand(3, -1))
    for density in ("kernel", "gaussian"):
        got, _ = build("eqrm", density=density).gradient(net, weights, same)
        assert_close(got, AGG().gradient(net, weights, same)[0])


def test_aggregation_comes_first():
    assert build("eqrm", burn_in=0.25).stages() == ((0.25, AGG()), (0.75, EQRM(burn_in=0.25)))
    assert build("eqrm", burn_in=0.0).stages() == ((1.0, EQRM(burn_in=0.0)),)


def test_a_quantile_lies_above_0_and_below_1():
    for value in (0.0, 1.0):
        with pytest.raises(UsageError, match=f"quantile is {value}, but it must be"):
            build("eqrm", quantile=value)
