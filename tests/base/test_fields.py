"""Fields added later are left out of a description while they are as before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from seqdg.base import added_field, describe_fields, read_fields, restore_fields


@dataclass(frozen=True)
class Old:
    steps: int = 10
    lr: float = 0.1


@dataclass(frozen=True)
class New:
    steps: int = 10
    lr: float = 0.1
    schedule: str = added_field("constant")
    dropout: bool = added_field(True, before=False)


def test_a_field_that_was_added_is_left_out_while_it_is_as_before():
    assert describe_fields(New(dropout=False)) == describe_fields(Old())
    assert describe_fields(New(schedule="cosine", dropout=False)) == {**describe_fields(Old()), "schedule": "cosine"}


def test_a_default_that_is_not_as_before_is_described():
    assert describe_fields(New()) == {"steps": 10, "lr": 0.1, "dropout": True}


def test_a_description_without_the_field_means_as_before_and_not_the_default():
    assert New(**restore_fields(New, describe_fields(Old()))) == New(dropout=False)
    for new in (New(), New(schedule="cosine"), New(dropout=False), replace(New(), steps=3)):
        assert New(**restore_fields(New, describe_fields(new))) == new


def test_a_table_may_set_an_added_field_like_any_other():
    assert read_fields(New, {"schedule": "cosine"}, "a table") == {"schedule": "cosine"}
