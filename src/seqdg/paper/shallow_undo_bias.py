"""Undo-Bias for linear models with squared loss, on arrays, in closed form (Khosla et al. 2012; Li et al. 2020).

`solve_joint` minimizes over a model that all domains share and what each adds to it; `solve_per_domain` over the
domains' models alone. They have the same minimum. A column of ones in x gives an intercept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seqdg.base.errors import UsageError

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
    data = _compute_products(xs, ys, lambda1, lambda2)
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
    data = _compute_products(xs, ys, lambda1, lambda2)
    one, n = np.eye(data[0][0].shape[1]), len(data)
    whole = lambda2 + lambda1 * n
    a, b = lambda1 * lambda2 / whole, lambda1**2 * n / whole
    inverses = [np.linalg.inv(gram + (a + b) * one) for gram, _ in data]
    left = one - b / n * np.sum(inverses, axis=0)
    right = np.sum([inverse @ target for inverse, (_, target) in zip(inverses, data, strict=True)], axis=0) / n
    mean = np.linalg.solve(left, right)
    models = [inverse @ (target + b * mean) for inverse, (_, target) in zip(inverses, data, strict=True)]
    return LinearModels(lambda1 / whole * np.sum(models, axis=0), np.stack(models))


def _compute_products(
    xs: Sequence[ArrayLike], ys: Sequence[ArrayLike], lambda1: float, lambda2: float
) -> list[tuple[Array, Array]]:
    """Return X_i' X_i and X_i' y_i of every domain, or raise a UsageError where shapes or lambdas do not fit."""
    for name, value in (("lambda1", lambda1), ("lambda2", lambda2)):
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name} is {value}, but it must be finite and above 0.")
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
