"""What `seqdg bench --search N` plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import seqdg
from seqdg.base import UsageError
from seqdg.bench import STACK, Request, load_benchmark
from seqdg.bench.planning import count_together
from seqdg.bench.task import group_trials
from seqdg.data import rotated_mnist

BOTH = ["agg", "fo-s-mldg"]


@pytest.fixture(scope="module")
def planned():
    benchmark = load_benchmark("rotated-mnist")

    def trials(algorithms=BOTH, lr_search=None, **choice):
        own = benchmark if lr_search is None else replace(benchmark, lr_search=lr_search)
        request = Request(algorithms=algorithms, held_out=["0", "75"], trials=2, **choice)
        return own.plan(own.make_task(), request).trials

    return trials


def tried(trials, name):
    """The candidates of an algorithm: settings with a learning rate, in order."""
    return list(dict.fromkeys((t.settings, t.protocol.lr) for t in trials if t.algorithm == name))


def test_every_trial_of_an_algorithm_has_the_same_candidates_the_first_as_it_is(planned):
    plain, searched = planned(), planned(search=4)
    assert {t.key for t in plain} <= {t.key for t in searched}
    for name in BOTH:
        by_case = {}
        for trial in (t for t in searched if t.algorithm == name):
            by_case.setdefault((trial.held_out, trial.seed), []).append((trial.settings, trial.protocol.lr))
        assert len(by_case) == 4
        assert len({tuple(candidates) for candidates in by_case.values()}) == 1
        assert tried(searched, name)[0] == tried(plain, name)[0]


def test_every_algorithm_has_as_many_candidates_and_the_same_multiples_of_its_learning_rate(planned):
    trials = planned(algorithms=list(seqdg.list_algorithms()), search=5)
    multiples = []
    for name in seqdg.list_algorithms():
        assert len(tried(trials, name)) == 5
        rates = np.array([lr for _, lr in tried(trials, name)])
        assert len(set(rates)) == 5
        multiples.append(rates / rates[0])
    np.testing.assert_allclose(multiples, np.broadcast_to(multiples[0], (len(multiples), 5)))


def test_learning_rates_are_log_uniform_from_a_fifth_to_five_times_the_benchmarks_or_as_it_says(planned):
    rates = np.array([lr for _, lr in tried(planned(algorithms=["agg"], search=300), "agg")]) / 0.2
    assert rates.min() >= 0.1
    assert rates.max() <= 2.0
    assert (rates < 0.12).any()
    assert (rates > 1.7).any()
    assert np.median(np.log(rates)) == pytest.approx(np.log(0.1 * 2.0) / 2, abs=0.2)
    narrow = np.array([lr for _, lr in tried(planned(algorithms=["agg"], search=50, lr_search=(1.0, 2.0)), "agg")])
    assert narrow.min() >= 0.2
    assert narrow.max() <= 0.4


@pytest.mark.parametrize("wrong", [(0.0, 1.0), (2.0, 1.0), (1.0,), (1.0, float("inf"))])
def test_a_range_of_learning_rates_that_is_none_is_refused(planned, wrong):
    with pytest.raises(UsageError, match="lr_search in"):
        planned(lr_search=wrong)


def test_a_benchmark_file_can_say_between_which_multiples_rates_are_drawn(tmp_path):
    text = '[data]\npath = "x"\n[net]\nname = "mlp"\n[protocol]\nlr_search = {}\n'
    (tmp_path / "mine.toml").write_text(text.format("[0.5, 2]"))
    assert load_benchmark(str(tmp_path / "mine.toml")).lr_search == (0.5, 2)
    (tmp_path / "mine.toml").write_text(text.format('["low", "high"]'))
    with pytest.raises(UsageError, match=r"'lr_search' in the .* must be a list of numbers"):
        load_benchmark(str(tmp_path / "mine.toml"))


def test_a_wider_search_begins_with_the_narrower_one(planned):
    for name in BOTH:
        few, many = (tried(planned(search=n), name) for n in (3, 6))
        assert many[:3] == few


def test_the_seed_of_the_first_trial_does_not_change_the_candidates(planned):
    assert tried(planned(search=3), "fo-s-mldg") == tried(planned(search=3, seed=7), "fo-s-mldg")


def test_candidates_share_stacks(planned):
    trials = [t for t in planned(search=4) if t.algorithm == "fo-s-mldg"]
    task = load_benchmark("rotated-mnist").make_task()
    together = count_together(10_000, rotated_mnist.load(), "cpu")
    assert len(group_trials(trials, together, lambda trial: STACK.share(trial, task))) == 1


def test_what_the_user_sets_is_not_searched(planned):
    trials = planned(search=4, settings=["fo-s-mldg.alpha=0.2", "agg.lr=0.1"])
    alphas = {dict(t.settings)["alpha"] for t in trials if t.algorithm == "fo-s-mldg"}
    assert alphas == {"0.2"}
    assert len(tried(trials, "fo-s-mldg")) == 4
    assert tried(trials, "agg") == [((), 0.1)]  # nothing is left to search
    with pytest.raises(UsageError, match="0 candidates were asked for"):
        planned(search=0)


def test_no_trial_is_planned_twice(planned):
    trials = planned(algorithms=["undo-bias"], search=12, settings=["undo-bias.lr=0.1", "undo-bias.lam=1"])
    assert len({t.key for t in trials}) == len(trials)
