"""Columns that divide rows in another way than the domain: fixed splits and groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from seqdg.base import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset
from seqdg.data.domain_rows import Contents


def columns(n=24):
    draws = np.random.default_rng(0)
    return {
        "age": draws.normal(size=n),
        "city": np.array(["rome", "oslo", "lima", "kiev"])[np.arange(n) % 4],
        "ill": np.array(["no", "yes"])[np.arange(n) // 4 % 2],
        "region": np.array(["south", "north", "west"])[np.arange(n) // 3 % 3],
        "part": np.array(["train", "train", "val", "test"])[np.arange(n) % 4],
    }


def spec(**options):
    given = {"domain_column": "city", "label_column": "ill", "group_column": "region", "split_column": "part"}
    return DataSpec("mine", path=("t.csv",), **given | options)


def load(root, values, **options):
    csv.write_csv(pa.table(values), root / "t.csv")
    return load_dataset(spec(**options), root)


def problems(root, values, **options):
    csv.write_csv(pa.table(values), root / "t.csv")
    return check_dataset(spec(**options), root).problems


def test_a_split_column_gives_each_domain_its_part(tmp_path):
    data = load(tmp_path, columns())
    assert dict(zip(data.domains, data.parts, strict=True)) == {
        "kiev": "test", "lima": "validation", "oslo": "train", "rome": "train",
    }  # fmt: skip
    assert data.validation is None
    assert data.x.shape == (24, 1)


def test_rows_called_id_val_are_the_official_validation_rows_and_id_test_rows_are_left_out(tmp_path):
    values = columns()
    values["part"] = values["part"].astype(object)
    values["part"][[0, 4]], values["part"][1] = "id_val", "id_test"
    data = load(tmp_path, values)
    rome, oslo = data.rows("rome"), data.rows("oslo")
    assert data.validation[rome].tolist() == [True, True, False, False, False, False]
    assert len(oslo) == 5
    assert not data.validation[oslo].any()
    assert "1 row called id_test left out." in data.notes
    assert data.x[rome][:, 0].numpy() == pytest.approx(values["age"][::4])


def test_a_domain_in_two_parts_is_refused_in_one_sentence(tmp_path):
    values = columns() | {"part": np.array(["train", "train", "val", "test"] * 5 + ["test", "train", "val", "test"])}
    (found,) = problems(tmp_path, values)
    assert found == (
        "The split column puts rows of the domain 'rome' into train and test, but a domain is in one part of a fixed "
        "split: call rows that validate within a train domain id_val."
    )


def test_words_that_name_no_part_and_empty_cells_are_refused(tmp_path):
    values = columns()
    values["part"] = values["part"].astype(object)
    values["part"][0], values["part"][4] = "dev", ""
    assert problems(tmp_path, values) == (
        "The split column has 1 empty cell: write train, validation, test (or val), id_val or id_test.",
        "The split column holds dev: write train, validation, test (or val), id_val or id_test.",
    )


def test_a_train_domain_without_id_val_rows_is_fine_and_one_of_id_val_rows_alone_is_not(tmp_path):
    values = columns()
    values["part"] = values["part"].astype(object)
    values["part"][::4] = "id_val"
    assert problems(tmp_path, values) == ("The official split leaves rome no rows to train on.",)


def test_a_split_and_a_validation_column_are_one_too_many():
    with pytest.raises(UsageError, match="split_column and validation_column both say which rows validate"):
        spec(validation_column="held")


def test_groups_travel_with_the_rows_and_are_part_of_the_fingerprint(tmp_path):
    values = columns()
    data = load(tmp_path, values)
    assert data.groups == ("north", "south", "west")
    for name in data.domains:
        named = [data.groups[g] for g in data.group[data.rows(name)]]
        assert named == values["region"][values["city"] == name].tolist()
    plain = load(tmp_path, {k: v for k, v in values.items() if k != "region"}, group_column="")
    assert plain.group is None
    assert plain.groups == ()
    other = load(tmp_path, values | {"region": np.roll(values["region"], 1)})
    assert len({data.fingerprint, plain.fingerprint, other.fingerprint}) == 3


def test_a_split_column_changes_no_fingerprint(tmp_path):
    values = columns()
    plain = load(tmp_path, {k: v for k, v in values.items() if k != "part"}, split_column="")
    assert load(tmp_path, values).fingerprint == plain.fingerprint
    assert plain.parts == ()


def test_the_domain_may_be_the_group(tmp_path):
    data = load(tmp_path, columns() | {"region": np.arange(24)}, group_column="city", ignore=("region",))
    assert data.groups == data.domains
    assert data.group.equal(data.domain)


def test_rows_that_are_dropped_take_their_groups_along(tmp_path):
    values = columns()
    data = load(tmp_path, values, classes=("yes",), drop_other_labels=True)
    assert [data.groups[g] for g in data.group[data.rows("rome")]] == values["region"][4::8].tolist()


@pytest.mark.parametrize("empty", ["", None])
def test_a_group_column_with_gaps_is_refused_in_one_sentence(tmp_path, empty):
    values = columns()
    values["region"] = values["region"].astype(object)
    values["region"][[3, 7]] = empty
    assert problems(tmp_path, values) == (
        "The group column has 2 empty cells: fill in every one, or leave group_column out.",
    )


def test_groups_of_numbers_are_in_the_order_of_the_numbers():
    contents = Contents((), (), np.empty(0), np.empty(0, np.int64))
    contents.set_groups(np.array([10.0, 9.0, 10.0]))
    assert (contents.groups, contents.group.tolist(), contents.problems) == (("9", "10"), [1, 0, 1], [])


def test_parts_are_read_whatever_their_case_and_order():
    contents = Contents(("a", "b", "c"), (), np.empty(4), np.array([2, 0, 0, 1]))
    assert contents.divide(np.array(["Test ", "ID_val", "TRAIN", "validation"])).all()
    assert contents.parts == ("train", "validation", "test")
    assert contents.validation.tolist() == [False, True, False, False]
    assert not contents.problems
