"""One table with a domain column and a label column, or three arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

from seqdg.base import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset, make_dataset


def columns(n=12):
    draws = np.random.default_rng(0)
    return {
        "age": draws.normal(size=n),
        "city": np.array(["rome", "oslo", "lima"])[np.arange(n) % 3],
        "dose": draws.integers(0, 9, n),
        "ill": np.array(["no", "yes"])[np.arange(n) // 3 % 2],
        "name": np.array([f"p{i}" for i in range(n)]),
    }


def write(path, values):
    table = pa.table(values)
    (csv.write_csv if path.suffix == ".csv" else parquet.write_table)(table, path)


def spec(path="t.csv", **options):
    given = {"domain_column": "city", "label_column": "ill", "ignore": ("name",)} | options
    return DataSpec("mine", path=(path,), **given)


def problems(root, **options):
    return "\n".join(check_dataset(spec(**options), root).problems)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_table_is_split_into_its_domains(tmp_path, name):
    values = columns()
    write(tmp_path / name, values)
    data = load_dataset(spec(name), tmp_path)
    assert data.domains == ("lima", "oslo", "rome")
    assert data.classes == ("no", "yes")
    want = np.column_stack([values["age"], values["dose"]])[values["city"] == "oslo"]
    np.testing.assert_allclose(data.x[data.rows("oslo")].numpy(), want, rtol=1e-6)
    assert data.y[data.rows("oslo")].tolist() == [0, 1, 0, 1]


def test_arrays_give_the_same_data_set_as_the_table(tmp_path):
    values = columns()
    write(tmp_path / "t.csv", values)
    table = load_dataset(spec(), tmp_path)
    arrays = make_dataset(np.column_stack([values["age"], values["dose"]]), values["ill"], values["city"])
    assert arrays.fingerprint == table.fingerprint
    assert torch.equal(arrays.x, table.x)


def test_numbers_serve_as_domains_and_labels(tmp_path):
    values = columns() | {"city": np.arange(12) % 3 + 9, "ill": np.arange(12) // 3 % 2 == 0}
    write(tmp_path / "t.csv", values)
    data = load_dataset(spec(), tmp_path)
    assert data.domains == ("9", "10", "11")
    assert data.classes == ("0", "1")


def test_named_domains_are_kept_in_order_and_others_left_out_with_a_note(tmp_path):
    write(tmp_path / "t.csv", columns())
    data = load_dataset(spec(domains=("rome", "oslo")), tmp_path)
    assert data.domains == ("rome", "oslo")
    assert data.notes == ("4 rows of other domains left out: lima.",)
    assert "has no domain 'paris'" in problems(tmp_path, domains=("rome", "oslo", "paris"))


def test_a_validation_column_is_the_official_split(tmp_path):
    write(tmp_path / "t.csv", columns() | {"held": np.arange(12) < 6})
    data = load_dataset(spec(validation_column="held"), tmp_path)
    assert data.validation.tolist() == [True, True, False, False] * 3


def test_dictionary_columns_are_read_as_text(tmp_path):
    values = columns()
    city = pa.array(values["city"].tolist()).dictionary_encode()
    parquet.write_table(pa.table({**values, "city": city}), tmp_path / "t.parquet")
    assert load_dataset(spec("t.parquet"), tmp_path).domains == ("lima", "oslo", "rome")


def test_an_unknown_column_is_named_with_the_nearest_one(tmp_path):
    write(tmp_path / "t.csv", columns())
    assert "t.csv has no column 'citi'. Did you mean 'city'?" in problems(tmp_path, domain_column="citi")


def test_text_among_the_features_is_wrong(tmp_path):
    write(tmp_path / "t.csv", columns() | {"note": np.array(["x"] * 12)})
    said = problems(tmp_path, ignore=())
    assert said == (
        "t.csv has columns that are not numbers: name, note; name them in `categories`, `text` or `ignore`, or make "
        "numbers of them."
    )


def test_empty_cells_are_wrong_wherever_they_are(tmp_path):
    write(tmp_path / "t.csv", columns())
    lines = (tmp_path / "t.csv").read_text().splitlines()
    lines[1] = ",".join(["", *lines[1].split(",")[1:]])
    lines[2] = ",".join([*lines[2].split(",")[:3], '""', '"p1"'])
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    said = problems(tmp_path)
    assert "The column 'ill' has 1 empty cell: fill in every one." in said
    assert "rome has 1 of 4 rows with NaN or infinite features (counted from 0: 0)" in said


def test_labels_that_are_none_of_the_classes_are_wrong(tmp_path):
    write(tmp_path / "t.csv", columns())
    assert "oslo has labels that are none of the classes: yes." in problems(tmp_path, classes=("no", "maybe"))


def test_a_table_without_features_is_wrong(tmp_path):
    write(tmp_path / "t.csv", columns())
    assert "t.csv has no column of features." in problems(tmp_path, ignore=("name", "age", "dose"))


def test_arrays_of_different_length_are_wrong():
    with pytest.raises(UsageError, match=r"shapes \[3, 2\], \[2\] and \[3\]"):
        make_dataset(np.zeros((3, 2)), [0, 1], ["a", "b", "c"])


def test_a_format_is_told_from_the_path(tmp_path, rows):
    write(tmp_path / "t.csv", columns())
    named, guessed = check_dataset(spec(format="table"), tmp_path), check_dataset(spec(), tmp_path)
    assert (named.fingerprint, named.format()) == (guessed.fingerprint, guessed.format())
    as_features = check_dataset(spec(format="features"), tmp_path)
    assert (as_features.fingerprint, as_features.format()) == (guessed.fingerprint, guessed.format())


def test_a_domain_may_be_a_date(tmp_path):
    days = pa.array(np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]")[np.arange(12) % 3])
    write(tmp_path / "t.parquet", columns() | {"city": days})
    assert load_dataset(spec("t.parquet"), tmp_path).domains == ("2020-01-01", "2021-01-01", "2022-01-01")


def test_numbers_too_long_to_tell_apart_are_wrong_as_domains(tmp_path):
    write(tmp_path / "t.csv", columns() | {"city": np.arange(12) % 3 + 2**53})
    assert "The column 'city' has numbers of more than 15 digits" in problems(tmp_path)


def test_two_columns_of_one_name_are_wrong(tmp_path):
    (tmp_path / "t.csv").write_text("city,ill,name,age,age\nrome,yes,p,1,2\n")
    assert "has two columns 'age': rename one." in problems(tmp_path)


def test_how_a_table_is_written_is_told_from_it_and_noted(tmp_path):
    write(tmp_path / "t.csv", columns())
    want = load_dataset(spec(), tmp_path)
    assert want.notes == ()
    text = (tmp_path / "t.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace(",", ";").replace(".", ","), encoding="utf-16")
    data = load_dataset(spec(), tmp_path)
    assert data.fingerprint == want.fingerprint
    assert data.notes == ("t.csv is read as utf-16 and has semicolons between its columns and has decimal commas.",)
