"""The paper's analysis (section 4.2 and appendix): first-order expansions in alpha, whose error is of second order."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from seqdg import build

ALPHAS = (0.04, 0.02, 0.01)


def gradients(loss, theta, domains):
    return [torch.autograd.grad(loss(theta, d), theta, create_graph=True) for d in domains]


def dot(a, b):
    return sum((x * y).sum() for x, y in zip(a, b, strict=True))


def domains_of(episode):
    return [(episode.x[i], episode.y[i]) for i in range(episode.domains)]


def norm(vectors):
    return float(sum((v.detach() ** 2).sum() for v in vectors)) ** 0.5


def assert_second_order(errors):
    """Halving alpha divides the error by four in the limit; by 3.5 is asked."""
    assert errors[-1] > 1e-11, "too small to be told from rounding"
    for coarse, fine in pairwise(errors):
        assert coarse / fine >= 3.5


def test_the_mean_ffo_direction_over_both_orders_maximizes_the_inner_product_of_gradients(
    net, weights, theta, episode_of, literal_loss
):
    episode = episode_of(2)
    swapped = episode._replace(x=episode.x.flip(0), y=episode.y.flip(0), domain=episode.domain.flip(0))
    g1, g2 = gradients(literal_loss, theta, domains_of(episode))
    attraction = torch.autograd.grad(dot(g1, g2), theta)
    errors, plain = [], []
    for alpha in ALPHAS:
        algorithm = build("ffo-s-mldg", alpha=alpha)
        one, _ = algorithm.gradient(net, weights, episode)
        other, _ = algorithm.gradient(net, weights, swapped)
        mean = [(one[name] + other[name]) / 2 / alpha for name in one]
        want = [a + b - alpha / 2 * c for a, b, c in zip(g1, g2, attraction, strict=True)]
        errors.append(norm([m - w for m, w in zip(mean, want, strict=True)]))
        plain.append(norm([m - a - b for m, a, b in zip(mean, g1, g2, strict=True)]))
    assert_second_order(errors)
    assert max(a / b for a, b in pairwise(plain)) < 2.5, "without the inner product: first order"


@pytest.mark.parametrize(("second", "third"), [(1.0, 1.0), (1.4, 0.6)])
def test_s_mldg_3_is_the_sum_of_losses_minus_all_three_inner_products(
    second, third, net, weights, theta, episode_of, literal_loss
):
    """Those of the paper with beta 1; else each domain's loss and gradient has its beta, but in the first position."""
    episode = episode_of(3)
    domains = domains_of(episode)
    losses = [b * literal_loss(theta, d) for b, d in zip((1.0, second, third), domains, strict=True)]
    g1, g2, g3 = gradients(literal_loss, theta, domains)
    products = {"12": second * dot(g1, g2), "13": third * dot(g1, g3), "23": second * third * dot(g2, g3)}
    of_losses, of_gradients = [], []
    lacking = {pair: [] for pair in products}
    for alpha in ALPHAS:
        direction, value = build("s-mldg", alpha=alpha, beta=(second, third)).gradient(net, weights, episode)
        want = sum(losses) - alpha * sum(products.values())
        slope = torch.autograd.grad(want, theta, retain_graph=True)
        error = float(value - want.detach())
        of_losses.append(abs(error))
        of_gradients.append(norm([d - s for d, s in zip(direction.values(), slope, strict=True)]))
        for pair, product in products.items():
            lacking[pair].append(abs(error - alpha * product.item()))
    assert_second_order(of_losses)
    assert_second_order(of_gradients)
    for pair, errors in lacking.items():
        assert errors[-2] / errors[-1] < 2.5, f"without the inner product {pair}: first order"
