"""Settings to try: on a grid, at random, or by Optuna."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

import seqdg
from seqdg.base import UsageError
from seqdg.bench.search import Fixed, Optuna, Proposal, draw_proposals, draw_variants, list_ranges, make_grid
from seqdg.core import Algorithm, Range, describe_shape, flatten_settings, setting


@dataclass(frozen=True)
class Searched(Algorithm):
    """Of every kind of setting."""

    rate: float = setting(0.1, search=Range(1e-3, 1.0))
    share: float = setting(0.5, search=Range(0.0, 1.0, log=False))
    depth: int = setting(3, search=Range(1, 5, log=False))
    kind: str = setting("a", choices=("a", "b"), search=("a", "b"))
    left: float = setting(2.0)
    each: tuple = setting(0.1, per_position=True, search=Range(0.5, 2.0))


def test_the_first_candidate_is_the_algorithm_as_it_is_and_more_of_them_begin_with_the_same():
    few, many = draw_variants(Searched(), 3, seed=1), draw_variants(Searched(), 8, seed=1)
    assert few[0] == Searched()
    assert many[:3] == few
    assert len(set(many)) == 8
    assert draw_variants(Searched(), 3, seed=2)[1:] != few[1:]


def test_draws_lie_in_their_ranges_and_follow_their_scales():
    drawn = [flatten_settings(c) for c in draw_variants(Searched(each=(1.0, 1.0)), 400)[1:]]
    rates = np.array([d["rate"] for d in drawn])
    assert rates.min() >= 1e-3
    assert rates.max() <= 1.0
    assert np.median(rates) == pytest.approx(math.sqrt(1e-3), rel=0.5)
    assert np.median([d["share"] for d in drawn]) == pytest.approx(0.5, abs=0.1)
    assert {d["depth"] for d in drawn} == {1, 2, 3, 4, 5}
    assert {type(d["depth"]) for d in drawn} == {int}
    assert {d["kind"] for d in drawn} == {"a", "b"}
    assert {d["left"] for d in drawn} == {2.0}
    assert all(len(d["each"]) == 2 and d["each"][0] != d["each"][1] for d in drawn)


def test_candidates_that_differ_in_numbers_share_a_stack():
    assert len({describe_shape(c) for c in draw_variants(seqdg.build("fo-s-mldg", alpha=(0.1, 0.2)), 20)}) == 1


def test_what_is_fixed_or_has_no_range_is_not_searched():
    assert {flatten_settings(c)["rate"] for c in draw_variants(Searched(rate=0.2), 9, fixed=["rate"])} == {0.2}
    assert draw_variants(seqdg.build("agg"), 9) == (seqdg.build("agg"),)
    with pytest.raises(UsageError, match="0 candidates were asked for"):
        draw_variants(Searched(), 0)


def test_what_means_nothing_along_a_path_is_not_searched_there():
    assert list_ranges(seqdg.build("fishr")).keys() == {"lam", "keep", "anneal"}
    assert list_ranges(seqdg.build("s-fishr")).keys() == {"lam", "anneal"}
    assert list_ranges(seqdg.build("s-fishr+ema")).keys() == {"lam", "anneal", "decay"}


def test_a_grid_has_every_combination():
    found = make_grid(seqdg.build("fo-s-mldg"), {"alpha": [0.1, (0.1, 0.3)], "beta": [1.0, 2.0]})
    assert [(flatten_settings(a)["alpha"], flatten_settings(a)["beta"]) for a in found] == [
        (0.1, 1.0), (0.1, 2.0), ((0.1, 0.3), 1.0), ((0.1, 0.3), 2.0),
    ]  # fmt: skip
    assert make_grid(seqdg.build("agg"), {}) == (seqdg.build("agg"),)
    with pytest.raises(UsageError, match="The grid gives no value for alpha"):
        make_grid(seqdg.build("fo-s-mldg"), {"alpha": []})
    with pytest.raises(UsageError, match="Sequential has no setting 'gamma'"):
        make_grid(seqdg.build("fo-s-mldg"), {"gamma": 1})


def test_fixed_candidates_are_asked_for_once_per_target():
    one, other = Proposal(Searched(), 0.1), Proposal(Searched(rate=0.5), 0.1)
    search = Fixed([one, Proposal(Searched(), 0.1), other])
    assert search.ask(()) == (one, other)
    assert search.ask(()) == ()
    assert len(search.ask(("north",))) == 2


def run(search: Optuna, target: tuple[str, ...], best: float) -> list[float]:
    tried = []
    while asked := search.ask(target):
        for proposal in asked:
            rate = flatten_settings(proposal.algorithm)["rate"]
            tried.append(rate)
            search.tell(target, proposal, None if rate > 0.9 else -((math.log(rate) - math.log(best)) ** 2))
    return tried


def test_optuna_starts_with_the_algorithm_as_it_is_and_closes_in_on_what_is_good():
    pytest.importorskip("optuna")
    tried = run(Optuna(Proposal(Searched(), 0.1), 64, seed=0), (), best=0.01)
    assert len(tried) == 64
    assert tried[0] == 0.1
    early, late = (np.median(np.abs(np.log(np.array(part) / 0.01))) for part in (tried[1:20], tried[-20:]))
    assert late < early


def test_optuna_is_repeatable_and_learns_for_each_target_by_itself():
    pytest.importorskip("optuna")
    alone = run(Optuna(Proposal(Searched(), 0.1), 24, seed=0), ("north",), best=0.01)
    both = Optuna(Proposal(Searched(), 0.1), 24, seed=0)
    assert run(both, ("south",), best=0.5) != alone
    assert run(both, ("north",), best=0.01) == alone


def test_optuna_searches_the_learning_rate_of_what_has_no_range():
    pytest.importorskip("optuna")
    search = Optuna(Proposal(seqdg.build("agg"), 0.1), 10)
    asked = [*search.ask(()), *search.ask(())]
    assert asked[0] == Proposal(seqdg.build("agg"), 0.1)
    assert len({p.lr for p in asked}) == 10
    assert all(0.01 <= p.lr <= 0.2 for p in asked)
    fixed = Optuna(Proposal(seqdg.build("agg"), 0.1), 10, fixed=["lr"])
    assert [*fixed.ask(()), *fixed.ask(())] == [Proposal(seqdg.build("agg"), 0.1)]


def test_every_algorithm_has_as_many_proposals_unless_all_is_fixed():
    for name in ("agg", "fo-s-mldg"):
        found = draw_proposals(Proposal(seqdg.build(name), 0.1), 5)
        assert len(set(found)) == len({p.lr for p in found}) == 5
        assert found[:3] == draw_proposals(Proposal(seqdg.build(name), 0.1), 3)
        assert found[0] == Proposal(seqdg.build(name), 0.1)
    assert len(draw_proposals(Proposal(seqdg.build("agg"), 0.1), 5, fixed=["lr"])) == 1
    kept = draw_proposals(Proposal(seqdg.build("fo-s-mldg"), 0.1), 5, fixed=["lr"])
    assert (len(kept), {p.lr for p in kept}) == (5, {0.1})
