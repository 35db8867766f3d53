from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from seqdg.base import UsageError
from seqdg.core import Algorithm, build
from seqdg.data import Dataset, derive
from seqdg.training import (
    Protocol,
    count_steps,
    end_stages,
    list_evaluation_steps,
    list_sources,
    split_rows,
)


@pytest.fixture
def dataset():
    domain = torch.tensor([0] * 10 + [1] * 20 + [2] * 30)
    validation = torch.arange(60) % 5 == 0
    return Dataset("toy", ("a", "b", "c"), ("x", "y"), torch.randn(60, 3), domain % 2, domain, "f", validation)


def test_rows_of_a_trial_never_meet(dataset):
    parts = split_rows(dataset, Protocol(validation=0.3), ("b",), seed=4)
    assert [len(r) for r in parts.train] == [7, 21]
    assert [len(r) for r in parts.validation] == [3, 9]
    assert torch.equal(parts.test[0], dataset.rows("b"))
    every = torch.cat([*parts.train, *parts.validation, *parts.test])
    assert len(every) == len(set(every.tolist())) == 60


def test_a_domain_is_split_alike_whatever_is_held_out_and_otherwise_with_another_seed(dataset):
    without_a, without_b = (split_rows(dataset, Protocol(), (name,), seed=1) for name in ("a", "b"))
    assert torch.equal(without_a.validation[1], without_b.validation[1])
    other = split_rows(dataset, Protocol(), ("a",), seed=2)
    assert not torch.equal(without_a.validation[1], other.validation[1])


def test_the_test_rows_of_a_split_domain_are_its_validation_rows(dataset):
    parts = split_rows(dataset, Protocol(test="split"), ("c",), seed=0)
    as_source = split_rows(dataset, Protocol(test="split"), ("a",), seed=0)
    assert torch.equal(parts.test[0], as_source.validation[1])


def test_the_official_split_is_taken_where_it_is_asked_for(dataset):
    parts = split_rows(dataset, Protocol(split="official"), ("a",), seed=0)
    assert dataset.validation[torch.cat(parts.validation)].all()
    assert not dataset.validation[torch.cat(parts.train)].any()
    bare = Dataset("toy", ("a", "b"), ("x",), torch.zeros(4, 1), torch.zeros(4).long(), torch.tensor([0, 0, 1, 1]), "f")
    with pytest.raises(UsageError, match="no official split"):
        split_rows(bare, Protocol(split="official"), ("a",), 0)


def test_two_domains_can_be_held_out(dataset):
    assert list_sources(dataset, ("a", "c")) == ("b",)
    assert len(split_rows(dataset, Protocol(), ("a", "c"), 0).test) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": 0}, "steps is 0, but at least 1"),
        ({"batch": 0}, "batch is 0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"validation": 1.0}, "validation is 1.0"),
        ({"split": "offical"}, "Did you mean 'official'"),
        ({"optimizer": "adm"}, "Did you mean 'adam'"),
    ],
)
def test_a_bad_field_is_a_sentence(change, sentence):
    with pytest.raises(UsageError, match=sentence):
        replace(Protocol(), **change)


def test_evaluations_end_with_the_last_step():
    assert list_evaluation_steps(build("agg"), Protocol(steps=100, evaluations=4)) == (25, 50, 75, 100)
    assert list_evaluation_steps(build("agg"), Protocol(steps=3, evaluations=10)) == (1, 2, 3)


@dataclass(frozen=True)
class Staged(Algorithm):
    """Some stages."""

    shares: tuple[float, ...]

    def stages(self):
        return tuple((share, self) for share in self.shares)


def test_stages_that_sum_above_one_come_on_top_and_evaluations_lie_in_the_last_steps():
    protocol = Protocol(steps=100, evaluations=4)
    for shares, bounds, evaluations in (
        ((0.2, 0.8), [20, 100], (25, 50, 75, 100)),
        ((1.0, 1.0), [100, 200], (125, 150, 175, 200)),
        ((0.25, 1.0), [25, 125], (50, 75, 100, 125)),
    ):
        assert end_stages(Staged(shares), 100) == bounds
        assert count_steps(Staged(shares), protocol) == bounds[-1]
        assert list_evaluation_steps(Staged(shares), protocol) == evaluations


def test_stages_that_leave_steps_over_are_refused():
    with pytest.raises(
        UsageError, match=r"The stages of Staged take 0\.75 of the steps, but they must take all of them"
    ):
        end_stages(Staged((0.5, 0.25)), 100)


def test_an_unknown_domain_is_named_with_the_nearest(dataset):
    with pytest.raises(UsageError, match="toy has no domain 'd'"):
        list_sources(dataset, ("d",))


def test_a_domain_is_split_once_for_all_trials_that_split_it_alike(dataset, monkeypatch):
    one, two, last = dataset.domains
    first = split_rows(dataset, Protocol(), (one,), 7)
    assert split_rows(dataset, Protocol(lr=0.5), (two,), 7).train[-1] is first.train[-1]
    assert split_rows(dataset, Protocol(), (one,), 8).train[-1] is not first.train[-1]
    assert len(split_rows(dataset, Protocol(validation=0.5), (one,), 7).train[-1]) < len(first.train[-1])
    monkeypatch.setattr("seqdg.training.splits.REMEMBERED", 3)
    for seed in range(5):
        split_rows(dataset, Protocol(), (last,), seed)
    assert len(derive(dataset, "splits", dict)) == 3
