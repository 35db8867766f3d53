"""Differences pooled: within a data set over held-out domains and seeds, then over data sets.

Within a set every difference is of one held-out domain i and one seed j, the same for both sides. Domains are few and
differ, and a seed decides splits and first weights for all of them, so that the cells are not independent:

    d_ij = mean + a_i + b_j + e_ij,   Var(mean) = var(a) / I + var(b) / J + var(e) / (I J)

with the three variances from the mean squares of a two-way layout (Searle, Casella and McCulloch, "Variance
components", 1992), none below 0. So a difference that one domain alone makes has a wide interval, however many seeds
there are.

Over sets a random-effects model: y_k = mu + u_k + noise of variance v_k, Var(u) = tau^2 by DerSimonian and Laird
(1986), and the interval of Hartung and Knapp (2001) with Student's t of K - 1 degrees, never narrower than without
their factor (Roever, Knapp and Friede, 2015).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from seqdg.results.statistics import LEVEL

PairKey = tuple[str, int]  # a held-out domain and a seed


@dataclass(frozen=True)
class SetDifference:
    """The mean difference on one data set."""

    name: str
    mean: float
    error: float  # standard error of the mean
    degrees: float  # of freedom of the error (Satterthwaite 1946)
    deviation: float  # standard deviation of a single difference
    domains: int
    seeds: int

    @property
    def size(self) -> float:
        """The standardized effect: in standard deviations of a single paired difference."""
        return self.mean / self.deviation if self.deviation else math.copysign(math.inf, self.mean or 1.0)

    def find_interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return Student's interval of the mean with the degrees of freedom of its error."""
        reach = find_quantile(self.degrees, 1 - level / 2) * self.error
        return self.mean - reach, self.mean + reach


@dataclass(frozen=True)
class Pooled:
    """The mean over data sets."""

    mean: float
    error: float
    between: float  # tau, the standard deviation of the sets' true differences
    heterogeneity: float  # I^2, the share of the variance that is between sets
    sets: int

    @property
    def degrees(self) -> int:
        return self.sets - 1

    def find_interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of the mean; without end for fewer than two sets."""
        if self.sets < 2:
            return -math.inf, math.inf
        reach = find_quantile(self.degrees, 1 - level / 2) * self.error
        return self.mean - reach, self.mean + reach

    def test(self, null: float = 0.0) -> float:
        """Return the two-sided p of a mean of `null`."""
        from scipy.special import stdtr

        if self.sets < 2:
            return 1.0
        if self.error == 0:
            return 0.0 if self.mean != null else 1.0
        return float(2 * stdtr(self.degrees, -abs(self.mean - null) / self.error))


def average_set(name: str, differences: Mapping[PairKey, float]) -> SetDifference | None:
    """Average the differences of one set; None where there are fewer than two seeds.

    Seeds that miss a domain are left out, so that the layout is complete. One domain alone has the error of its seeds.
    """
    domains = list(dict.fromkeys(domain for domain, _ in differences))
    seeds = [s for s in dict.fromkeys(seed for _, seed in differences) if all((d, s) in differences for d in domains)]
    table = [[differences[domain, seed] for seed in seeds] for domain in domains]
    rows, columns = len(domains), len(seeds)
    if columns < 2:
        return None
    values = [x for row in table for x in row]
    mean = fmean(values)
    of_domain, of_seed = [fmean(row) for row in table], [fmean(column) for column in zip(*table, strict=True)]
    between_seeds = rows * sum((x - mean) ** 2 for x in of_seed) / (columns - 1)
    if rows == 1:
        variance, degrees = between_seeds / columns, columns - 1.0
    else:
        between_domains = columns * sum((x - mean) ** 2 for x in of_domain) / (rows - 1)
        rest = sum(
            (table[i][j] - of_domain[i] - of_seed[j] + mean) ** 2 for i in range(rows) for j in range(columns)
        ) / ((rows - 1) * (columns - 1))
        variance, degrees = _add_components(between_domains, between_seeds, rest, rows, columns)
    return SetDifference(name, mean, math.sqrt(variance), degrees, stdev(values), rows, columns)


def _add_components(domains: float, seeds: float, rest: float, rows: int, columns: int) -> tuple[float, float]:
    """Return the variance of the mean, and its degrees of freedom, from the three mean squares."""
    freedom = (rows - 1, columns - 1, (rows - 1) * (columns - 1))
    # variance * rows * columns = weights * mean squares; a component below 0 counts as 0
    weights = (float(domains > rest), float(seeds > rest), 1.0 - float(domains > rest) - float(seeds > rest))
    parts = [w * square for w, square in zip(weights, (domains, seeds, rest), strict=True)]
    total = sum(parts)
    spread = sum(part**2 / n for part, n in zip(parts, freedom, strict=True))
    return total / (rows * columns), total**2 / spread if spread else float(freedom[2])


def pool(means: Sequence[float], variances: Sequence[float]) -> Pooled:
    """Pool independent means with these variances by the random-effects model."""
    count = len(means)
    # A set whose differences are all the same has no variance: it gets a trace of one, so that weights stay finite.
    least = 1e-12 * max(max(variances), max(m * m for m in means), 1e-300)
    known = [max(v, least) for v in variances]
    fixed = [1 / v for v in known]
    center = _average(means, fixed)
    q = sum(w * (m - center) ** 2 for w, m in zip(fixed, means, strict=True))
    scale = sum(fixed) - sum(w * w for w in fixed) / sum(fixed)
    between = max(0.0, (q - (count - 1)) / scale) if count > 1 else 0.0
    weights = [1 / (v + between) for v in known]
    mean = _average(means, weights)
    factor = 1.0
    if count > 1:
        factor = sum(w * (m - mean) ** 2 for w, m in zip(weights, means, strict=True)) / (count - 1)
    error = math.sqrt(max(1.0, factor) / sum(weights))
    share = max(0.0, 1 - (count - 1) / q) if q > 0 else 0.0
    return Pooled(mean, error, math.sqrt(between), share, count)


def pool_sets(sets: Sequence[SetDifference]) -> Pooled:
    """Pool the mean differences of sets."""
    return pool([s.mean for s in sets], [s.error**2 for s in sets])


def pool_sizes(sets: Sequence[SetDifference]) -> Pooled | None:
    """Pool the standardized effects of sets; None where one has no spread."""
    if any(s.deviation == 0 for s in sets):
        return None
    return pool([s.size for s in sets], [(s.error / s.deviation) ** 2 for s in sets])


def find_levels(p_values: Sequence[float], level: float = LEVEL) -> list[float]:
    """Return for each of m hypotheses the level of the interval that answers it under Holm's step-down correction.

    In the order of their p, the k-th smallest has level / (m - k + 1) while all before it are decided; from the first
    that is not, all have its level. So an interval leaves out the null exactly where the corrected p is below `level`.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    levels, stopped = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        levels[i] = stopped or level / (len(p_values) - rank)
        if not stopped and p_values[i] >= levels[i]:
            stopped = levels[i]
    return levels


def find_quantile(degrees: float, probability: float) -> float:
    """Return Student's quantile."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def _average(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
