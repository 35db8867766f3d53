"""(S-)Undo-Bias for linear models with squared loss, on arrays, in closed form (Khosla et al. 2012; Li et al. 2020).

`solve_joint` minimizes over a model that all domains share and what each adds to it; `solve_per_domain` over the
domains' models alone. They have the same minimum. `solve_sequential` draws each model to the mean of those before it on
a path, or on all paths. A column of ones in x gives an intercept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seqdg.base import UsageError

Array = NDArray[np.floating[Any]]


class LinearModels(NamedTuple):
    """What Undo-Bias learns; unseen domains are served by `x @ shared`."""

    shared: Array  # (feature, *output) θ_0
    domains: Array  # (domain, feature, *output) Θ_i = θ_0 + θ_i


def solve_joint(xs: Sequence[ArrayLike], ys: Sequence[ArrayLike], lambda1: float, lambda2: float) -> LinearModels:
    """Return the minimum over θ_0, ..., θ_N of

        sum_i ||X_i (θ_0 + θ_i) - y_i||^2 + λ1 sum_i ||θ_i||^2 + λ2 ||θ_0||^2

    With A_i = X_i' X_i + λ1, θ_i = A_i^-1 X_i' (y_i - X_i θ_0), and what is left is linear in θ_0.
    """
    _check_numbers(("lambda1", lambda1, False), ("lambda2", lambda2, False))
    data = _compute_products(xs, ys)
    one = np.eye(data[0][0].shape[1])
    left, right = lambda2 * one, np.zeros_like(data[0][1])
    for gram, target in data:
        rest = lambda1 * np.linalg.inv(gram + lambda1 * one)  # 1 - A_i^-1 X_i' X_i
        left, right = left + gram @ rest, right + rest @ target
    shared = np.linalg.solve(left, right)
    offsets = [np.linalg.solve(gram + lambda1 * one, target - gram @ shared) for gram, target in data]
    return LinearModels(shared, shared + np.stack(offsets))


def solve_per_domain(xs: Sequence[ArrayLike], ys: Sequence[ArrayLike], lambda1: float, lambda2: float) -> LinearModels:
    """Return the minimum over Θ_1, ..., Θ_N, M their mean, of

        sum_i ||X_i Θ_i - y_i||^2 + a sum_i ||Θ_i||^2 + b sum_i ||Θ_i - M||^2
        a = λ1 λ2 / (λ2 + λ1 N),   b = λ1^2 N / (λ2 + λ1 N),   θ_0 = λ1 / (λ2 + λ1 N) sum_i Θ_i

    Θ_i = (X_i' X_i + a + b)^-1 (X_i' y_i + b M), whose mean must be M.
    """
    _check_numbers(("lambda1", lambda1, False), ("lambda2", lambda2, False))
    data = _compute_products(xs, ys)
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
    xs: Sequence[ArrayLike], ys: Sequence[ArrayLike], lam: float, decay: float = 0.0, path: Sequence[int] | None = None
) -> LinearModels:
    """Return the minimum over Θ_1, ..., Θ_N of S-Undo-Bias with the squared norm (Li et al. 2020, Algorithm 3),

        sum_i ||X_i Θ_i - y_i||^2 + decay sum_i ||Θ_i||^2 + λ E_p sum_{i > 1} ||Θ_p[i] - mean over j < i of Θ_p[j]||^2

    on one path p (domains by number, from 0), or in expectation over all N! paths. There, every penalty is the variance
    of a contrast of models that are drawn without replacement, and with M their mean the sum of all is

        λ (1 + (1 + 1/2 + ... + 1/(N-1)) / (N-1)) sum_i ||Θ_i - M||^2

    So S-Undo-Bias with the squared norm is Undo-Bias with a stronger λ: what the path adds lies in the steps that
    follow single paths, and in the norm without its square. The shared model is M, as in the paper's algorithm.
    """
    _check_numbers(("lam", lam, False), ("decay", decay, True))
    data = _compute_products(xs, ys)
    n, width = len(data), len(data[0][0])
    contrasts = _contrast_with_mean(n) if path is None else _contrast_with_past(path, n)
    left = np.kron(lam * contrasts.T @ contrasts, np.eye(width))
    for i, (gram, _) in enumerate(data):
        here = slice(i * width, (i + 1) * width)
        left[here, here] += gram + decay * np.eye(width)
    if np.linalg.matrix_rank(left, hermitian=True) < len(left):
        raise UsageError("The rows do not decide all weights of a model: give a decay above 0, or fewer features.")
    models = np.linalg.solve(left, np.concatenate([target for _, target in data]))
    domains = models.reshape(n, width, *models.shape[1:])
    return LinearModels(domains.mean(0), domains)


def _contrast_with_mean(n: int) -> Array:
    """Return C (domain, domain) such that ||C Θ||^2 is the expectation of the sequential penalties over all paths."""
    rise = 1 + sum(1 / k for k in range(1, n)) / max(1, n - 1)
    return math.sqrt(rise) * (np.eye(n) - 1 / n)


def _contrast_with_past(path: Sequence[int], n: int) -> Array:
    """Return C (position, domain) such that (C Θ)_i is the model at place i of the path less the mean before it."""
    if sorted(path) != list(range(n)):
        raise UsageError(f"The path is {list(path)}, but it must name each of the {n} domains once, by numbers from 0.")
    contrasts = np.zeros((n, n))
    for i in range(1, n):
        contrasts[i, path[i]] = 1.0
        contrasts[i, list(path[:i])] = -1 / i
    return contrasts


def _check_numbers(*numbers: tuple[str, float, bool]) -> None:
    """Raise a UsageError where a number, given with its name and whether it may be 0, is out of range."""
    for name, value, may_be_zero in numbers:
        if not (math.isfinite(value) and (value > 0 or (may_be_zero and value == 0))):
            raise UsageError(
                f"{name} is {value}, but it must be finite and {'at least' if may_be_zero else 'above'} 0."
            )


def _compute_products(xs: Sequence[ArrayLike], ys: Sequence[ArrayLike]) -> list[tuple[Array, Array]]:
    """Return X_i' X_i and X_i' y_i of every domain, or raise a UsageError where shapes do not fit."""
    if not xs or len(xs) != len(ys):
        raise UsageError(f"x holds {len(xs)} domains and y {len(ys)}: give both for each of one or more domains.")
    pairs = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in zip(xs, ys, strict=True)]
    for i, (x, y) in enumerate(pairs):
        if x.ndim != 2 or x.shape[1] != pairs[0][0].shape[1]:
            raise UsageError(f"x of domain {i} has shape {x.shape}, but it must be (row, feature), features as in all.")
        if y.shape != (len(x), *pairs[0][1].shape[1:]):
            raise UsageError(
                f"y of domain {i} has shape {y.shape} beside {len(x)} rows of x: a value, or as many, each."
            )
    return [(x.T @ x, x.T @ y) for x, y in pairs]
