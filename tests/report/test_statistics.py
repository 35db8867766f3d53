from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seqdg.base import UsageError
from seqdg.results import select_outcomes
from seqdg.results.statistics import (
    compare_pairs,
    correct_by_holm,
    describe_difference,
    estimate_interval,
    sign_flip_tests,
)


def _test(differences):
    return sign_flip_tests([differences])[0]


def _scipy_p(differences):
    got = stats.permutation_test(
        (np.array(differences),),
        lambda x, axis: x.sum(axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    return got.pvalue


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=9))
def test_the_exact_sign_flip_test_agrees_with_scipy(differences):
    values = [d / 7 for d in differences]
    assert _test(values) == pytest.approx(_scipy_p(values), abs=1e-12)


def test_three_differences_of_one_sign_have_two_of_eight_patterns_as_far_out():
    assert _test([1.0, 2.0, 3.0]) == 2 / 8


def test_a_sum_that_other_patterns_tie_counts_them_all():
    # 0.1 + 0.2 - 0.3 is not exactly zero in floating point, but every pattern is as far out as it.
    assert _test([0.1, 0.2, -0.3]) == 1.0


@pytest.mark.slow
def test_with_many_pairs_the_random_patterns_come_close_to_all_patterns():
    rng = np.random.default_rng(5)
    differences = rng.normal(0.5, 1.0, 18)
    exact = _scipy_p(differences)
    assert 0.01 < exact < 0.5
    assert _test(differences) == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 100_000))


def test_the_random_patterns_are_the_same_every_time():
    differences = list(np.random.default_rng(0).normal(0.1, 1, 40))
    assert _test(differences) == _test(differences)


@given(st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=3, max_size=12))
def test_the_interval_is_that_of_the_paired_t_test(differences):
    low, high = estimate_interval(differences)
    if len(set(differences)) == 1:
        assert (low, high) == pytest.approx((differences[0], differences[0]))
        return
    want = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((want.low, want.high), abs=1e-9)


def test_the_interval_of_one_to_five_by_hand():
    # mean 3, standard deviation sqrt(2.5), t(0.975, 4) = 2.7764451
    reach = 2.7764451 * np.sqrt(2.5 / 5)
    assert estimate_interval([1, 2, 3, 4, 5]) == pytest.approx((3 - reach, 3 + reach), abs=1e-6)


def test_one_pair_has_no_interval():
    assert estimate_interval([1.0]) == (None, None)


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04, then never falling
    assert correct_by_holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert correct_by_holm([0.9, 0.8]) == [1.0, 1.0]
    assert correct_by_holm([]) == []


def test_equal_results_are_not_distinguishable(run):
    values = {"V": [0.6, 0.7, 0.65, 0.61], "L": [0.5, 0.52, 0.51, 0.49]}
    (found,) = compare_pairs(select_outcomes(run({"agg": values, "mldg": values})), "agg")
    assert (found.difference, found.low, found.high, found.p_holm) == (0.0, 0.0, 0.0, 1.0)
    assert found.verdict == "not distinguishable from agg"
    assert "not distinguishable from agg" in describe_difference(found)


def test_noise_alone_is_found_different_no_more_often_than_the_level_allows(run):
    rng = np.random.default_rng(7)
    wrong = sum(_test(rng.normal(0, 1, 12)) < 0.05 for _ in range(1000))
    assert wrong <= 50 + 3 * np.sqrt(1000 * 0.05 * 0.95)


@pytest.mark.slow
def test_domains_whose_differences_cancel_are_found_different_no_more_often_than_the_level_allows():
    """Given domains: the mean over them is 0, and what they differ by counts as noise."""
    rng = np.random.default_rng(3)
    effect = np.repeat([3.0, -1.0, -1.0, -1.0], 5)
    draws = [effect + rng.normal(0, 1, 20) for _ in range(400)]
    assert sum(_test(d) < 0.05 for d in draws) <= 400 * 0.05
    outside = [low > 0 or high < 0 for low, high in map(estimate_interval, draws)]
    assert sum(outside) <= 400 * 0.05


def test_the_interval_of_independent_pairs_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(4)
    ends = [estimate_interval(list(rng.normal(1.5, 2.0, 20))) for _ in range(1000)]
    assert sum(low <= 1.5 <= high for low, high in ends) == pytest.approx(950, abs=3 * np.sqrt(1000 * 0.05 * 0.95))


def test_it_is_counted_on_how_many_domains_the_algorithm_is_ahead(run):
    values = {
        "agg": {d: [0.5, 0.6] for d in "VLCS"},
        "a": {"V": [0.6, 0.7], "L": [0.4, 0.9], "C": [0.5, 0.6], "S": [0.1]},
    }
    (found,) = compare_pairs(select_outcomes(run(values)), "agg")
    assert (found.better_on, found.domains) == (2, 4)  # on C they are equal
    (lower,) = compare_pairs(select_outcomes(run(values), criterion="log_loss"), "agg", 1.0, higher=False)
    assert (lower.better_on, lower.domains) == (1, 4)
    assert "ahead on 2 of 4 domains" in describe_difference(found)


def test_a_planted_difference_is_found_under_noise_that_the_pairs_share(run):
    rng = np.random.default_rng(1)
    shared = {d: rng.uniform(0.4, 0.8, 5) for d in "VLCS"}
    plain = {d: list(v + rng.normal(0, 0.005, 5)) for d, v in shared.items()}
    better = {d: list(v + 0.02 + rng.normal(0, 0.005, 5)) for d, v in shared.items()}
    worse = {d: list(v - 0.02 + rng.normal(0, 0.005, 5)) for d, v in shared.items()}
    same = {d: list(v + rng.normal(0, 0.005, 5)) for d, v in shared.items()}
    found = {
        x.algorithm: x
        for x in compare_pairs(select_outcomes(run({"agg": plain, "a": better, "b": worse, "c": same})), "agg")
    }
    assert found["a"].verdict == "better than agg"
    assert found["a"].low <= 2.0 <= found["a"].high
    assert found["a"].pairs == 20
    assert found["b"].verdict == "worse than agg"
    assert found["c"].verdict == "not distinguishable from agg"


def test_where_less_is_better_a_lower_value_is_better(run):
    records = run({"agg": {"V": [0.5] * 8}, "a": {"V": [0.4 + i / 1000 for i in range(8)]}})
    (found,) = compare_pairs(select_outcomes(records, criterion="log_loss"), "agg", 1.0, higher=False)
    assert found.verdict == "better than agg"


def test_a_pair_that_diverged_is_left_out_and_counted(run):
    records = run({"agg": {"V": [0.5, 0.6, 0.7]}, "a": {"V": [0.6, None, 0.8]}})
    (found,) = compare_pairs(select_outcomes(records), "agg")
    assert (found.pairs, found.left_out, found.diverged) == (2, 1, 1)
    assert found.difference == pytest.approx(10.0)
    assert "1 more left out" in describe_difference(found)


def test_few_pairs_are_too_few_to_tell_even_a_large_difference(run):
    (found,) = compare_pairs(select_outcomes(run({"agg": {"V": [0.1, 0.1]}, "a": {"V": [0.9, 0.8]}})), "agg")
    assert found.verdict == "not distinguishable from agg: 2 pairs are too few to tell"


def test_with_no_pair_in_common_nothing_is_claimed(run):
    (found,) = compare_pairs(select_outcomes(run({"agg": {"V": [0.5]}, "a": {"L": [0.6]}})), "agg")
    assert describe_difference(found) == "a: no pair to compare with agg."
    assert found.verdict == "not distinguishable from agg"


def test_a_baseline_that_did_not_run_is_named_with_those_that_did(run):
    with pytest.raises(UsageError, match=r"This run has no algorithm 'ag'.*agg, a\."):
        compare_pairs(select_outcomes(run({"agg": {"V": [0.5]}, "a": {"V": [0.6]}})), "ag")
