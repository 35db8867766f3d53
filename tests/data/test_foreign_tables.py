"""Tables that are no plain .csv or .parquet: ARFF, .data, tabs, gzip, Excel; separators, missing values, names."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from seqdg.base import UsageError
from seqdg.data import DataSpec, TableFormat, check_dataset, load_dataset, open_table, open_writer

ROWS = [("a", 1.5, "yes"), ("b", 2.0, "no"), ("a", 3.0, "no"), ("b", 4.5, "yes")]
ARFF = """@relation toy
@attribute site {a,b}
@attribute dose numeric
@attribute ill {yes,no}
@data
a,1.5,yes
b,2,no
a,3,no
b,4.5,yes
"""


def write(path, separator=",", header=True, rows=ROWS):
    lines = [separator.join(map(str, row)) for row in ([("site", "dose", "ill")] if header else []) + rows]
    text = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def spec(name, **options):
    return DataSpec("toy", path=(name,), domain_column="site", label_column="ill", **options)


@pytest.mark.parametrize(
    ("name", "separator", "header", "options"),
    [
        ("t.csv", ",", True, {}),
        ("t.csv.gz", ",", True, {}),
        ("t.tsv", "\t", True, {}),
        ("t.tsv.gz", "\t", True, {}),
        ("t.tab", "\t", True, {}),
        ("t.csv", ";", True, {"separator": ";"}),
        ("t.csv", "   ", True, {"separator": " "}),
        ("t.data", ", ", False, {"columns": ("site", "dose", "ill")}),
        ("t.data", "  ", False, {"columns": ("site", "dose", "ill")}),
        ("t.data", "\t", False, {"columns": ("site", "dose", "ill")}),
        ("t.data.gz", ",", False, {"columns": ("site", "dose", "ill")}),
        ("t.data", ",", True, {}),
    ],
)
def test_every_kind_of_text_table_gives_the_same_data_set(tmp_path, name, separator, header, options):
    write(tmp_path / name, separator, header)
    write(tmp_path / "plain.csv")
    data, plain = load_dataset(spec(name, **options), tmp_path), load_dataset(spec("plain.csv"), tmp_path)
    assert data.fingerprint == plain.fingerprint
    assert data.x.flatten().tolist() == [1.5, 3.0, 2.0, 4.5]
    assert data.classes == ("no", "yes")


def test_an_arff_file_gives_the_same_data_set(tmp_path):
    (tmp_path / "t.arff").write_text(ARFF)
    write(tmp_path / "plain.csv")
    assert load_dataset(spec("t.arff"), tmp_path).fingerprint == load_dataset(spec("plain.csv"), tmp_path).fingerprint


def test_a_question_mark_in_an_arff_file_is_a_missing_value(tmp_path):
    (tmp_path / "t.arff").write_text(ARFF.replace("b,2,no", "?,?,no"))
    frame = open_table(tmp_path / "t.arff").read()
    assert frame.columns[0].tolist() == ["a", None, "a", "b"]
    np.testing.assert_array_equal(frame.columns[1], [1.5, np.nan, 3, 4.5])


def test_text_that_stands_for_a_missing_value_is_named(tmp_path):
    for name in ("t.csv", "t.data"):
        write(tmp_path / name, rows=[("a", "low", "yes"), ("b", 2.0, "-9")])
        frame = open_table(tmp_path / name, TableFormat(na=("low", "-9"))).read()
        np.testing.assert_array_equal(frame.columns[1], [np.nan, 2])
        assert frame.columns[2].tolist() == ["yes", None]
        assert open_table(tmp_path / name).read().columns[1].tolist() == ["low", "2.0"]
    pd.DataFrame({"w": ["x", "?"]}).to_parquet(tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet", TableFormat(na=("?",))).read().columns[0].tolist() == ["x", None]


def test_a_sheet_of_excel_is_read_or_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"PK")

    def read_excel(path, nrows=None, **options):
        return pd.DataFrame(ROWS, columns=["site", "dose", "ill"])[:nrows]

    def lack(path, **options):
        raise ImportError("Missing optional dependency 'openpyxl'")

    monkeypatch.setattr(pd, "read_excel", read_excel)
    write(tmp_path / "plain.csv")
    want = load_dataset(spec("plain.csv"), tmp_path).fingerprint
    assert load_dataset(spec("t.xlsx"), tmp_path).fingerprint == want
    monkeypatch.setattr(pd, "read_excel", lack)
    with pytest.raises(UsageError, match=r"pip install 'seqdg\[excel\]'"):
        open_table(tmp_path / "t.xlsx")


def test_a_real_sheet_of_excel_gives_the_same_data_set(tmp_path):
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    pd.DataFrame(ROWS, columns=["site", "dose", "ill"]).to_excel(tmp_path / "t.xlsx", index=False)
    write(tmp_path / "plain.csv")
    want = load_dataset(spec("plain.csv"), tmp_path).fingerprint
    assert load_dataset(spec("t.xlsx"), tmp_path).fingerprint == want


def test_cells_of_excel_are_read_as_those_of_a_csv(tmp_path):
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    day = pd.to_datetime(["2020-01-31 00:00", None, "2021-05-06 13:30"])
    table = pd.DataFrame({"n": [0.1, None, 2.5e-7], "day": day, "code": ["007", "x", None], "i": [1, 2, 3]})
    table.to_excel(tmp_path / "t.xlsx", index=False)
    table.to_csv(tmp_path / "t.csv", index=False)
    excel, text = (open_table(tmp_path / f"t.{kind}").read().decide_types(is_text=True) for kind in ("xlsx", "csv"))
    assert excel.types == text.types
    assert [t.kind for t in excel.types or ()] == ["numbers", "dates", "words", "numbers"]
    for one, other in zip(excel.columns, text.columns, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "text", "options", "sentence"),
    [
        ("t.data", "a,1,yes\n", {"columns": ("site", "dose")}, "has 3 columns, but `columns` names 2"),
        ("t.csv", "site;dose;ill\na;1;yes;9\n", {}, "seem to be separated by semicolons"),
        ("t.csv", "site,dose\na,1\n", {}, "t.csv has no column 'ill'"),
        ("t.arff", "@relation x\n@attribute s string\n@data\n'a'\n", {}, "that scipy does not read"),
        ("t.arff", "nothing", {}, "cannot be read as a .arff table"),
        ("t.arff", ARFF, {"separator": ";"}, "leave separator out"),
        ("t.csv.gz", "no gzip", {}, "cannot be read as a .csv table"),
    ],
)
def test_what_is_wrong_with_such_a_table_is_one_sentence(tmp_path, name, text, options, sentence):
    (tmp_path / name).write_text(text)
    problems = check_dataset(spec(name, **options), tmp_path).problems
    assert len(problems) == 1
    assert sentence in problems[0]
    assert "\n" not in problems[0]


@pytest.mark.parametrize("separator", [" ", ",", ""])
def test_quotes_that_do_not_match_are_refused_and_no_rows_are_lost(tmp_path, separator):
    mark = separator or ","
    (tmp_path / "t.data").write_text(f'site{mark}ill\na{mark}yes\n"b{mark}no\na{mark}no\n')
    with pytest.raises(UsageError, match=r"cannot be read as a \.data table"):
        open_table(tmp_path / "t.data", TableFormat(separator)).read()
    (tmp_path / "t.data").write_text(f'site{mark}ill\n"a{mark}b"{mark}yes\n')
    assert open_table(tmp_path / "t.data", TableFormat(separator)).read().columns[0].tolist() == [f"a{mark}b"]


def test_a_name_of_a_column_may_have_several_lines(tmp_path):
    (tmp_path / "t.csv").write_text('"si\n\nte",ill\na,yes\n')
    assert open_table(tmp_path / "t.csv").names == ("si\n\nte", "ill")
    assert open_table(tmp_path / "t.csv").read().columns[0].tolist() == ["a"]


def test_a_separator_is_one_character():
    with pytest.raises(UsageError, match="one character"):
        TableFormat(separator="::")


def test_predictions_are_not_written_to_what_is_only_read(tmp_path):
    with pytest.raises(UsageError, match=r"a \.csv or a \.parquet file"), open_writer(tmp_path / "t.tsv"):
        pass


def test_feature_files_may_be_such_tables(tmp_path):
    for domain in ("north", "south"):
        (tmp_path / f"{domain}.csv.gz").write_bytes(gzip.compress(b"u,v,label\n1,2,0\n3,4,1\n"))
    data = load_dataset(DataSpec("toy"), tmp_path)
    assert data.domains == ("north", "south")
    assert data.x[:2].tolist() == [[1, 2], [3, 4]]
