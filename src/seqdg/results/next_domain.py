"""The score to expect on the next domain: a predictive distribution over domains, with partial pooling.

A score is first moved to a scale on which noise is nearly normal: shares such as accuracy to log-odds, errors such as
RMSE and log-loss to their logarithm. With y_i the moved score of domain i, s_i its rows' noise and * the next domain:

    y_i     ~ N(theta_i, s_i^2)      sampling noise: the fewer rows a domain has, the less its score says of it
    theta_i ~ N(mu, tau^2)           domains differ by tau
    p(mu) = 1,   p(tau) = half-t with DEGREES of freedom and scale A

Given tau everything is normal, with w_i = 1 / (s_i^2 + tau^2):

    m(tau) = sum w_i y_i / sum w_i,   V(tau) = 1 / sum w_i
    p(tau | y) = p(tau) sqrt(V) prod sqrt(w_i) exp(-1/2 sum w_i (y_i - m)^2)
    y_* | tau ~ N(m, V + tau^2 + s_*^2)

(Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 5.4; the prior of tau: Gelman, Bayesian Analysis 2006).
The distribution of y_* is this normal averaged over tau, by the trapezoid rule in log(tau); nothing is drawn at random.
Its quantiles are moved back. In limits: of many domains, the normal interval of their empirical mean and deviation; of
domains that do not differ, sampling noise alone; of one domain, what the prior of tau says.

The noise of all domains is taken at their pooled score. Taken at each domain's own, it would depend on luck: domains
that happen to score near 100 % would hardly count. A share is moved with half a row added to either side, and moved
back without it, so that 0 % and 100 % can be reached.

The scale A of the prior is 1.4 for log-odds and 0.5 for logarithms: half of all spreads are then taken to be below 1.0
and below 0.4. That is wider than what most sets show (logistic or ridge regression and random forests on six real
ones: 0.11 to 1.0 in log-odds, 0.07 to 0.6 in logarithms), as it must be for the interval to hold where domains differ
most: with three to five of them the prior decides. Where four domains differ by 1 in log-odds, intervals of 90 %
hold the next score 83, 90 and 92 % of the time with a third of the scale, two thirds and all of it; with ten domains
87, 89 and 90 %. `benchmarks/accuracy/coverage.py` simulates it over domains, spread, rows and accuracy: at least 85 %
up to a spread of 1.5 in log-odds from 60 rows on. Beyond that the interval is optimistic (`is_optimistic`).

The interval assumes that the next domain is drawn as the known ones were. It is of models trained on all known domains
but one: the final model has seen one more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median, stdev

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri

LEVEL = 0.9
DEGREES = 4.0  # of freedom of the prior of tau: a spread of several times the scale stays possible
STEP = 0.02  # of log(tau), where there are few domains
Known = tuple[tuple[float, int], ...]
WIDE = 1.5 / 1.4  # times the scale of the prior: a spread of 1.5 in log-odds
AHEAD = 9  # quantiles of one more domain over which the width with it is averaged


@dataclass(frozen=True)
class Scale:
    """A scale on which scores of domains are nearly normal.

    move: a score, with its rows, to the scale.   back: from it, with the rows of the domain it is of.   noise: the
    variance of a moved score of so many rows.   prior: the scale A of the spread tau between domains.
    """

    move: Callable[[float, int], float]
    back: Callable[[float, int], float]
    noise: Callable[[float, int], float]
    prior: float


def _move_share(p: float, n: int) -> float:
    """Return log-odds, with half a row added to either side, so that 0 % and 100 % have some."""
    return math.log((n * p + 0.5) / (n * (1 - p) + 0.5))


def _find_share(y: float, n: int) -> float:
    """Return the share of n rows whose log-odds these are; beyond 0 and 1, the nearer of the two."""
    return min(1.0, max(0.0, ((n + 1) * float(expit(y)) - 0.5) / n))


def _find_share_noise(y: float, n: int) -> float:
    """Return the binomial variance on the scale of log-odds,  1 / ((n + 1) p (1 - p))."""
    return 1 / ((n + 1) * float(expit(y) * expit(-y)))


def _make_error_scale(factor: float) -> Scale:
    """Make the scale of a positive error. factor: n times the variance of its logarithm over n rows."""
    return Scale(lambda v, n: math.log(max(v, 1e-12)), lambda y, n: math.exp(y), lambda y, n: factor / n, prior=0.5)


SHARE = Scale(_move_share, _find_share, _find_share_noise, prior=1.4)
# By the delta method: of normal errors the RMSE has 1 / (2 n), the mean absolute error (pi / 2 - 1) / n. The log-loss
# of a row is taken to have a deviation as large as its mean.
SCALES = {
    "log_loss": _make_error_scale(1.0),
    "rmse": _make_error_scale(0.5),
    "mae": _make_error_scale(math.pi / 2 - 1),
    "r2": Scale(  # the logarithm of the share that is not explained, twice that of the RMSE
        lambda v, n: math.log(max(1 - v, 1e-12)), lambda y, n: 1 - math.exp(y), lambda y, n: 2 / n, prior=1.0
    ),
    "pearson": Scale(  # Fisher's z
        lambda v, n: math.atanh(max(-1 + 1e-9, min(1 - 1e-9, v))),
        lambda y, n: math.tanh(y),
        lambda y, n: 1 / max(n - 3, 1),
        prior=0.5,
    ),
}


@dataclass(frozen=True)
class NextDomain:
    """The score to expect on the next domain, in its unit: it lies between low and high with probability `level`."""

    low: float
    high: float
    level: float
    criterion: str
    known: Known  # score and rows of each known domain

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def differ(self) -> float | None:
        """The standard deviation of the known domains' scores; None of one domain."""
        return stdev(score for score, _ in self.known) if len(self.known) > 1 else None

    @property
    def is_optimistic(self) -> bool:
        """True where domains differ by more than the prior allows for, and such intervals hold too seldom."""
        scale = get_scale(self.criterion)
        moved = [scale.move(*domain) for domain in self.known]
        return len(moved) > 1 and stdev(moved) > WIDE * scale.prior

    @property
    def limits(self) -> list[tuple[float, float]]:
        """Between which the score of each known domain lies by its number of rows alone, with probability `level`."""
        scale, z = get_scale(self.criterion), float(ndtri((1 + self.level) / 2))
        found = []
        for value, n in self.known:
            y = scale.move(value, n)
            reach = z * math.sqrt(scale.noise(y, n))
            low, high = sorted((scale.back(y - reach, n), scale.back(y + reach, n)))
            found.append((low, high))
        return found

    @property
    def inconsistency(self) -> float | None:
        """I^2 = max(0, 1 - (k - 1) / Q): the share of the variance between k domains' scores that their numbers of rows
        do not explain (Higgins and Thompson, 2002), with Cochran's Q on the scale of the interval; None of one domain.
        """
        if len(self.known) < 2:
            return None
        scale = get_scale(self.criterion)
        center = _pool(self.known, scale)
        y = np.array([scale.move(*domain) for domain in self.known])
        w = 1 / np.array([scale.noise(center, n) for _, n in self.known])
        q = float(w @ (y - w @ y / w.sum()) ** 2)
        return max(0.0, 1 - (len(y) - 1) / q) if q > 0 else 0.0

    @property
    def rows_alone(self) -> float:
        """The width that the interval would have if domains did not differ."""
        scale, rows = get_scale(self.criterion), _count_typical(self.known)
        center = _pool(self.known, scale)
        reach = math.sqrt(scale.noise(center, rows) * (1 + 1 / len(self.known)))
        reach *= float(ndtri((1 + self.level) / 2))
        return abs(scale.back(center + reach, rows) - scale.back(center - reach, rows))

    @property
    def narrower(self) -> float:
        """The width that the interval is expected to have with one more domain of typical size: the mean over what its
        score may be, at quantiles of its distribution."""
        scale, domain = get_scale(self.criterion), _count_typical(self.known)
        ahead = _predict_quantiles(self.known, scale, [(i + 0.5) / AHEAD for i in range(AHEAD)])
        limits = [find_limits((*self.known, (score, domain)), scale, self.level) for score in ahead]
        return sum(high - low for low, high in limits) / AHEAD


def get_scale(criterion: str) -> Scale:
    """Return the scale of a criterion: shares of rows are on log-odds, and whatever else behaves like one."""
    return SCALES.get(criterion, SHARE)


def predict_next_domain(
    scores: Sequence[float], rows: Sequence[int], criterion: str = "accuracy", level: float = LEVEL
) -> NextDomain:
    """Predict the score on the next domain from those on known ones, each of which was held out.

    rows: of each domain. The next is taken to have as many as the median one.
    """
    known = tuple(zip(map(float, scores), map(int, rows), strict=True))
    return NextDomain(*find_limits(known, get_scale(criterion), level), level, criterion, known)


def _count_typical(known: Sequence[tuple[float, int]]) -> int:
    """Return the rows of the median domain."""
    return max(1, round(median(n for _, n in known)))


@lru_cache(maxsize=4096)
def find_limits(known: Known, scale: Scale, level: float) -> tuple[float, float]:
    """Return the limits between which the next domain lies, from scores and rows of known ones."""
    limits = _predict_quantiles(known, scale, ((1 - level) / 2, (1 + level) / 2))
    return min(limits), max(limits)


def _predict_quantiles(known: Known, scale: Scale, probabilities: Sequence[float]) -> list[float]:
    """Return quantiles of the score on the next domain."""
    center, rows = _pool(known, scale), _count_typical(known)
    y, noise = [scale.move(v, n) for v, n in known], [scale.noise(center, n) for _, n in known]
    ahead = scale.noise(center, rows)
    return [scale.back(at, rows) for at in find_quantiles(y, noise, ahead, scale.prior, probabilities)]


def _pool(known: Known, scale: Scale) -> float:
    """Return the moved score of all rows together, as if it were that of one domain of typical size."""
    return scale.move(sum(v * n for v, n in known) / sum(n for _, n in known), _count_typical(known))


def find_quantiles(
    y: Sequence[float], noise: Sequence[float], ahead: float, prior: float, probabilities: Sequence[float]
) -> list[float]:
    """Return quantiles of y_*. noise: the variances s_i^2.   ahead: s_*^2.   prior: the scale A."""
    weight, mean, deviation = _average_over_spread(y, noise, ahead, prior)

    def exceed(at: float, probability: float) -> float:
        return float(weight @ ndtr((at - mean) / deviation)) - probability

    reach = 40 * float(deviation.max())
    low, high = float(mean.min()) - reach, float(mean.max()) + reach
    return [float(brentq(exceed, low, high, args=(p,), xtol=1e-9)) for p in probabilities]


def _average_over_spread(
    y: Sequence[float], noise: Sequence[float], ahead: float, prior: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return for a grid of spreads tau their posterior weight, and mean and deviation of y_* given each."""
    values, variances = np.asarray(y, np.float64), np.asarray(noise, np.float64)
    least = 1e-4 * min(prior, math.sqrt(max(float(variances.min()), 1e-12)))
    most = 1e3 * max(prior, float(np.ptp(values)))
    step = min(STEP, 0.5 / math.sqrt(len(values)))
    log_tau = np.linspace(math.log(least), math.log(most), 1 + math.ceil(math.log(most / least) / step))
    tau = np.exp(log_tau)
    w = 1 / (variances + tau[:, None] ** 2)  # (spread, domain)
    total = w.sum(1)
    mean = (w * values).sum(1) / total
    log_posterior = (
        0.5 * np.log(w).sum(1)
        - 0.5 * np.log(total)
        - 0.5 * (w * (values - mean[:, None]) ** 2).sum(1)
        - (DEGREES + 1) / 2 * np.log1p((tau / prior) ** 2 / DEGREES)
        + log_tau  # as the grid is even in log(tau)
    )
    weight = np.exp(log_posterior - log_posterior.max())
    return weight / weight.sum(), mean, np.sqrt(1 / total + tau**2 + ahead)
