"""MLDG, S-MLDG and their first-order forms against the paper's algorithms, written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import Sequential, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.fo_mldg import FirstOrderMLDG
from seqdg.algorithms.mldg import MLDG

PATHS = [
    pytest.param((0.4, 0.9), (7.0, 1.3, 0.6), id="three domains"),
    pytest.param((0.7, 0.2, 0.5), (7.0, 0.8, 1.9, 1.2), id="four domains"),
]


def algorithm_1(loss, theta, domains, alpha, beta, stop_gradient=False):
    """The loss of Algorithm 1, lines 4 to 8; alpha and beta are indexed from 1 as in the paper's appendix."""
    total = loss(theta, domains[0])
    for i in range(2, len(domains) + 1):
        g = torch.autograd.grad(total, theta, create_graph=not stop_gradient, retain_graph=True)
        ahead = [t - alpha[i - 2] * (d.detach() if stop_gradient else d) for t, d in zip(theta, g, strict=True)]
        total = total + beta[i - 1] * loss(ahead, domains[i - 1])
    return total


def domains_of(episode):
    return [(episode.x[i], episode.y[i]) for i in range(episode.domains)]


@pytest.mark.parametrize(("alpha", "beta"), PATHS)
def test_s_mldg_is_algorithm_1_with_nested_gradients(
    net, weights, theta, episode_of, literal_loss, assert_direction, alpha, beta
):
    episode = episode_of(len(beta))
    got, value = build("s-mldg", alpha=alpha, beta=beta).gradient(net, weights, episode)
    want = algorithm_1(literal_loss, theta, domains_of(episode), alpha, beta)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


@pytest.mark.parametrize(("alpha", "beta"), PATHS)
def test_s_mldg_is_the_finite_difference_of_algorithm_1(
    net, weights, theta, episode_of, literal_loss, assert_direction, alpha, beta
):
    episode, h = episode_of(len(beta)), 1e-4
    domains = domains_of(episode)
    got, _ = build("s-mldg", alpha=alpha, beta=beta).gradient(net, weights, episode)

    def total_at(which, entry, shift):
        moved = [t.detach().clone() for t in theta]
        moved[which].view(-1)[entry] += shift
        return algorithm_1(literal_loss, [t.requires_grad_() for t in moved], domains, alpha, beta).item()

    want = []
    for which, t in enumerate(theta):
        # The five-point rule, exact to the fourth order in h.
        slopes = [
            (
                8 * (total_at(which, e, h) - total_at(which, e, -h))
                - total_at(which, e, 2 * h)
                + total_at(which, e, -2 * h)
            )
            / (12 * h)
            for e in range(t.numel())
        ]
        want.append(torch.tensor(slopes, dtype=torch.float64).reshape(t.shape))
    assert_direction(got, want, rtol=1e-8)


@pytest.mark.parametrize(("alpha", "beta"), PATHS)
def test_fo_s_mldg_is_algorithm_1_with_constant_inner_steps(
    net, weights, theta, episode_of, literal_loss, assert_direction, alpha, beta
):
    episode = episode_of(len(beta))
    got, value = build("fo-s-mldg", alpha=alpha, beta=beta).gradient(net, weights, episode)
    want = algorithm_1(literal_loss, theta, domains_of(episode), alpha, beta, stop_gradient=True)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


@pytest.mark.parametrize(("alpha", "beta"), PATHS)
def test_fo_s_mldg_by_its_fast_path_is_the_gradient_of_its_definition(net, weights, episode_of, alpha, beta):
    episode = episode_of(len(beta))
    algorithm = build("fo-s-mldg", alpha=alpha, beta=beta)
    assert type(algorithm.base).advance is not None
    got, value = algorithm.gradient(net, weights, episode)
    want, loss = torch.func.grad_and_value(lambda w: algorithm.loss(net, w, episode))(weights)
    assert_close(got, want, rtol=1e-9, atol=1e-12)
    assert_close(value, loss)


@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_exact_and_first_order_differ_where_the_path_has_a_step(net, weights, episode_of, alpha):
    episode = episode_of(3)
    exact, _ = build("s-mldg", alpha=alpha).gradient(net, weights, episode)
    first, _ = build("fo-s-mldg", alpha=alpha).gradient(net, weights, episode)
    assert max((exact[name] - first[name]).abs().max() for name in exact) > 1e-3


@pytest.mark.parametrize("kind", [MLDG, FirstOrderMLDG])
@pytest.mark.parametrize("domains", [2, 3, 5])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_mldg_looks_ahead_from_the_mean_or_the_sum_of_all_domains_but_the_last(
    net, weights, theta, episode_of, literal_loss, assert_direction, kind, domains, reduction
):
    episode, alpha, beta = episode_of(domains), 0.6, 1.7
    *train, test = domains_of(episode)
    first = sum(literal_loss(theta, d) for d in train) / (len(train) if reduction == "mean" else 1)
    g = torch.autograd.grad(first, theta, create_graph=True)
    if kind is FirstOrderMLDG:
        g = [d.detach() for d in g]
    want = first + beta * literal_loss([t - alpha * d for t, d in zip(theta, g, strict=True)], test)
    got, value = kind(alpha, beta, reduction=reduction).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


@pytest.mark.parametrize("kind", [MLDG, FirstOrderMLDG])
def test_the_sum_is_the_mean_with_a_longer_look_ahead_a_smaller_beta_and_a_larger_rate(net, weights, episode_of, kind):
    episode, k = episode_of(4), 3
    got, value = kind(0.2, 1.5, reduction="sum").gradient(net, weights, episode)
    want, mean = kind(k * 0.2, 1.5 / k).gradient(net, weights, episode)
    assert_close(value, k * mean)
    assert_close(got, {name: k * d for name, d in want.items()})


@pytest.mark.parametrize("order", ["", "fo-"])
@pytest.mark.parametrize("alpha", [0.5, (0.5,)])
@pytest.mark.parametrize("beta", [1.3, (1.3,), (4.0, 1.3)])
def test_with_two_domains_sequential_mldg_is_mldg_on_the_same_split(net, weights, episode_of, order, alpha, beta):
    episode = episode_of(2)
    got = build(f"{order}s-mldg", alpha=alpha, beta=beta).gradient(net, weights, episode)
    want = build(f"{order}mldg", alpha=alpha, beta=beta).gradient(net, weights, episode)
    assert_close(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [MLDG, FirstOrderMLDG])
@pytest.mark.parametrize("domains", [1, 2, 3, 5])
def test_without_look_ahead_sequential_mldg_is_plain_aggregation(net, weights, episode_of, kind, domains):
    episode = episode_of(domains)
    got, _ = Sequential(kind(alpha=0.0, beta=1.0)).gradient(net, weights, episode)
    want, _ = AGG().gradient(net, weights, episode)
    assert_close(got, {name: domains * g for name, g in want.items()}, rtol=1e-10, atol=1e-12)


def test_a_short_beta_counts_from_the_end_of_the_path_and_is_1_before(net, weights, episode_of):
    episode = episode_of(4)
    for name in ("s-mldg", "fo-s-mldg", "ffo-s-mldg"):
        short = build(name, alpha=0.3, beta=(1.5, 2.0)).gradient(net, weights, episode)
        whole = build(name, alpha=0.3, beta=(1.0, 1.0, 1.5, 2.0)).gradient(net, weights, episode)
        assert_close(short, whole)


def test_aggregation_is_the_mean_over_the_union_of_the_minibatches(
    net, weights, theta, episode_of, literal_loss, assert_direction
):
    episode = episode_of(4)
    want = literal_loss(theta, (episode.x.flatten(0, 1), episode.y.flatten()))
    got, value = AGG().gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))
