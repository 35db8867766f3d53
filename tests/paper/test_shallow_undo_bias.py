"""(S-)Undo-Bias for linear models with squared loss, in closed form (Khosla et al. 2012; Li et al. 2020, appendix B),
against a numerical minimizer, against each other, and against the algorithm's gradient.

`solve_joint` minimizes over a model that all domains share and what each adds to it; `solve_per_domain` over the
domains' models alone. They have the same minimum. `solve_sequential` draws each model to the mean of those before it on
a path, or on all paths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from seqdg import Episode, Net, build

Array = NDArray[np.floating[Any]]
LAMBDAS = [(0.7, 0.3), (50.0, 0.01), (0.02, 4.0)]


class LinearModels(NamedTuple):
    """What Undo-Bias learns; unseen domains are served by `x @ shared`."""

    shared: Array  # (feature, *output) θ_0
    domains: Array  # (domain, feature, *output) Θ_i = θ_0 + θ_i


def solve_joint(xs: Sequence[Array], ys: Sequence[Array], lambda1: float, lambda2: float) -> LinearModels:
    """Return the minimum over θ_0, ..., θ_N of

        sum_i ||X_i (θ_0 + θ_i) - y_i||^2 + λ1 sum_i ||θ_i||^2 + λ2 ||θ_0||^2

    With A_i = X_i' X_i + λ1, θ_i = A_i^-1 X_i' (y_i - X_i θ_0), and what is left is linear in θ_0.
    """
    data = compute_products(xs, ys)
    one = np.eye(data[0][0].shape[1])
    left, right = lambda2 * one, np.zeros_like(data[0][1])
    for gram, target in data:
        rest = lambda1 * np.linalg.inv(gram + lambda1 * one)  # 1 - A_i^-1 X_i' X_i
        left, right = left + gram @ rest, right + rest @ target
    shared = np.linalg.solve(left, right)
    offsets = [np.linalg.solve(gram + lambda1 * one, target - gram @ shared) for gram, target in data]
    return LinearModels(shared, shared + np.stack(offsets))


def solve_per_domain(xs: Sequence[Array], ys: Sequence[Array], lambda1: float, lambda2: float) -> LinearModels:
    """Return the minimum over Θ_1, ..., Θ_N, M their mean, of

        sum_i ||X_i Θ_i - y_i||^2 + a sum_i ||Θ_i||^2 + b sum_i ||Θ_i - M||^2
        a = λ1 λ2 / (λ2 + λ1 N),   b = λ1^2 N / (λ2 + λ1 N),   θ_0 = λ1 / (λ2 + λ1 N) sum_i Θ_i

    Θ_i = (X_i' X_i + a + b)^-1 (X_i' y_i + b M), whose mean must be M.
    """
    data = compute_products(xs, ys)
    one, n = np.eye(data[0][0].shape[1]), len(data)
    whole = lambda2 + lambda1 * n
    a, b = lambda1 * lambda2 / whole, lambda1**2 * n / whole
    inverses = [np.linalg.inv(gram + (a + b) * one) for gram, _ in data]
    left = one - b / n * np.sum(inverses, axis=0)
    right = np.sum([inverse @ target for inverse, (_, target) in zip(inverses, data, strict=True)], axis=0) / n
    mean = np.linalg.solve(left, right)
    models = [inverse @ (target + b * mean) for inverse, (_, target) in zip(inverses, data, strict=True)]
    return LinearModels(lambda1 / whole * np.sum(models, axis=0), np.stack(models))


def solve_sequential(
    xs: Sequence[Array], ys: Sequence[Array], lam: float, decay: float = 0.0, path: Sequence[int] | None = None
) -> LinearModels:
    """Return the minimum over Θ_1, ..., Θ_N of S-Undo-Bias with the squared norm (Li et al. 2020, Algorithm 3),

        sum_i ||X_i Θ_i - y_i||^2 + decay sum_i ||Θ_i||^2 + λ E_p sum_{i > 1} ||Θ_p[i] - mean over j < i of Θ_p[j]||^2

    on one path p (domains by number, from 0), or in expectation over all N! paths. There, every penalty is the variance
    of a contrast of models that are drawn without replacement, and with M their mean the sum of all is

        λ (1 + (1 + 1/2 + ... + 1/(N-1)) / (N-1)) sum_i ||Θ_i - M||^2

    So S-Undo-Bias with the squared norm is Undo-Bias with a stronger λ: what the path adds lies in the steps that
    follow single paths, and in the norm without its square. The shared model is M, as in the paper's algorithm.
    """
    data = compute_products(xs, ys)
    n, width = len(data), len(data[0][0])
    contrasts = contrast_with_mean(n) if path is None else contrast_with_past(path, n)
    left = np.kron(lam * contrasts.T @ contrasts, np.eye(width))
    for i, (gram, _) in enumerate(data):
        here = slice(i * width, (i + 1) * width)
        left[here, here] += gram + decay * np.eye(width)
    models = np.linalg.solve(left, np.concatenate([target for _, target in data]))
    domains = models.reshape(n, width, *models.shape[1:])
    return LinearModels(domains.mean(0), domains)


def contrast_with_mean(n: int) -> Array:
    """Return C (domain, domain) such that ||C Θ||^2 is the expectation of the sequential penalties over all paths."""
    rise = 1 + sum(1 / k for k in range(1, n)) / max(1, n - 1)
    return math.sqrt(rise) * (np.eye(n) - 1 / n)


def contrast_with_past(path: Sequence[int], n: int) -> Array:
    """Return C (position, domain) such that (C Θ)_i is the model at place i of the path less the mean before it."""
    contrasts = np.zeros((n, n))
    for i in range(1, n):
        contrasts[i, path[i]] = 1.0
        contrasts[i, list(path[:i])] = -1 / i
    return contrasts


def compute_products(xs: Sequence[Array], ys: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Return X_i' X_i and X_i' y_i of every domain."""
    return [(x.T @ x, x.T @ y) for x, y in zip(xs, ys, strict=True)]


def domains(n=3, outputs=(), seed=0):
    g = np.random.default_rng(seed)
    sizes = [7 + 3 * i for i in range(n)]
    truth = [g.normal(size=(4, *outputs)) for _ in range(n)]
    xs = [g.normal(size=(rows, 4)) for rows in sizes]
    return xs, [x @ t + 0.1 * g.normal(size=(len(x), *outputs)) for x, t in zip(xs, truth, strict=True)]


def minimizer(objective, shape):
    found = minimize(lambda flat: objective(flat.reshape(shape)), np.zeros(np.prod(shape)), tol=1e-14)
    return found.x.reshape(shape)


@pytest.mark.parametrize(("lambda1", "lambda2"), LAMBDAS)
def test_the_joint_closed_form_is_where_an_optimizer_ends(lambda1, lambda2):
    xs, ys = domains()

    def objective(theta):
        shared, own = theta[0], theta[1:]
        fit = sum(np.sum((x @ (shared + t) - y) ** 2) for x, y, t in zip(xs, ys, own, strict=True))
        return fit + lambda1 * np.sum(own**2) + lambda2 * np.sum(shared**2)

    want, got = minimizer(objective, (4, 4)), solve_joint(xs, ys, lambda1, lambda2)
    np.testing.assert_allclose(got.shared, want[0], rtol=0, atol=1e-4)
    np.testing.assert_allclose(got.domains, want[0] + want[1:], rtol=0, atol=1e-4)
    best = np.stack([got.shared, *(got.domains - got.shared)])
    assert objective(best) <= objective(want)


@pytest.mark.parametrize(("lambda1", "lambda2"), LAMBDAS)
def test_the_closed_form_in_the_domains_alone_is_where_an_optimizer_ends(lambda1, lambda2):
    xs, ys = domains()
    whole = lambda2 + lambda1 * 3

    def objective(models):
        fit = sum(np.sum((x @ t - y) ** 2) for x, y, t in zip(xs, ys, models, strict=True))
        away = lambda1**2 * 3 / whole * np.sum((models - models.mean(0)) ** 2)
        return fit + lambda1 * lambda2 / whole * np.sum(models**2) + away

    want, got = minimizer(objective, (3, 4)), solve_per_domain(xs, ys, lambda1, lambda2)
    np.testing.assert_allclose(got.domains, want, rtol=0, atol=1e-4)
    assert objective(got.domains) <= objective(want)


@pytest.mark.parametrize(("lambda1", "lambda2"), LAMBDAS)
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_both_formulations_agree_and_the_shared_model_is_the_smoothed_mean(n, outputs, lambda1, lambda2):
    xs, ys = domains(n, outputs)
    a, b = solve_joint(xs, ys, lambda1, lambda2), solve_per_domain(xs, ys, lambda1, lambda2)
    np.testing.assert_allclose(a.domains, b.domains, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.shared, b.shared, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.shared, lambda1 / (lambda2 + lambda1 * n) * a.domains.sum(0), rtol=1e-9, atol=1e-12)


def test_a_strong_lambda1_makes_one_ridge_regression_of_all_domains():
    xs, ys = domains()
    x, y = np.concatenate(xs), np.concatenate(ys)
    ridge = np.linalg.solve(x.T @ x + 0.3 * np.eye(4), x.T @ y)
    np.testing.assert_allclose(solve_joint(xs, ys, 1e7, 0.3).shared, ridge, rtol=1e-5)


def sequential_objective(models, xs, ys, lam, decay, paths):
    """Equation h-udl of the paper, with the squared norm, term by term."""
    total = 0.0
    for path in paths:
        loss = np.sum((xs[path[0]] @ models[path[0]] - ys[path[0]]) ** 2)
        for i in range(1, len(path)):
            before = sum(models[path[j]] for j in range(i)) / i
            loss += np.sum((xs[path[i]] @ models[path[i]] - ys[path[i]]) ** 2)
            loss += lam * np.sum((models[path[i]] - before) ** 2)
        total += loss / len(paths)
    return total + decay * np.sum(models**2)


@pytest.mark.parametrize(("lam", "decay"), [(0.7, 0.0), (50.0, 0.3), (0.02, 4.0)])
@pytest.mark.parametrize("path", [None, (2, 0, 1)])
def test_the_sequential_closed_form_is_where_an_optimizer_ends(lam, decay, path):
    xs, ys = domains()
    paths = list(permutations(range(3))) if path is None else [path]

    def objective(models):
        return sequential_objective(models, xs, ys, lam, decay, paths)

    want, got = minimizer(objective, (3, 4)), solve_sequential(xs, ys, lam, decay, path)
    np.testing.assert_allclose(got.domains, want, rtol=0, atol=1e-4)
    np.testing.assert_allclose(got.shared, got.domains.mean(0), rtol=1e-12)
    assert objective(got.domains) <= objective(want)
    assert objective(got.domains + 0.01) > objective(got.domains)


def average_gradient(models, xs, ys, lam, paths):
    """Of s-undo-bias on a linear net with the sum of squares as its loss, (domain, feature), over paths."""
    linear = torch.nn.Linear(xs[0].shape[1], 1, bias=False).double()
    net = Net(linear, "none", loss=lambda out, y: ((out.squeeze(-1) - y) ** 2).sum())
    algorithm = build("s-undo-bias", lam=lam, squared=True)
    params = algorithm.init(net, net.params(), len(xs), torch.Generator())
    (name,) = params
    params = {name: torch.from_numpy(models)[:, None, :]}
    total = 0.0
    for path in paths:
        x, y = (torch.from_numpy(np.stack([values[k] for k in path])) for values in (xs, ys))
        direction, _ = algorithm.gradient(net, params, Episode(x, y, torch.tensor(path), torch.tensor(0.0)))
        total = total + direction[name][:, 0].numpy() / len(paths)
    return total


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_algorithm_s_undo_bias_stands_still_at_the_sequential_closed_form(n):
    g = np.random.default_rng(n)
    xs, ys = list(g.normal(size=(n, 9, 4))), list(g.normal(size=(n, 9)))
    paths = list(permutations(range(n)))
    models = solve_sequential(xs, ys, lam=1.7).domains
    np.testing.assert_allclose(average_gradient(models, xs, ys, 1.7, paths), 0, atol=1e-12)
    single = solve_sequential(xs, ys, lam=1.7, path=paths[-1]).domains
    np.testing.assert_allclose(average_gradient(single, xs, ys, 1.7, paths[-1:]), 0, atol=1e-12)
    assert np.abs(average_gradient(models + 0.1, xs, ys, 1.7, paths)).max() > 0.1
    if n > 2:  # two domains have one contrast, whatever their order
        assert np.abs(average_gradient(models, xs, ys, 1.7, paths[:1])).max() > 1e-3


@pytest.mark.parametrize(("n", "rise"), [(2, 2.0), (3, 1.75), (4, 1 + (1 + 1 / 2 + 1 / 3) / 3)])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_over_all_paths_the_sequential_form_is_undo_bias_with_a_stronger_lambda_in_both_formulations(n, rise, outputs):
    xs, ys = domains(n, outputs)
    a, b = 0.3, 0.7 * rise  # the two penalties of the formulation in the domains alone
    lambda1, lambda2 = a + b, n * a * (a + b) / b  # which give back a and b
    got = solve_sequential(xs, ys, lam=0.7, decay=a)
    for solve in (solve_joint, solve_per_domain):
        plain = solve(xs, ys, lambda1, lambda2)
        np.testing.assert_allclose(got.domains, plain.domains, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(got.shared * lambda1 * n / (lambda2 + lambda1 * n), plain.shared, rtol=1e-9)


def test_a_strong_lambda_makes_one_regression_of_all_domains_and_one_domain_is_ridge_regression():
    xs, ys = domains()
    x, y = np.concatenate(xs), np.concatenate(ys)
    ridge = np.linalg.solve(x.T @ x + 3 * 0.1 * np.eye(4), x.T @ y)
    np.testing.assert_allclose(solve_sequential(xs, ys, 1e7, 0.1).shared, ridge, rtol=1e-5)
    np.testing.assert_allclose(solve_sequential(xs, ys, 1e7, 0.1, (1, 2, 0)).shared, ridge, rtol=1e-5)
    alone = np.linalg.solve(xs[0].T @ xs[0] + 0.1 * np.eye(4), xs[0].T @ ys[0])
    np.testing.assert_allclose(solve_sequential(xs[:1], ys[:1], 1.0, 0.1).shared, alone, rtol=1e-9)
