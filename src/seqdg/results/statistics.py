"""Means and standard errors over trials; paired statistics against a baseline, on one data set and over several.

Trials with the same seed and held-out domain form a pair. On one set the pairs are taken as independent draws of what a
seed decides (split, first weights, minibatches) on given data and domains. Differences between domains count as noise,
which makes the interval wider and the test more careful. What a seed does to all domains alike is left out of account,
which makes the test less careful. Neither says anything about other rows or other domains.

A study pools over sets, and must say how far the mean of one is off. Every difference is of one held-out domain i and
one seed j, the same for both sides. Domains are few and differ, and a seed decides splits and first weights for all of
them, so that the cells are not independent:

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
from dataclasses import dataclass, replace
from statistics import fmean, pstdev, stdev
from typing import TypeGuard

from seqdg.base import count_things, unknown
from seqdg.results.record import Outcome

# numpy and scipy are imported where they are used: that takes longer than printing a table
LEVEL = 0.05
EXACT = 16  # up to this many pairs, test all 2^n sign patterns
DRAWS = 100_000  # beyond, test this many random ones
PairKey = tuple[str, int]  # a held-out domain and a seed
AVERAGE, WORST, TOGETHER = SUMMARIES = ("average", "worst", "together")
SPREADS = {"stderr": 1, "stderr-ddof0": 0}  # n trials: the deviation divides by n less this; DomainBed's tables by n


@dataclass(frozen=True)
class Cell:
    """One number of a table, in the unit of its criterion."""

    algorithm: str
    held_out: str  # a domain, or one of SUMMARIES
    mean: float | None
    stderr: float | None  # None with fewer than two trials
    trials: int
    diverged: int = 0


def format_cell(cell: Cell | None, digits: int, plus_minus: str = "±") -> str:
    """`57.5 ± 0.5`; a dash where there is no value."""
    if cell is None:
        return "-"
    if cell.mean is None:
        return "diverged" if cell.diverged else "-"
    error = f" {plus_minus} {cell.stderr:.{digits}f}" if cell.stderr is not None else ""
    diverged = f" ({cell.diverged} diverged)" if cell.diverged else ""
    return f"{cell.mean:.{digits}f}{error}{diverged}"


def summarize(
    outcomes: Sequence[Outcome], factor: float = 100.0, higher: bool = True, spread: str = "stderr"
) -> list[Cell]:
    """Return a cell for each held-out domain, their average (taken within each seed) and the worst of them. Where a
    fixed split holds out several at once, there is also one over all their rows together.

    spread: what ± means, one of `SPREADS`.
    """
    if spread not in SPREADS:
        raise unknown("meaning of ±", spread, SPREADS)
    domains = list(dict.fromkeys(o.held_out for o in outcomes))
    cells = []
    for algorithm in dict.fromkeys(o.algorithm for o in outcomes):
        results = [o for o in outcomes if o.algorithm == algorithm]

        def make_cell(row: str, values: Sequence[float], tried: Sequence[Outcome], name: str = algorithm) -> Cell:
            diverged = sum(o.value is None for o in tried)
            return Cell(name, row, *mean_and_error(values, SPREADS[spread]), len(values), diverged)

        rows, by_seed = [], dict[int, list[float]]()
        for domain in domains:
            if tried := [o for o in results if o.held_out == domain]:
                known = {o.seed: factor * o.value for o in tried if is_known(o.value)}
                rows.append(make_cell(name_row(domain), list(known.values()), tried))
                for seed, value in known.items():
                    by_seed.setdefault(seed, []).append(value)
        whole = [fmean(values) for values in by_seed.values() if len(values) == len(domains)]
        cells += [*rows, make_cell(AVERAGE, whole, results), _find_worst(rows, len(domains), higher)]
        if joined := {o.seed: factor * o.together for o in results if is_known(o.together)}:
            cells.append(make_cell(TOGETHER, list(joined.values()), results))
    return cells


def name_row(domain: str) -> str:
    """Return the name of a domain's row, also where the domain is called `average`, `worst` or `together`."""
    return f"{domain} (domain)" if domain in SUMMARIES else domain


def is_known(value: float | None) -> TypeGuard[float]:
    """Say whether there is a value: training did not diverge and the criterion is defined (AUROC needs two classes)."""
    return value is not None and math.isfinite(value)


def _find_worst(rows: Sequence[Cell], domains: int, higher: bool) -> Cell:
    """Return the worst domain where every domain has a value; otherwise the worst may be one that is missing."""
    reached = [(row.mean, row) for row in rows if row.mean is not None]
    if len(reached) < domains:
        return Cell(rows[0].algorithm, WORST, None, None, 0, sum(row.diverged for row in rows))
    return replace((min if higher else max)(reached, key=lambda pair: pair[0])[1], held_out=WORST)


def mean_and_error(values: Sequence[float], ddof: int = 1) -> tuple[float | None, float | None]:
    """Return the mean m of n values and its standard error,  sqrt(sum (x - m)^2 / (n - ddof)) / sqrt(n)."""
    if not values:
        return None, None
    deviation = stdev if ddof else pstdev
    return fmean(values), deviation(values) / math.sqrt(len(values)) if len(values) > 1 else None


# Pairs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairedDifference:
    """One algorithm against the baseline; differences are algorithm minus baseline, in the table's unit."""

    algorithm: str
    baseline: str
    pairs: int
    left_out: int  # pairs in which one side is missing, diverged or undefined
    diverged: int  # of these, pairs in which this algorithm diverged
    difference: float | None
    low: float | None  # 95 % confidence interval of the mean difference
    high: float | None
    p: float | None
    p_holm: float | None
    higher: bool  # whether the larger number is the better one
    better_on: int = 0  # held-out domains on which the algorithm is better on average
    domains: int = 0  # held-out domains that have pairs

    @property
    def distinguishable(self) -> bool:
        return self.p_holm is not None and self.p_holm < LEVEL and self.difference != 0

    @property
    def verdict(self) -> str:
        if not self.distinguishable:
            few = self.pairs and 2.0 ** (1 - self.pairs) >= LEVEL and self.difference != 0
            count = "one pair is" if self.pairs == 1 else f"{self.pairs} pairs are"
            reason = f": {count} too few to tell" if few else ""
            return f"not distinguishable from {self.baseline}{reason}"
        assert self.difference is not None
        return f"{'better' if (self.difference > 0) == self.higher else 'worse'} than {self.baseline}"


def compare_pairs(
    outcomes: Sequence[Outcome], baseline: str, factor: float = 100.0, higher: bool = True
) -> list[PairedDifference]:
    """Compare every other algorithm of the run with the baseline; correct all p-values by Holm's method."""
    return compare_with_each(outcomes, [baseline], factor, higher)[baseline]


def compare_with_each(
    outcomes: Sequence[Outcome], baselines: Sequence[str], factor: float = 100.0, higher: bool = True
) -> dict[str, list[PairedDifference]]:
    """Compare with every one of the baselines, as `compare_pairs` does with one; all are tested at once."""
    names = list(dict.fromkeys(o.algorithm for o in outcomes))
    if lacking := [name for name in baselines if name not in names]:
        raise unknown("algorithm", lacking[0], names, owner="This run")
    values = {name: {(o.held_out, o.seed): o.value for o in outcomes if o.algorithm == name} for name in names}
    cells = list(dict.fromkeys((o.held_out, o.seed) for o in outcomes))
    differences: dict[tuple[str, str], dict[PairKey, float]] = {}
    for name, baseline in ((name, baseline) for baseline in baselines for name in names if name != baseline):
        both = {cell: (values[name].get(cell), values[baseline].get(cell)) for cell in cells}
        known = {cell: factor * (a - b) for cell, (a, b) in both.items() if is_known(a) and is_known(b)}
        differences[name, baseline] = known
    tested = [pair for pair, known in differences.items() if known]
    p = dict(zip(tested, sign_flip_tests([list(differences[pair].values()) for pair in tested]), strict=True))
    p_holm: dict[tuple[str, str], float] = {}
    for baseline in baselines:
        together = [pair for pair in tested if pair[1] == baseline]
        p_holm |= zip(together, correct_by_holm([p[pair] for pair in together]), strict=True)
    compared: dict[str, list[PairedDifference]] = {baseline: [] for baseline in baselines}
    for (name, baseline), by_cell in differences.items():
        by_domain: dict[str, list[float]] = {}
        for (domain, _), difference in by_cell.items():
            by_domain.setdefault(domain, []).append(difference)
        low, high = estimate_interval(list(by_cell.values()))
        compared[baseline].append(
            PairedDifference(
                algorithm=name,
                baseline=baseline,
                pairs=len(by_cell),
                left_out=len(cells) - len(by_cell),
                diverged=sum(values[name].get(cell, 0.0) is None for cell in cells),
                difference=fmean(by_cell.values()) if by_cell else None,
                low=low,
                high=high,
                p=p.get((name, baseline)),
                p_holm=p_holm.get((name, baseline)),
                higher=higher,
                better_on=sum((fmean(some) > 0) if higher else (fmean(some) < 0) for some in by_domain.values()),
                domains=len(by_domain),
            )
        )
    return compared


def estimate_interval(differences: Sequence[float], level: float = LEVEL) -> tuple[float | None, float | None]:
    """Return Student's confidence interval of the mean; none for fewer than two values."""
    n = len(differences)
    if n < 2:
        return None, None
    reach = find_quantile(n - 1, level) * stdev(differences) / math.sqrt(n)
    return fmean(differences) - reach, fmean(differences) + reach


@dataclass(frozen=True)
class Spread:
    """A mean over domains with its standard error and 95 % interval, which are None if there is one domain alone."""

    mean: float
    error: float | None = None
    low: float | None = None
    high: float | None = None


def estimate_spread(values: Sequence[float]) -> Spread:
    """Estimate the mean of domains' values, with its standard error and interval; those not finite are left out."""
    known = [float(v) for v in values if math.isfinite(v)]
    if len(known) < 2:
        return Spread(known[0] if known else math.nan)
    return Spread(fmean(known), stdev(known) / math.sqrt(len(known)), *estimate_interval(known))


def find_quantile(degrees: float, level: float = LEVEL) -> float:
    """Return how many standard errors an interval of Student's t reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 1 - level / 2))


def sign_flip_tests(samples: Sequence[Sequence[float]]) -> list[float]:
    """Return p of a two-sided paired permutation test of each sample: if the two are alike, each difference may have
    either sign.

    It is the share of sign patterns whose sum is at least as far from 0 as the observed one, among all patterns where
    there are few, else among random ones and the observed one. Samples of the same size share their random signs.
    """
    import numpy as np

    chances: dict[int, float] = {}
    for size in dict.fromkeys(map(len, samples)):
        indices = [i for i, sample in enumerate(samples) if len(sample) == size]
        d = np.array([samples[i] for i in indices], dtype=np.float64).T  # (pair, sample)
        least = np.abs(d.sum(0)) - 1e-9 * np.abs(d).sum(0)  # rounding must not break ties
        if size <= EXACT:
            signs = 1.0 - 2.0 * (np.arange(2**size)[:, None] >> np.arange(size) & 1)
            shares = (np.abs(signs @ d) >= least).mean(0)
        else:
            generator = np.random.Generator(np.random.Philox(0))
            hits = np.ones(len(indices))  # the observed one
            for _ in range(10):
                signs = generator.integers(0, 2, size=(DRAWS // 10, size)) * 2.0 - 1.0
                hits += (np.abs(signs @ d) >= least).sum(0)
            shares = hits / (DRAWS + 1)
        chances.update(zip(indices, shares.tolist(), strict=True))
    return [chances[i] for i in range(len(samples))]


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """Apply Holm's step-down correction: the k-th smallest of m times (m - k + 1), non-decreasing, at most 1."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = least
    return adjusted


def describe_difference(x: PairedDifference, unit: str = "points", digits: int = 1) -> str:
    """`mldg: +1.5 points over 20 pairs (95 % CI +0.9 to +2.1, p = 0.002), ahead on 4 of 4 domains: better than agg.`"""
    if x.difference is None:
        return f"{x.algorithm}: no pair to compare with {x.baseline}."
    about = [f"95 % CI {x.low:+.{digits}f} to {x.high:+.{digits}f}"] if x.low is not None else []
    about += [format_p(x.p_holm)] if x.p_holm is not None else []
    left_out = f" {x.left_out} more left out: missing, diverged or undefined." if x.left_out else ""
    over = f"over {count_things(x.pairs, 'pair')}"
    difference = f"{x.difference:+.{digits}f}{' ' if unit else ''}{unit}"
    return f"{x.algorithm}: {difference} {over} ({', '.join(about)}), {describe_wins(x)}: {x.verdict}.{left_out}"


def describe_wins(x: PairedDifference) -> str:
    """`ahead on 3 of 4 domains`"""
    return f"ahead on {x.better_on} of {count_things(x.domains, 'domain')}"


def format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


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
        reach = find_quantile(self.degrees, level) * self.error
        return self.mean - reach, self.mean + reach

    def test(self, null: float = 0.0) -> float:
        """Return the two-sided p of a mean of `null`."""
        return _test_mean(self.mean - null, self.error, self.degrees)


@dataclass(frozen=True)
class Pooled:
    """The mean over data sets."""

    mean: float
    error: float
    between: float  # tau, the standard deviation of the sets' true differences
    heterogeneity: float  # I^2, the share of the variance that is between sets
    sets: int

    def find_interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of the mean; without end for fewer than two sets."""
        if self.sets < 2:
            return -math.inf, math.inf
        reach = find_quantile(self.sets - 1, level) * self.error
        return self.mean - reach, self.mean + reach

    def test(self, null: float = 0.0) -> float:
        """Return the two-sided p of a mean of `null`."""
        return 1.0 if self.sets < 2 else _test_mean(self.mean - null, self.error, self.sets - 1)


def _test_mean(mean: float, error: float, degrees: float) -> float:
    """Return the two-sided p of Student's test of a mean with this standard error."""
    from scipy.special import stdtr

    if error == 0:
        return 0.0 if mean else 1.0
    return float(2 * stdtr(degrees, -abs(mean) / error))


def average_set(name: str, differences: Mapping[PairKey, float]) -> SetDifference | None:
    """Average the differences of one set; None where there are fewer than two seeds.

    Seeds that miss a domain are left out, so that the layout is complete. One domain alone has the error of its seeds.
    """
    import numpy as np

    domains = list(dict.fromkeys(domain for domain, _ in differences))
    seeds = [s for s in dict.fromkeys(seed for _, seed in differences) if all((d, s) in differences for d in domains)]
    if len(seeds) < 2:
        return None
    table = np.array([[differences[domain, seed] for seed in seeds] for domain in domains])
    rows, columns = table.shape
    mean, of_domain, of_seed = table.mean(), table.mean(1, keepdims=True), table.mean(0, keepdims=True)
    between_domains = columns * ((of_domain - mean) ** 2).sum() / max(1, rows - 1)
    between_seeds = rows * ((of_seed - mean) ** 2).sum() / (columns - 1)
    rest = ((table - of_domain - of_seed + mean) ** 2).sum() / max(1, (rows - 1) * (columns - 1))
    if rows == 1:
        squares, freedom, weights = [between_seeds], [columns - 1], [1.0]
    else:
        squares, freedom = [between_domains, between_seeds, rest], [rows - 1, columns - 1, (rows - 1) * (columns - 1)]
        # variance * rows * columns = weights * mean squares; a component below 0 counts as 0
        weights = [float(between_domains > rest), float(between_seeds > rest)]
        weights.append(1.0 - sum(weights))
    parts = np.array(weights) * squares
    total, spread = parts.sum(), (parts**2 / freedom).sum()
    degrees = total**2 / spread if spread else freedom[-1]
    deviation = table.std(ddof=1)
    return SetDifference(
        name, float(mean), math.sqrt(total / table.size), float(degrees), float(deviation), rows, columns
    )


def pool(means: Sequence[float], variances: Sequence[float]) -> Pooled:
    """Pool independent means with these variances by the random-effects model."""
    import numpy as np

    m, count = np.array(means), len(means)
    # A set whose differences are all the same has no variance: it gets a trace of one, so that weights stay finite.
    known = np.maximum(variances, 1e-12 * max(*variances, *m**2, 1e-300))
    fixed = 1 / known
    q = (fixed * (m - np.average(m, weights=fixed)) ** 2).sum()
    scale = fixed.sum() - (fixed**2).sum() / fixed.sum()
    between = max(0.0, (q - (count - 1)) / scale) if count > 1 else 0.0
    weights = 1 / (known + between)
    mean = np.average(m, weights=weights)
    factor = (weights * (m - mean) ** 2).sum() / (count - 1) if count > 1 else 1.0
    error = math.sqrt(max(1.0, factor) / weights.sum())
    share = max(0.0, 1 - (count - 1) / q) if q > 0 else 0.0
    return Pooled(float(mean), error, math.sqrt(between), float(share), count)


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
