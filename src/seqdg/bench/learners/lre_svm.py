"""LRE-SVM: one classifier for every positive row, whose answers have a low rank, for rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.utils.validation import check_is_fitted

from seqdg.bench.learners.array_learner import (
    ArrayLearner,
    Arrays,
    Predict,
    check_most_rows,
    choose_rows,
    describe_choice,
    spread,
)
from seqdg.bench.learners.contract import register_learner
from seqdg.bench.task import Task
from seqdg.bench.trial import Trial
from seqdg.core import Range
from seqdg.nets import Net

Floats = NDArray[np.float64]
STEPS = 30  # of L-BFGS, at most


class LowRankExemplars(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Low-rank exemplar SVMs (Xu, Li, Niu and Xu, ECCV 2014), in its form with logistic losses.

    For each class, against all others, every row x_i of it has a classifier w_i of its own, with the rows of the other
    classes as negatives. G(W)_ij = p(x_j | w_i) = 1 / (1 + exp(-w_i' x_j)) is what classifier i says of row j of the
    class:

        min over W, F of  sum_i [ |w_i|^2 + exemplar cost log(1 + exp(-w_i' x_i)) + cost sum_neg log(1 + exp(w_i' x)) ]
                          + rank |F|_* + tie |F - G(W)|_F^2

    F and W are found in turn: F by lowering the singular values of G(W) by rank / (2 tie), W by L-BFGS. The first W is
    that without the last two terms. A new row has, for each class, the mean of the `top` largest p(x | w_i), and these
    are divided by their sum over the classes, which changes no decision. Rows are centred, and scaled to a mean square
    norm of `scale`^2; a 1 is appended for the bias. The domains are not read: the method finds latent ones.

    cost: C_2, of a negative row.
    exemplar: C_1 / C_2, how many times that of the positive row.
    rank: lambda_1, of the nuclear norm.
    tie: lambda_2, how close F is to G(W).
    top: K, how many classifiers of a class are fused.
    rounds: how often F and W are updated, at most.
    scale: the root of the mean square norm of a row.
    tolerance: by which share of itself a step of L-BFGS, or a round, must lower the objective for another to follow.
    """

    def __init__(
        self,
        cost: float = 1.0,
        exemplar: float = 10.0,
        rank: float = 1.0,
        tie: float = 4.0,
        top: int = 5,
        rounds: int = 2,
        scale: float = 10.0,
        tolerance: float = 1e-4,
    ) -> None:
        self.cost = cost
        self.exemplar = exemplar
        self.rank = rank
        self.tie = tie
        self.top = top
        self.rounds = rounds
        self.scale = scale
        self.tolerance = tolerance

    def fit(self, X: ArrayLike, y: ArrayLike) -> LowRankExemplars:
        rows, y = np.asarray(X, np.float64), np.asarray(y)
        self.mean_ = rows.mean(0)
        self.factor_ = self.scale / (np.sqrt(((rows - self.mean_) ** 2).sum(1).mean()) or 1.0)
        entering = self._enter(rows)
        self.classes_ = np.unique(y)
        self.weights_ = [self._fit_class(entering[y == c], entering[y != c]) for c in self.classes_]
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        entering = self._enter(np.asarray(X, np.float64))
        return share_classes([entering @ w.T for w in self.weights_], self.top)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])

    def _enter(self, rows: Floats) -> Floats:
        return np.column_stack([(rows - self.mean_) * self.factor_, np.ones(len(rows))])

    def _fit_class(self, positive: Floats, negative: Floats) -> Floats:
        """Return the weights (exemplar, input) of one class."""
        weights, _ = self._update(np.zeros_like(positive), positive, negative, None)
        before = np.inf
        for _ in range(self.rounds if self.tie > 0 else 0):
            low = lower_rank(expit(weights @ positive.T), self.rank / (2 * self.tie))
            weights, value = self._update(weights, positive, negative, low)
            value += self.rank * float(np.linalg.norm(low, "nuc"))
            if before - value < self.tolerance * abs(value):
                break
            before = value
        return weights

    def _update(self, weights: Floats, positive: Floats, negative: Floats, low: Floats | None) -> tuple[Floats, float]:
        """Minimize over W, from these weights, with F as it is."""

        def measure(flat: Floats) -> tuple[float, Floats]:
            value, slope = self.measure(flat.reshape(weights.shape), positive, negative, low)
            return value, slope.ravel()

        options = {"maxiter": STEPS, "ftol": self.tolerance}
        best = minimize(measure, weights.ravel(), jac=True, method="L-BFGS-B", options=options)
        return best.x.reshape(weights.shape), float(best.fun)

    def measure(self, weights: Floats, positive: Floats, negative: Floats, low: Floats | None) -> tuple[float, Floats]:
        """Return the objective without the nuclear norm, and its gradient; without `low` (F), without the tie too."""
        strong = self.cost * self.exemplar
        own, others = (weights * positive).sum(1), weights @ negative.T
        value = (weights**2).sum() + strong * np.logaddexp(0, -own).sum() + self.cost * np.logaddexp(0, others).sum()
        slope = 2 * weights - strong * expit(-own)[:, None] * positive + self.cost * expit(others) @ negative
        if low is not None:
            p = expit(weights @ positive.T)
            value += self.tie * ((low - p) ** 2).sum()
            slope += 2 * self.tie * ((p - low) * p * (1 - p)) @ positive
        return float(value), slope


def lower_rank(matrix: Floats, by: float) -> Floats:
    """Return the F that minimizes 2 by |F|_* + |F - matrix|_F^2: all singular values are lowered, to 0 at least."""
    left, values, right = svd(matrix, full_matrices=False)
    lowered: Floats = (left * np.maximum(values - by, 0)) @ right
    return lowered


def share_classes(logits: Sequence[Floats], top: int) -> Floats:
    """Fuse the answers of each class's classifiers (row, classifier), the mean of the largest, and divide by the sum
    over the classes."""
    p = [expit(one) for one in logits]
    least = [max(0, one.shape[1] - top) for one in p]
    means = np.stack([np.partition(one, k, axis=1)[:, k:].mean(1) for one, k in zip(p, least, strict=True)], 1)
    shares: Floats = means / means.sum(1, keepdims=True)
    return shares


@dataclass(frozen=True)
class FittedExemplars:
    """The classifiers k weights' + intercepts, where k is the kernel of a new row with rows, or the row itself."""

    rows: Floats  # (row, input); none without a kernel
    weights: Floats  # (exemplar, row), or (exemplar, input) without a kernel
    intercepts: Floats  # (exemplar,)
    owner: NDArray[np.int64]  # (exemplar,), the class
    gamma: float  # 0: no kernel
    top: int
    classes: int

    def __call__(self, new: Arrays) -> Arrays:
        x = np.asarray(new, np.float64)
        logits = (rbf_kernel(x, self.rows, gamma=self.gamma) if self.gamma else x) @ self.weights.T + self.intercepts
        labels = np.unique(self.owner)
        return spread(share_classes([logits[:, self.owner == c] for c in labels], self.top), labels, self.classes)


@register_learner("lre-svm")
class LowRankExemplarsLearner(ArrayLearner):
    """LRE-SVM: a classifier for every positive row, whose answers have a low rank (Xu et al., ECCV 2014).

    The class `LowRankExemplars` is fitted to some of the rows, which first pass through a Gaussian kernel. `exemplar`,
    `rank`, `tie` and `top` are as in the method's public code, where the cost is 0.001 and there are 10 rounds, with
    linear classifiers. On the bundled digits source validation chose this cost, the best of four, and the kernel; ten
    rounds take longer than two and gain nothing, and so does a tolerance below 1e-4. It is 4 points better with 1,000
    rows than with 500.

    width: of the kernel, in units of the median distance of two rows; 0 leaves the rows as they are.
    most_rows: how many rows are exemplars and negatives, at most; the time grows faster than its square.
    """

    estimator = LowRankExemplars
    settings: ClassVar[Mapping[str, Any]] = {**LowRankExemplars().get_params(), "width": 0.4, "most_rows": 1000}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cost": {"above": 0.0, "search": Range(1e-3, 10.0)},
        "exemplar": {"above": 0.0, "search": Range(1.0, 100.0)},
        "rank": {"least": 0.0, "search": Range(0.1, 10.0)},
        "tie": {"least": 0.0, "search": Range(0.4, 40.0)},
        "top": {"least": 1, "search": Range(1, 20)},
        "rounds": {"least": 0},
        "scale": {"above": 0.0, "search": Range(1.0, 30.0)},
        "tolerance": {"above": 0.0},
        "width": {"least": 0.0, "search": Range(0.1, 2.0)},
    }
    fitted = FittedExemplars

    def describe_fit(self, rows: int, **settings: Any) -> list[str]:
        return describe_choice("lre-svm", rows, settings["most_rows"])

    def check(self, trial: Trial, task: Task, net: Net) -> None:
        super().check(trial, task, net)
        check_most_rows(trial.short_name, int(dict(trial.settings)["most_rows"]))

    def fit(self, x: Arrays, y: Arrays, domain: Arrays, classes: int, seed: int, **settings: Any) -> Predict:
        chosen, width = choose_rows(y, domain, settings.pop("most_rows"), seed), settings.pop("width")
        rows = x[chosen].astype(np.float64)
        gamma, kernel = 0.0, None
        if width:
            median = float(np.median(euclidean_distances(rows)[np.triu_indices(len(rows), 1)])) or 1.0
            gamma = 1 / (2 * (width * median) ** 2)  # with as many components as rows the kernel is exact
            kernel = Nystroem(gamma=gamma, n_components=len(rows), random_state=seed).fit(rows)
        model = LowRankExemplars(**settings).fit(rows if kernel is None else kernel.transform(rows), y[chosen])
        slopes = np.concatenate(model.weights_)
        weights = slopes[:, :-1] * model.factor_
        return FittedExemplars(
            rows=rows[:0] if kernel is None else kernel.components_,
            weights=weights if kernel is None else weights @ kernel.normalization_,
            intercepts=slopes[:, -1] - weights @ model.mean_,
            owner=np.repeat(model.classes_, [len(w) for w in model.weights_]),
            gamma=gamma,
            top=settings["top"],
            classes=classes,
        )
