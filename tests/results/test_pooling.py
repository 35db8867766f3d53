"""Differences pooled over held-out domains, seeds and data sets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from seqdg.results.statistics import average_set, correct_by_holm, find_levels, pool, pool_sets, pool_sizes

# Thirteen trials of a vaccine (Colditz et al., JAMA 1994): cases and others, vaccinated and not.
BCG = [
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
    (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232), (17, 1699, 65, 1600),
    (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
]  # fmt: skip


def draw_table(domains, seeds, by_domain=0.0, by_seed=0.0, seed=0):
    g = np.random.default_rng(seed)
    values = 1.0 + by_domain * g.normal(size=(domains, 1)) + by_seed * g.normal(size=(1, seeds))
    values = values + g.normal(size=(domains, seeds))
    return {(f"d{i}", j): float(values[i, j]) for i in range(domains) for j in range(seeds)}, values


def test_the_random_effects_model_gives_the_published_figures_of_the_vaccine_trials():
    """Log risk ratio -0.7141, tau^2 0.3088, I^2 92.12 % (Viechtbauer, J. Stat. Software 2010)."""
    means = [math.log((a / (a + b)) / (c / (c + d))) for a, b, c, d in BCG]
    variances = [1 / a - 1 / (a + b) + 1 / c - 1 / (c + d) for a, b, c, d in BCG]
    pooled = pool(means, variances)
    assert pooled.mean == pytest.approx(-0.7141, abs=5e-5)
    assert pooled.between**2 == pytest.approx(0.3088, abs=5e-5)
    assert 100 * pooled.heterogeneity == pytest.approx(92.12, abs=5e-3)
    assert pooled.sets == 13


def test_the_interval_over_sets_is_that_of_hartung_and_knapp_written_out():
    means, variances = [0.4, 2.1, -0.3, 1.4, 3.0], [0.09, 0.25, 0.04, 0.5, 0.3]
    w = [1 / v for v in variances]
    fixed = sum(a * b for a, b in zip(w, means, strict=True)) / sum(w)
    q = sum(a * (m - fixed) ** 2 for a, m in zip(w, means, strict=True))
    tau2 = (q - 4) / (sum(w) - sum(a**2 for a in w) / sum(w))
    assert tau2 > 0
    w = [1 / (v + tau2) for v in variances]
    mean = sum(a * b for a, b in zip(w, means, strict=True)) / sum(w)
    factor = sum(a * (m - mean) ** 2 for a, m in zip(w, means, strict=True)) / 4
    reach = stats.t.ppf(0.99, 4) * math.sqrt(max(1.0, factor) / sum(w))
    pooled = pool(means, variances)
    assert pooled.find_interval(0.02) == pytest.approx((mean - reach, mean + reach))
    assert pooled.test(0.5) == pytest.approx(2 * stats.t.sf(abs(mean - 0.5) / pooled.error, 4))


def test_sets_that_agree_are_pooled_as_if_their_effect_were_one():
    pooled = pool([1.0, 1.1, 0.9], [1.0, 4.0, 0.25])
    assert (pooled.between, pooled.heterogeneity) == (0.0, 0.0)
    assert pooled.mean == pytest.approx((1.0 + 1.1 / 4 + 0.9 * 4) / 5.25)
    assert pooled.error == pytest.approx(1 / math.sqrt(5.25))  # no narrower than without the factor


def test_one_set_alone_decides_nothing():
    assert pool([3.0], [0.01]).find_interval() == (-math.inf, math.inf)
    assert pool([3.0], [0.01]).test() == 1.0


def test_the_error_within_a_set_is_that_of_a_two_way_layout_written_out():
    differences, x = draw_table(4, 6, by_domain=2.0, by_seed=1.5)
    rows, columns, grand = x.mean(1), x.mean(0), x.mean()
    of_domains = 6 * ((rows - grand) ** 2).sum() / 3
    of_seeds = 4 * ((columns - grand) ** 2).sum() / 5
    rest = ((x - rows[:, None] - columns[None] + grand) ** 2).sum() / 15
    domain, seed = (of_domains - rest) / 6, (of_seeds - rest) / 4
    assert min(domain, seed) > 0
    variance = domain / 4 + seed / 6 + rest / 24
    parts = [(of_domains, 3), (of_seeds, 5), (-rest, 15)]
    degrees = sum(p for p, _ in parts) ** 2 / sum(p**2 / n for p, n in parts)
    found = average_set("set", differences)
    assert found.mean == pytest.approx(grand)
    assert found.error == pytest.approx(math.sqrt(variance))
    assert found.degrees == pytest.approx(degrees)
    assert found.size == pytest.approx(grand / x.std(ddof=1))
    reach = stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    assert found.find_interval() == pytest.approx((grand - reach, grand + reach))


def test_a_difference_that_one_domain_makes_has_a_wide_interval_however_many_seeds_there_are():
    def measure(seeds):
        noise = np.random.default_rng(1).normal(size=(4, seeds)) / 100
        return average_set("set", {(f"d{i}", j): 8.0 * (i == 0) + noise[i, j] for i in range(4) for j in range(seeds)})

    few, many = measure(5), measure(500)
    assert many.error == pytest.approx(few.error, rel=0.01) == pytest.approx(2.0, rel=0.01)
    assert many.find_interval()[0] < 0 < many.mean


def test_where_neither_domains_nor_seeds_differ_the_error_is_that_of_independent_cells():
    differences, x = draw_table(5, 40, seed=3)
    x = x - x.mean(1, keepdims=True) - x.mean(0, keepdims=True) + 2 * x.mean()
    found = average_set("set", {place: float(x[int(place[0][1:]), place[1]]) for place in differences})
    assert found.error == pytest.approx(math.sqrt((x - x.mean()).var() * 200 / (4 * 39) / 200))


def test_a_seed_that_misses_a_domain_is_left_out_and_one_seed_is_too_few():
    differences, _ = draw_table(3, 4)
    whole = average_set("set", {p: v for p, v in differences.items() if p[1] != 3})
    del differences["d1", 3]
    assert average_set("set", differences) == whole
    assert average_set("set", {("d0", 0): 1.0, ("d1", 0): 2.0}) is None
    assert average_set("set", {}) is None


def test_effect_sizes_are_pooled_as_differences_in_units_of_each_sets_deviation_are():
    sets = [average_set(f"s{k}", draw_table(4, 10, 0.5, seed=k)[0]) for k in range(4)]
    scaled = [
        average_set(f"s{k}", {p: v / sets[k].deviation for p, v in draw_table(4, 10, 0.5, seed=k)[0].items()})
        for k in range(4)
    ]
    assert pool_sizes(sets).mean == pytest.approx(pool_sets(scaled).mean)


@pytest.mark.parametrize("p", [[0.001, 0.04, 0.012, 0.5, 0.011], [0.2, 0.3], [0.01, 0.02, 0.02], [0.04, 0.04]])
def test_an_interval_at_its_level_leaves_out_the_null_exactly_where_holms_p_is_below_5_percent(p):
    decided = [value < level for value, level in zip(p, find_levels(p), strict=True)]
    assert decided == [corrected < 0.05 for corrected in correct_by_holm(p)]
