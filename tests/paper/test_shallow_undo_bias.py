"""The closed forms of appendix B against a numerical minimizer, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from seqdg import UsageError
from seqdg.paper.shallow_undo_bias import solve_joint, solve_per_domain

LAMBDAS = [(0.7, 0.3), (50.0, 0.01), (0.02, 4.0)]


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


@pytest.mark.parametrize("solve", [solve_joint, solve_per_domain])
def test_what_cannot_be_solved_is_refused_in_a_sentence(solve):
    xs, ys = domains()
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="lambda1 is"):
            solve(xs, ys, bad, 1.0)
        with pytest.raises(UsageError, match="lambda2 is"):
            solve(xs, ys, 1.0, bad)
    with pytest.raises(UsageError, match="3 domains and y 2"):
        solve(xs, ys[:2], 1.0, 1.0)
    with pytest.raises(UsageError, match="x of domain 1"):
        solve([xs[0], xs[1][:, :2], xs[2]], ys, 1.0, 1.0)
    with pytest.raises(UsageError, match="y of domain 2"):
        solve(xs, [*ys[:2], ys[2][:4]], 1.0, 1.0)
