"""The closed forms of appendix B against a numerical minimizer, and against each other."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from seqdg import Episode, Net, UsageError, build
from seqdg.paper.shallow_undo_bias import solve_joint, solve_per_domain, solve_sequential

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


def test_what_the_sequential_form_cannot_solve_is_refused_in_a_sentence():
    xs, ys = domains()
    with pytest.raises(UsageError, match=r"lam is 0\.0, but it must be finite and above 0"):
        solve_sequential(xs, ys, 0.0)
    with pytest.raises(UsageError, match=r"decay is -1\.0, but it must be finite and at least 0"):
        solve_sequential(xs, ys, 1.0, -1.0)
    with pytest.raises(UsageError, match=r"The path is \[0, 1, 1\], but it must name each of the 3 domains once"):
        solve_sequential(xs, ys, 1.0, path=[0, 1, 1])
    with pytest.raises(UsageError, match="give a decay above 0"):
        solve_sequential([x[:1] for x in xs], [y[:1] for y in ys], 1.0)
    with pytest.raises(UsageError, match="3 domains and y 2"):
        solve_sequential(xs, ys[:2], 1.0)
