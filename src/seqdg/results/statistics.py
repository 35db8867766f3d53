"""Paired statistics against a baseline: trials with the same seed and held-out domain form a pair.

The pairs are taken as independent draws of what a seed decides (split, first weights, minibatches) on given data and
domains. Differences between domains count as noise, which makes the interval wider and the test more careful. Neither
says anything about other rows or other domains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from seqdg.base import unknown
from seqdg.results.select import Outcome
from seqdg.results.summary import is_known

if TYPE_CHECKING:  # numpy and scipy are imported where they are used: that takes longer than printing a table
    import numpy as np
    from numpy.typing import NDArray

LEVEL = 0.05
EXACT = 16  # up to this many pairs, test all 2^n sign patterns
DRAWS = 100_000  # beyond, test this many random ones


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
    places = list(dict.fromkeys((o.held_out, o.seed) for o in outcomes))
    pairs = [(name, baseline) for baseline in baselines for name in names if name != baseline]
    compared = [_compare_with(name, baseline, values, places, factor, higher) for name, baseline in pairs]
    chances = iter(sign_flip_tests([differences for _, differences in compared if differences]))
    tested = [replace(x, p=next(chances)) if differences else x for x, differences in compared]
    return {baseline: _correct([x for x in tested if x.baseline == baseline]) for baseline in baselines}


def _compare_with(
    name: str,
    baseline: str,
    values: Mapping[str, Mapping[tuple[str, int], float | None]],
    places: Sequence[tuple[str, int]],
    factor: float,
    higher: bool,
) -> tuple[PairedDifference, list[float]]:
    """Return the comparison, not tested yet, and the differences to test."""
    both = {place: (values[name].get(place), values[baseline].get(place)) for place in places}
    gaps = {place: factor * (a - b) for place, (a, b) in both.items() if is_known(a) and is_known(b)}
    differences, by_domain = list(gaps.values()), _average_by_domain(gaps)
    low, high = estimate_interval(differences)
    compared = PairedDifference(
        algorithm=name,
        baseline=baseline,
        pairs=len(differences),
        left_out=len(both) - len(differences),
        diverged=sum(values[name].get(place, 0.0) is None for place in places),
        difference=fmean(differences) if differences else None,
        low=low,
        high=high,
        p=None,
        p_holm=None,
        higher=higher,
        better_on=sum((gap > 0) if higher else (gap < 0) for gap in by_domain),
        domains=len(by_domain),
    )
    return compared, differences


def _average_by_domain(gaps: Mapping[tuple[str, int], float]) -> list[float]:
    """Return the mean difference on each held-out domain."""
    names = dict.fromkeys(domain for domain, _ in gaps)
    return [fmean(gap for (domain, _), gap in gaps.items() if domain == name) for name in names]


def _correct(differences: list[PairedDifference]) -> list[PairedDifference]:
    tested = [x.p for x in differences if x.p is not None]
    adjusted = iter(correct_by_holm(tested))
    return [replace(x, p_holm=next(adjusted)) if x.p is not None else x for x in differences]


def estimate_interval(differences: Sequence[float], level: float = LEVEL) -> tuple[float | None, float | None]:
    """Return Student's confidence interval of the mean; none for fewer than two values."""
    from scipy.special import stdtrit

    n = len(differences)
    if n < 2:
        return None, None
    reach = float(stdtrit(n - 1, 1 - level / 2)) * stdev(differences) / math.sqrt(n)
    return fmean(differences) - reach, fmean(differences) + reach


def sign_flip_test(differences: Sequence[float], seed: int = 0) -> float:
    """Return p of a two-sided paired permutation test: if the two are alike, each difference may have either sign.

    It is the share of sign patterns whose sum is at least as far from 0 as the observed one, among all patterns where
    there are few, else among random ones and the observed one.
    """
    return sign_flip_tests([differences], seed)[0]


def sign_flip_tests(samples: Sequence[Sequence[float]], seed: int = 0) -> list[float]:
    """Return p of each sample by `sign_flip_test`; those of the same size share their random signs."""
    import numpy as np

    found: dict[int, float] = {}
    for size in dict.fromkeys(map(len, samples)):
        places = [i for i, sample in enumerate(samples) if len(sample) == size]
        d = np.array([samples[i] for i in places], dtype=np.float64).T  # (pair, sample)
        least = np.abs(d.sum(0)) - 1e-9 * np.abs(d).sum(0)  # rounding must not break ties
        if size <= EXACT:
            chances = [float((np.abs(_sum_all_signs(x)) >= bound).mean()) for x, bound in zip(d.T, least, strict=True)]
        else:
            generator = np.random.Generator(np.random.Philox(seed))
            hits = np.zeros(len(places))
            for _ in range(10):
                signs = generator.integers(0, 2, size=(DRAWS // 10, size)) * 2.0 - 1.0
                hits += (np.abs(signs @ d) >= least).sum(0)
            chances = [float(h + 1) / (DRAWS + 1) for h in hits]
        found.update(zip(places, chances, strict=True))
    return [found[i] for i in range(len(samples))]


def _sum_all_signs(d: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


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
    over = f"over {x.pairs} pair{'s' if x.pairs != 1 else ''}"
    gap = f"{x.difference:+.{digits}f}{' ' if unit else ''}{unit}"
    return f"{x.algorithm}: {gap} {over} ({', '.join(about)}), {describe_wins(x)}: {x.verdict}.{left_out}"


def describe_wins(x: PairedDifference) -> str:
    """`ahead on 3 of 4 domains`"""
    return f"ahead on {x.better_on} of {x.domains} domain{'s' if x.domains != 1 else ''}"


def format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
