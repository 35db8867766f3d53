"""DICA and LRE-SVM, the paper's competitors that compare every row with every other: for rows of numbers.

DICA finds components of a kernel that follow the labels and vary little between domains; LRE-SVM has a classifier for
every positive row, whose answers have a low rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, solve, svd
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.preprocessing import KernelCenterer
from sklearn.utils.validation import check_is_fitted

from seqdg.bench.learners.array_learner import ArrayLearner, Arrays, Predict, choose_rows
from seqdg.bench.learners.contract import register_learner
from seqdg.core import Range
from seqdg.training import spread

Floats = NDArray[np.float64]
MOST_ROWS: Mapping[str, Any] = {"least": 2, "most": 10_000}  # a matrix of 0.8 GB
STEPS = 30  # of L-BFGS, at most


def find_gamma(rows: Floats, width: float) -> float:
    """Return the gamma of a Gaussian kernel whose width is in units of the median distance of two rows."""
    median = float(np.median(euclidean_distances(rows)[np.triu_indices(len(rows), 1)])) or 1.0  # most may be the same
    return 1 / (2 * (width * median) ** 2)


@dataclass(eq=False, repr=False)
class DICA(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Domain-invariant component analysis (Muandet, Balduzzi and Schölkopf, ICML 2013).

        max over B of  (1/n) tr(B' K S K B) / tr(B' (weight K Q K + K + ridge I) B),   S = L (L + n eps I)^-1

    K is the centred kernel of the n rows, L that of their labels. Q measures the distributional variance: of N domains,
    with n_d rows in domain d, Q_ij = (N - 1) / (N^2 n_d^2) for two rows of domain d, and -1 / (N^2 n_d n_e) for rows of
    domains d and e; tr(B' K Q K B) is the mean squared distance of the domains' means to their mean. B holds the first
    eigenvectors of the generalized problem, and a new row with the centred kernel k becomes B' k.

    The paper writes L (L + n eps I)^-1 K^2 for K S K, which is not symmetric; they agree where S and K commute, and
    K S K is what the covariance of E[x | y] comes to. Without labels S is the identity (the paper's UDICA). With weight
    0 it is COIR (Kim and Pavlovic, 2011), and without labels too kernel PCA.

    components: how many; 0 takes as many as there are classes, less one: with labels, the others are worth nothing.
    weight: of the domain term.
    eps: regularization of the labels' kernel, which is 1 for two rows of one class and 0 otherwise.
    ridge: keeps the problem definite where K is not.
    width: of the Gaussian kernel, in units of the median distance of two rows.
    labels: whether to use them.
    """

    components: int = 0
    weight: float = 1.0
    eps: float = 1e-3
    ridge: float = 1e-3
    width: float = 0.3
    labels: bool = True

    def fit(self, X: ArrayLike, y: ArrayLike, domains: ArrayLike) -> DICA:
        self.rows_ = np.asarray(X, np.float64)
        y, n = np.asarray(y), len(self.rows_)
        self.gamma_ = find_gamma(self.rows_, self.width)
        self.centerer_ = KernelCenterer()
        kernel = self.centerer_.fit_transform(rbf_kernel(self.rows_, gamma=self.gamma_))
        follows = kernel @ kernel
        if self.labels:
            same = KernelCenterer().fit_transform((y[:, None] == y).astype(np.float64))
            follows = kernel @ same @ solve(same + n * self.eps * np.eye(n), kernel, assume_a="pos")
        varies = self.weight * kernel @ measure_variance(np.asarray(domains)) @ kernel + kernel
        count = min(n, self.components or max(1, len(np.unique(y)) - 1))
        values, vectors = eigh(
            (follows + follows.T) / (2 * n),
            (varies + varies.T) / 2 + self.ridge * np.eye(n),
            subset_by_index=[n - count, n - 1],
        )
        signs = np.sign(vectors[np.abs(vectors).argmax(0), np.arange(count)])  # as they come, they are arbitrary
        self.eigenvalues_, self.vectors_ = values[::-1], (vectors * signs)[:, ::-1]
        return self

    def transform(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        kernel = rbf_kernel(np.asarray(X, np.float64), self.rows_, gamma=self.gamma_)
        components: Floats = self.centerer_.transform(kernel) @ self.vectors_
        return components


def measure_variance(domains: NDArray[Any]) -> Floats:
    """Return the matrix Q of the distributional variance."""
    member = (domains[:, None] == np.unique(domains)).astype(np.float64)  # (row, domain)
    means, count = member / member.sum(0), member.shape[1]
    distance = np.eye(count) - 1 / count  # of each domain's mean to the mean of all
    variance: Floats = means @ distance @ means.T / count
    return variance


@dataclass(frozen=True)
class FittedDICA:
    """softmax(k weights + intercepts), where k is the centred kernel of a new row with the rows of the components."""

    rows: Floats  # (row, input)
    means: Floats  # (row,), of the kernel's columns
    weights: Floats  # (row, class met), through the components
    intercepts: Floats  # (class met,)
    labels: NDArray[np.int64]  # (class met,)
    mean: float  # of the whole kernel
    gamma: float
    classes: int

    def __call__(self, new: Arrays) -> Arrays:
        kernel = rbf_kernel(np.asarray(new, np.float64), self.rows, gamma=self.gamma)
        centred = kernel - self.means - kernel.mean(1, keepdims=True) + self.mean
        return spread(softmax(centred @ self.weights + self.intercepts, axis=1), self.labels, self.classes)


@register_learner("dica")
class DICALearner(ArrayLearner):
    """DICA: kernel components that follow the labels and vary little between domains (Muandet et al., ICML 2013).

    The components of the class `DICA` are learned from some of the rows. A logistic regression of the standardized
    components, where the paper has a support vector machine, is fitted to all, and gives the probabilities. The width
    is the best of five by source validation on the bundled digits; the other values but the weight are ours too. On
    validation rows of the sources it stays behind AGG: 85.9 % on the digits, where AGG has 87.6 %, and 60.6 % on
    Office-Caltech10, where AGG has 68.5 %. As many components as classes less one, of a kernel over at most `most_rows`
    rows, hold less than the features that a net learns from all.

    inverse_decay: C of the logistic regression.
    most_rows: how many rows the components are learned from, at most; the memory grows with its square.
    """

    estimator = DICA
    settings: ClassVar[Mapping[str, Any]] = {**DICA().get_params(), "inverse_decay": 1.0, "most_rows": 2000}
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "components": {"least": 0},
        "weight": {"least": 0.0, "search": Range(0.1, 100.0)},
        "eps": {"above": 0.0, "search": Range(1e-5, 1e-1)},
        "ridge": {"above": 0.0, "search": Range(1e-5, 1e-1)},
        "width": {"above": 0.0, "search": Range(0.1, 2.0)},
        "inverse_decay": {"above": 0.0, "search": Range(0.01, 100.0)},
        "most_rows": MOST_ROWS,
    }
    fitted = FittedDICA
    compares_rows = True
    needs = 2

    def fit(self, x: Arrays, y: Arrays, domain: Arrays, classes: int, seed: int, **settings: Any) -> Predict:
        most_rows, inverse_decay = settings.pop("most_rows"), settings.pop("inverse_decay")
        rows = choose_rows(y, domain, most_rows, seed)
        dica = DICA(**settings).fit(x[rows], y[rows], domain[rows])
        components = dica.transform(x)
        center, size = components.mean(0), components.std(0)
        size[size == 0] = 1.0
        classifier = LogisticRegression(C=inverse_decay, max_iter=1000).fit((components - center) / size, y)
        coefficients, intercepts = classifier.coef_, classifier.intercept_
        if len(classifier.classes_) == 2:  # one row of coefficients, for the second class
            coefficients, intercepts = (np.concatenate([0 * one, one]) for one in (coefficients, intercepts))
        through = coefficients / size  # (class met, component)
        return FittedDICA(
            rows=dica.rows_,
            means=dica.centerer_.K_fit_rows_,
            weights=dica.vectors_ @ through.T,
            intercepts=intercepts - through @ center,
            labels=classifier.classes_,
            mean=float(dica.centerer_.K_fit_all_),
            gamma=dica.gamma_,
            classes=classes,
        )


@dataclass(eq=False, repr=False)
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

    cost: float = 1.0
    exemplar: float = 10.0
    rank: float = 1.0
    tie: float = 4.0
    top: int = 5
    rounds: int = 2
    scale: float = 10.0
    tolerance: float = 1e-4

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
        positive_scores, negative_scores = (weights * positive).sum(1), weights @ negative.T
        value = (weights**2).sum() + strong * np.logaddexp(0, -positive_scores).sum()
        value += self.cost * np.logaddexp(0, negative_scores).sum()
        slope = 2 * weights - strong * expit(-positive_scores)[:, None] * positive
        slope += self.cost * expit(negative_scores) @ negative
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
        "most_rows": MOST_ROWS,
    }
    fitted = FittedExemplars
    compares_rows = True

    def fit(self, x: Arrays, y: Arrays, domain: Arrays, classes: int, seed: int, **settings: Any) -> Predict:
        chosen, width = choose_rows(y, domain, settings.pop("most_rows"), seed), settings.pop("width")
        rows = x[chosen].astype(np.float64)
        gamma, kernel = 0.0, None
        if width:
            gamma = find_gamma(rows, width)
            kernel = Nystroem(gamma=gamma, n_components=len(rows), random_state=seed).fit(rows)  # exact: all rows
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
