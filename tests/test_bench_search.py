"""What `seqdg bench --search N` plans."""

from __future__ import annotations

import pytest

from seqdg.bench import capacity
from seqdg.benchmark import Choice, load_benchmark, plan
from seqdg.data import rotated_mnist
from seqdg.errors import UsageError
from seqdg.trial import group


@pytest.fixture(scope="module")
def planned():
    benchmark, dataset = load_benchmark("rotated-mnist"), rotated_mnist.load()

    def trials(**choice):
        return plan(
            benchmark, dataset, Choice(algorithms=["agg", "fo-s-mldg"], held_out=["0", "75"], trials=2, **choice)
        )

    return trials


def test_every_trial_of_an_algorithm_has_the_same_candidates_the_first_as_it_is(planned):
    plain, searched = planned(), planned(search=4)
    assert {t.key for t in plain} <= {t.key for t in searched}
    by_case = {}
    for trial in (t for t in searched if t.algorithm == "fo-s-mldg"):
        by_case.setdefault((trial.held_out, trial.seed), []).append(trial.settings)
    assert len(by_case) == 4
    assert len({tuple(settings) for settings in by_case.values()}) == 1
    assert len(set(next(iter(by_case.values())))) == 4
    assert len([t for t in searched if t.algorithm == "agg"]) == 4  # it has nothing to search


def test_a_wider_search_begins_with_the_narrower_one_and_another_seed_draws_others(planned):
    few, many = ({t.key for t in planned(search=n)} for n in (3, 6))
    assert few < many
    settings = [{t.settings for t in planned(search=3, seed=s)} for s in (0, 1)]
    assert len(settings[0] & settings[1]) == 2  # of each algorithm, the first


def test_candidates_share_stacks(planned):
    trials = [t for t in planned(search=4) if t.algorithm == "fo-s-mldg"]
    assert len(group(trials, capacity(10_000, rotated_mnist.load(), "cpu"))) == 1


def test_what_the_user_sets_is_not_searched(planned):
    trials = planned(search=4, settings=["fo-s-mldg.alpha=0.2"])
    alphas = {dict(t.settings)["alpha"] for t in trials if t.algorithm == "fo-s-mldg"}
    assert alphas == {"0.2"}
    with pytest.raises(UsageError, match="0 candidates were asked for"):
        planned(search=0)
