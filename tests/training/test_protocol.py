from __future__ import annotations

import pytest
import torch

from seqdg.base.errors import UsageError
from seqdg.data import Dataset
from seqdg.training.protocol import Protocol, list_sources, split_rows


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
        ({"stpes": 3}, "Did you mean 'steps'"),
    ],
)
def test_a_bad_field_is_a_sentence(change, sentence):
    with pytest.raises(UsageError, match=sentence):
        Protocol().replace_fields(change)


def test_evaluations_end_with_the_last_step():
    assert Protocol(steps=100, evaluations=4).evaluation_steps == (25, 50, 75, 100)
    assert Protocol(steps=3, evaluations=10).evaluation_steps == (1, 2, 3)


def test_an_unknown_domain_is_named_with_the_nearest(dataset):
    with pytest.raises(UsageError, match="no domain of toy 'd'"):
        list_sources(dataset, ("d",))
