"""The interval of the next domain: against brute-force integration, in its limits, and on simulated domains."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from seqdg.results import CRITERIA, next_domain
from seqdg.results.next_domain import DEGREES, LEVEL, SHARE, find_quantiles, get_scale, predict_next_domain


def integrate_by_force(y, noise, ahead, prior, at):
    """P(y_* < at) by a plain sum over a grid of mu and tau, from the model as it is written down."""
    mus = np.linspace(min(y) - 12, max(y) + 12, 801)
    taus = (np.arange(1500) + 0.5) * 30 * prior / 1500

    def density(value, mean, variance):
        return np.exp(-((value - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)

    total, below = 0.0, 0.0
    for tau in taus:
        joint = np.full_like(mus, (1 + (tau / prior) ** 2 / DEGREES) ** (-(DEGREES + 1) / 2))
        for value, variance in zip(y, noise, strict=True):
            joint = joint * density(value, mus, variance + tau**2)
        total += joint.sum()
        below += (joint * ndtr((at - mus) / math.sqrt(tau**2 + ahead))).sum()
    return below / total


@pytest.mark.parametrize(
    ("y", "noise"),
    [([1.4, 1.1, 2.9, 0.4], [0.01, 0.02, 0.05, 0.01]), ([0.6, 0.7], [0.09, 0.25])],
)
def test_quantiles_agree_with_brute_force_integration(y, noise):
    low, high = find_quantiles(y, noise, 0.02, 0.6, (0.05, 0.95))
    assert integrate_by_force(y, noise, 0.02, 0.6, low) == pytest.approx(0.05, abs=2e-4)
    assert integrate_by_force(y, noise, 0.02, 0.6, high) == pytest.approx(0.95, abs=2e-4)


def test_of_many_domains_it_is_the_normal_interval_of_their_mean_and_deviation():
    y = stats.norm.ppf((np.arange(2000) + 0.5) / 2000, 1.2, 0.7)
    low, high = find_quantiles(y.tolist(), [1e-6] * 2000, 1e-6, 0.3, (0.05, 0.95))
    assert (low, high) == pytest.approx(tuple(stats.norm.ppf([0.05, 0.95], y.mean(), y.std())), abs=2e-3)


def test_of_many_domains_that_do_not_differ_only_the_rows_noise_is_left():
    y = stats.norm.ppf((np.arange(400) + 0.5) / 400, 0.0, 0.1)
    quantiles = find_quantiles(y.tolist(), [0.01] * 400, 0.04, 0.5, (0.05, 0.95))
    assert quantiles == pytest.approx(stats.norm.ppf([0.05, 0.95], 0.0, 0.2).tolist(), rel=0.05)


def test_a_prior_without_spread_leaves_rows_noise_alone():
    y, variance = [0.2, 0.5, 0.3], 0.09
    quantiles = find_quantiles(y, [variance] * 3, variance, 1e-7, (0.05, 0.95))
    expected = stats.norm.ppf([0.05, 0.95], np.mean(y), math.sqrt(variance * (1 + 1 / 3)))
    assert quantiles == pytest.approx(expected.tolist(), abs=1e-6)


def test_of_one_domain_the_prior_decides():
    """y_* - y_1 is normal of variance 2 tau^2 + noise, averaged over the prior of tau."""
    (high,) = find_quantiles([0.5], [0.01], 0.01, 0.6, (0.95,))
    taus = 0.6 * stats.t.ppf(0.5 + (np.arange(20000) + 0.5) / 40000, DEGREES)
    assert np.mean(stats.norm.cdf(high - 0.5, 0, np.sqrt(2 * taus**2 + 0.02))) == pytest.approx(0.95, abs=1e-4)
    wide, narrow = (find_quantiles([0.5], [0.01], 0.01, prior, (0.95,))[0] for prior in (1.0, 0.3))
    assert wide > high > narrow


def test_few_rows_widen_it_and_so_do_domains_that_differ():
    close = predict_next_domain([0.80, 0.82, 0.81], [2000] * 3)
    assert predict_next_domain([0.80, 0.82, 0.81], [30] * 3).width > close.width
    assert predict_next_domain([0.60, 0.95, 0.81], [2000] * 3).width > close.width
    assert close.rows_alone < close.width < 0.5


def test_a_domain_of_few_rows_says_less_than_one_of_many():
    """The odd one out moves the center less where it has few rows."""
    many, few = (predict_next_domain([0.8, 0.8, 0.8, 0.4], [1000, 1000, 1000, rows]) for rows in (1000, 5))
    assert few.low > many.low


def test_one_more_domain_is_expected_to_narrow_it():
    for scores in ([0.7], [0.7, 0.8, 0.9]):
        found = predict_next_domain(scores, [500] * len(scores))
        assert found.narrower < found.width
    assert predict_next_domain([0.7], [500]).differ is None


def test_the_width_with_one_more_domain_is_the_mean_over_its_possible_scores():
    scores, rows = [0.7, 0.8, 0.9], [500, 400, 600]
    y = [SHARE.move(p, n) for p, n in zip(scores, rows, strict=True)]
    pooled = sum(p * n for p, n in zip(scores, rows, strict=True)) / 1500
    middle = (500 * pooled + 0.5) / 501  # of all rows together, as if of one domain
    noise = [1 / ((n + 1) * middle * (1 - middle)) for n in rows]
    ahead = 1 / (501 * middle * (1 - middle))
    widths = []
    for next_y in find_quantiles(y, noise, ahead, SHARE.prior, [(i + 0.5) / 9 for i in range(9)]):
        share = (501 / (1 + math.exp(-next_y)) - 0.5) / 500
        found = predict_next_domain([*scores, min(1.0, max(0.0, share))], [*rows, 500])
        widths.append(found.width)
    assert predict_next_domain(scores, rows).narrower == pytest.approx(np.mean(widths), rel=1e-6)


def test_every_criterion_has_an_interval_around_its_scores_and_within_its_bounds():
    for name, unit in CRITERIA.items():
        found = predict_next_domain([0.30, 0.35, 0.4], [300] * 3, name)
        assert found.low < 0.35 < found.high, name
        if unit.factor == 100 and name != "r2":
            assert 0 <= found.low < found.high <= 1, name
    assert predict_next_domain([1.0, 1.0], [50, 50]).high <= 1
    assert predict_next_domain([0.0, 0.0], [50, 50]).low >= 0


@pytest.mark.parametrize("criterion", ["accuracy", "log_loss", "rmse", "mae", "r2", "pearson"])
def test_moving_a_score_to_its_scale_and_back_gives_it_again(criterion):
    scale = get_scale(criterion)
    for value in (0.2, 0.5, 0.93):
        for rows in (20, 10**9):
            assert scale.back(scale.move(value, rows), rows) == pytest.approx(value)


def test_shares_of_few_rows_come_back_exactly_and_all_rows_right_is_within_reach():
    for rows, right in ((1, 0), (1, 1), (7, 3), (60, 57), (60, 60)):
        assert SHARE.back(SHARE.move(right / rows, rows), rows) == pytest.approx(right / rows, abs=1e-12)
    assert (SHARE.back(99, 60), SHARE.back(-99, 60)) == (1, 0)
    assert predict_next_domain([0.95, 0.97, 1.0], [60] * 3).high == 1


def test_noise_is_that_of_the_pooled_score_so_that_a_lucky_domain_counts_as_much_as_any():
    """At its own score, a domain without an error would have 30 times the noise, and hardly move the center."""
    y = [SHARE.move(p, 60) for p in (0.8, 0.8, 1.0)]
    pooled = 1 / (61 * (q := (52 + 0.5) / 61) * (1 - q))
    expected = find_quantiles(y, [pooled] * 3, pooled, SHARE.prior, (0.05, 0.95))
    found = predict_next_domain([0.8, 0.8, 1.0], [60] * 3)
    assert (found.low, found.high) == pytest.approx([SHARE.back(at, 60) for at in expected])


def test_a_small_change_of_a_score_changes_it_little():
    """No jumps, also where a domain has no error left; and the order of domains makes no difference."""
    for known in ([0.9, 0.95, 1.0], [0.5, 0.75, 0.98], [0.0, 0.02, 0.03], [1.0, 1.0, 1.0]):
        base = predict_next_domain(known, [60] * 3)
        again = predict_next_domain(known[::-1], [60] * 3)
        assert (again.low, again.high) == pytest.approx((base.low, base.high), abs=1e-6)
        for i in range(3):
            for step in (-0.001, 0.001):
                moved = [min(1.0, max(0.0, v + step * (i == j))) for j, v in enumerate(known)]
                near = predict_next_domain(moved, [60] * 3)
                assert (near.low, near.high) == pytest.approx((base.low, base.high), abs=0.02)


def test_domains_without_an_error_promise_one_with_few():
    assert predict_next_domain([1.0] * 3, [60] * 3).low > 0.75
    assert predict_next_domain([1.0] * 3, [600] * 3).low > 0.97


def test_where_domains_differ_by_more_than_the_prior_allows_it_says_so():
    assert not predict_next_domain([0.7, 0.8, 0.9], [300] * 3).is_optimistic
    assert predict_next_domain([0.3, 0.8, 0.99], [300] * 3).is_optimistic
    assert not predict_next_domain([0.99], [300]).is_optimistic
    assert predict_next_domain([0.1, 1.0, 2.0], [300] * 3, "rmse").is_optimistic


def test_rows_noise_is_as_large_as_that_of_drawn_rows():
    draw, n = np.random.default_rng(0), 400
    errors = draw.standard_normal((4000, n))
    drawn = {
        "accuracy": np.log((p := draw.binomial(n, 0.8, 4000) / n) / (1 - p)),
        "rmse": np.log(np.sqrt((errors**2).mean(1))),
        "mae": np.log(np.abs(errors).mean(1)),
    }
    for criterion, values in drawn.items():
        assert get_scale(criterion).noise(math.log(4), n) == pytest.approx(values.var(), rel=0.1), criterion


@pytest.mark.parametrize("domains", [3, 8])
def test_of_simulated_domains_it_holds_the_next_as_often_as_it_says(domains):
    """Spreads drawn from the prior, accuracies from log-odds, rows from binomials: nothing but the model."""
    draw, rows, hits = np.random.default_rng(domains), 300, []
    for _ in range(200):
        tau = SHARE.prior * abs(draw.standard_t(DEGREES))
        p = 1 / (1 + np.exp(-(draw.normal(1, 0.5) + tau * draw.standard_normal(domains + 1))))
        *known, new = (draw.binomial(rows, p) / rows).tolist()
        quantiles = predict_next_domain(known, [rows] * domains)
        hits.append(quantiles.low <= new <= quantiles.high)
    assert abs(np.mean(hits) - LEVEL) < 0.065  # three standard errors


@pytest.mark.parametrize(
    ("domains", "rows", "accuracy", "spread"),
    [(3, 60, 0.6, 1.0), (3, 60, 0.95, 0.5), (3, 300, 0.8, 1.5), (6, 60, 0.95, 1.5), (3, 60, None, 0.5)],
)
def test_simulated_domains_of_a_known_spread_are_covered(script, domains, rows, accuracy, spread):
    """At least 85 % in docs/choosing.md, from far more draws; here less three standard errors."""
    cell = script("../benchmarks/accuracy/coverage").simulate(domains, rows, accuracy, spread, draws=200)
    assert cell.covered >= 85 - 7.5
    assert cell.width > 0


@pytest.mark.slow
@pytest.mark.parametrize(("domains", "said"), [(4, (83, 90, 92)), (10, (87, 89, 90))])
def test_the_scale_of_the_prior_matters_as_much_as_is_said(domains, said):
    """Domains that differ by 1, at a third of the scale, two thirds and the whole."""
    covered = []
    for share in (1 / 3, 2 / 3, 1):
        rng, held = np.random.default_rng(0), 0
        for _ in range(1000):
            *known, ahead = rng.normal(0, 1, domains + 1) + rng.normal(0, 0.1, domains + 1)
            low, high = find_quantiles(known, [0.01] * domains, 0.01, share * SHARE.prior, (0.05, 0.95))
            held += low <= ahead <= high
        covered.append(held / 10)
    assert covered == pytest.approx(said, abs=0.51)
    text = ", ".join(map(str, said[:2])) + f" and {said[2]} %"
    assert text in (next_domain.__doc__ or "")
    assert text in (Path(__file__).parents[2] / "docs" / "choosing.md").read_text(encoding="utf-8")
