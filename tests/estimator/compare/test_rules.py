"""Rules of choice on scores alone: the best, the simplest within one standard error, and leads that may be chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.bench import find_learner
from seqdg.estimator import DomainClassifier, DomainRegressor
from seqdg.estimator.compare.comparison import (
    DEFAULT,
    RULES,
    STOPPED,
    Choice,
    check_rules,
    choose,
    compare_scores,
    looks_at_held_out,
    split_rule,
)


def choose_by_the_book(scores):
    """The first candidate whose mean difference to the best is within its standard error, in loops."""
    means = [sum(s) / len(s) for s in scores]
    best = means.index(max(means))
    for i, own in enumerate(scores):
        gaps = [a - b for a, b in zip(scores[best], own, strict=True)]
        mean = sum(gaps) / len(gaps)
        error = math.sqrt(sum((g - mean) ** 2 for g in gaps) / (len(gaps) - 1)) / math.sqrt(len(gaps))
        if i == best or mean <= error:
            return i
    raise AssertionError


def test_one_standard_error_is_that_of_paired_differences():
    draw = np.random.default_rng(0)
    places = []
    for _ in range(200):
        scores = (draw.normal(0, 3, (1, 4)) + draw.normal(0, 1, (5, 4)) + draw.normal(0, 1, (5, 1))).tolist()
        choice = choose(scores, leaning="-1se")
        assert choice.index == choose_by_the_book(scores)
        plain = choose(scores, leaning="")
        assert plain.index == plain.best == choice.best == int(np.argmax(np.mean(scores, axis=1)))
        places.append(choice.index)
    assert len(set(places)) == 5


def test_a_small_gap_that_every_domain_shows_exceeds_its_error_though_domains_differ_much():
    easy_and_hard = [0.95, 0.40, 0.70]
    choice = choose([easy_and_hard, [v + 0.01 for v in easy_and_hard]], leaning="-1se")
    assert choice == Choice(1, 1, 0, pytest.approx(0.01), pytest.approx(0.0, abs=1e-9), 3)
    assert choice.exceeds_error


def test_where_every_lead_may_be_chance_the_simplest_wins():
    choice = choose([[0.60, 0.65], [0.70, 0.57]], leaning="-1se")
    assert (choice.index, choice.best, choice.exceeds_error) == (0, 1, False)
    assert choose([[0.6], [0.9]], leaning="-1se").index == 0  # one domain tells nothing
    assert choose([[0.6, 0.7], [0.6, 0.7]], leaning="").index == 0  # the simplest of those alike


def test_what_diverged_is_not_chosen_and_a_domain_without_a_score_is_left_out():
    assert choose([None, [0.5, 0.6]], leaning="-1se").index == 1
    assert choose([None, None], leaning="-1se") is None
    assert choose([[math.nan, 0.5, 0.5], [0.9, 0.6, 0.7]], leaning="-1se").lead == pytest.approx(0.15)
    assert math.isnan(compare_scores([math.nan], [0.1])[0])


def test_simple_comes_before_what_has_more_parts():
    names = ["s-mldg+mixup+ema", "fo-s-mldg", "svc", "agg+ema", "hist-gradient-boosting", "agg", "logistic"]
    ranked = sorted(names, key=lambda name: find_learner(name).rank_simplicity(name))
    assert ranked == ["logistic", "agg", "agg+ema", "svc", "hist-gradient-boosting", "fo-s-mldg", "s-mldg+mixup+ema"]


def test_rules_are_split_and_checked():
    assert split_rule("both-1se") == ("both", "-1se")
    assert split_rule("leave-one-out") == ("leave-one-out", "")
    assert [looks_at_held_out(rule) for rule in ("source-val-1se", "both", "leave-one-out-1se", STOPPED)] == [
        False, True, True, True
    ]  # fmt: skip
    assert DEFAULT in RULES
    check_rules(DEFAULT, ("oracle", *RULES))
    with pytest.raises(UsageError, match=f"oracle chooses by the held-out domain.*: use {DEFAULT}"):
        check_rules("oracle", ())
    with pytest.raises(UsageError, match="There is no selection rule 'guess'"):
        check_rules(DEFAULT, ("guess",))


def test_the_command_line_follows_the_default_rule():
    from seqdg.cli.fit_commands import SELECT

    assert SELECT == DEFAULT


def test_the_command_line_names_the_algorithms_of_the_estimators():
    told = "".join(seqdg("learning-curve", "--help").stdout.split())  # lines break at hyphens too
    assert f"Default:{DomainClassifier().algorithm};forregression,{DomainRegressor().algorithm}." in told


def test_near_is_within_an_error_and_a_point():
    behind = [[0.60, 0.80, 0.70], [0.63, 0.81, 0.67]]  # by 0.003, with an error of 0.018
    assert choose(behind, leaning="-near").index == 0
    far = [[0.60, 0.80, 0.70], [0.75, 0.81, 0.68]]  # by 0.047, with an error of 0.053
    assert choose(far, leaning="-1se").index == 0
    assert choose(far, leaning="-near").index == 1
    told = [[0.600, 0.800, 0.700], [0.605, 0.805, 0.705]]  # near, but told
    assert choose(told, leaning="-near").index == 1
    errors = [[-10.3, -5.0, -8.0], [-10.0, -5.1, -7.9]]  # by 0.1 of 7.7: 1.3 %
    assert choose(errors, leaning="-near").index == 0
    assert choose([[2 * v for v in errors[0]], errors[1]], leaning="-near").index == 1
