"""Tables in files: read whole or in batches to the same values, and written batch by batch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from seqdg.base import UsageError
from seqdg.data import TableFormat, open_table, open_writer, parse_column, to_words
from seqdg.data import table_files as tables


def test_a_csv_has_numbers_where_all_cells_are_numbers_or_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        'n,w,gap,mixed,flag\n1,"a, b",,1,true\nNA,,,x,false\n2.5e3,"line\nbreak",,,true\n', encoding="utf-8-sig"
    )
    frame = open_table(path).read()
    assert frame.names == ("n", "w", "gap", "mixed", "flag")
    by_name = dict(zip(frame.names, map(parse_column, frame.columns), strict=True))
    np.testing.assert_array_equal(by_name["n"], [1, np.nan, 2500])
    assert by_name["w"].tolist() == ["a, b", None, "line\nbreak"]
    assert np.isnan(by_name["gap"]).all()
    assert by_name["mixed"].tolist() == ["1", "x", None]
    assert by_name["flag"].tolist() == ["true", "false", "true"]


@pytest.mark.parametrize("columns", [(), ("f0", "f1")])
def test_a_table_without_names_is_read_in_its_encoding(tmp_path, columns):
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,é\n", encoding="latin-1")
    form = TableFormat(columns=columns, encoding="latin-1")
    numbers, words = open_table(path, form, may_lack_header=True).read().columns
    assert numbers.tolist() == [1, 3]
    assert words.tolist() == ["2", "é"]


def test_parquet_and_csv_of_the_same_table_read_alike(tmp_path, hospitals):
    x, _, _ = hospitals
    x = x.assign(kind=pd.Categorical(["a", None] * (len(x) // 2)), sure=x["visits"] > 2)
    x.to_csv(tmp_path / "t.csv", index=False)
    x.to_parquet(tmp_path / "t.parquet")
    one, other = open_table(tmp_path / "t.csv").read(), open_table(tmp_path / "t.parquet").read()
    assert one.names == other.names
    for name, a, b in zip(one.names, one.columns, other.columns, strict=True):
        if name == "sure":
            assert [v == "True" for v in a] == b.astype(bool).tolist()
        elif a.dtype == object:
            assert a.tolist() == to_words(b).tolist()
        else:
            np.testing.assert_array_equal(a, b)


def test_batches_hold_all_rows_in_order_and_count_them(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 4096)
    rows = 5000
    pd.DataFrame({"i": range(rows), "w": [f"w{i}" for i in range(rows)], "x": 0}).to_csv(
        tmp_path / "t.csv", index=False
    )
    heard = []
    frames = list(
        open_table(tmp_path / "t.csv").read_batches(["w", "i"], ["i"], lambda *progress: heard.append(progress))
    )
    assert len(frames) > 5
    np.testing.assert_array_equal(np.concatenate([f.row_numbers for f in frames]), np.arange(rows))
    numbers = np.concatenate([f.columns[0] for f in frames])
    np.testing.assert_array_equal(numbers, np.arange(rows))
    assert frames[0].names == ("i", "w")
    size = (tmp_path / "t.csv").stat().st_size
    assert heard[-1] == (size, size)
    assert heard[:3] == [(4096, size), (8192, size), (12288, size)]  # though all of it is read ahead
    assert heard == sorted(heard)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty: its first line must name the columns"),
        (b"a,b\n", "has 0 rows below the names of its columns"),
        (b"a,a\n1,2\n", "has two columns 'a'"),
        (b"a,b\n1\n", "cannot be read as a .csv table (line 2 has 1 cell in a table of 2 columns: 1)."),
        (b'a,b\n"1\n",2\n\n1,2,3\n', "(line 5 has 3 cells in a table of 2 columns: 1,2,3)."),
        (b'a,b\n1,2\n"1,2\n3,4\n5,6\n', "(a quote after line 2 is never closed)."),
        (b'a,b\n1,"2\n3,4\n5,6\n', "(a quote after line 1 is never closed)."),  # which would be two rows, not four
        (b"a\n1\n\xff\xfe\n", "in UTF-8 (line 3 has the byte 0xff, which is none of its characters)."),
        (b"\xff\xfe,b\n1,2\n", "cannot be read as a .csv table in UTF-8"),
    ],
)
def test_a_broken_csv_is_a_sentence(tmp_path, content, sentence):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        open_table(path, TableFormat(encoding="utf-8")).read()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_quote_inside_of_a_cell_is_part_of_it(tmp_path):
    (tmp_path / "t.csv").write_text('pipe,b\n5" steel,1\n"a ""b""",2\n')
    frame = open_table(tmp_path / "t.csv").read()
    assert frame.columns[0].tolist() == ['5" steel', 'a "b"']


@pytest.mark.parametrize("separator", [",", " "])
def test_a_mistake_in_a_row_is_told_by_its_line_though_lines_are_empty_and_cells_have_breaks(tmp_path, separator):
    rows = ["age,site", '1,"a', 'b"', "", "2,b", "old,b", "3,c"]
    (tmp_path / "t.csv").write_text("\n".join(rows).replace(",", separator) + "\n")
    table = open_table(tmp_path / "t.csv", TableFormat(separator=separator))
    with (
        pytest.raises(UsageError, match="Column 'age' holds mostly numbers, but line 6 holds 'old'"),
        table.naming_lines(),
    ):
        table.read().decide_types(is_text=True)


def test_a_broken_parquet_and_a_missing_file_are_sentences(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(UsageError, match=r"cannot be read as a \.parquet table"):
        open_table(path)
    with pytest.raises(UsageError, match="There is no file"):
        open_table(tmp_path / "nowhere.csv")


def half_written(path):
    with open_writer(path) as write:
        write({"p": np.zeros(1), "q": np.zeros(1)})
        write({"p": np.zeros(1), "q": np.zeros(2)})


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_written_is_there_once_it_is_whole(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    with open_writer(path) as write:
        for start in (0, 2):
            write({"label": np.array(["a", 'b"c'], dtype=object), "p": np.array([start, start + 1.5])})
            assert not path.exists()
    read = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert read["label"].tolist() == ["a", 'b"c'] * 2
    assert read["p"].tolist() == [0, 1.5, 2, 3.5]
    with pytest.raises(ValueError, match=r"(?i)length"):
        half_written(tmp_path / f"half{suffix}")
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


def test_predictions_are_written_to_a_table_in_a_folder_that_exists(tmp_path):
    written = r"written to a \.csv or a \.parquet file, .*, not to out.txt"
    with pytest.raises(UsageError, match=written), open_writer(tmp_path / "out.txt"):
        pass
    with pytest.raises(UsageError, match="There is no folder"), open_writer(tmp_path / "no" / "out.csv"):
        pass


def test_words_that_only_python_reads_as_numbers_stay_words(tmp_path):
    (tmp_path / "t.csv").write_text("ward,dose\n2019_1,1\n2019_2,#N/A\n")
    frame = open_table(tmp_path / "t.csv").read()
    assert parse_column(frame.columns[0]).tolist() == ["2019_1", "2019_2"]
    np.testing.assert_array_equal(parse_column(frame.columns[1]), [1, np.nan])


def test_numbers_are_the_same_whether_all_cells_are_plain_or_not(tmp_path):
    cells = ["0.1", "1e-320", "123456789012345678", "2.2250738585072011e-308", "-7.50", "1E5", "inf"]
    (tmp_path / "plain.csv").write_text("\n".join(["n", *cells, "9"]))
    (tmp_path / "gaps.csv").write_text("\n".join(["n", *cells, "n/a"]))
    plain, gaps = (parse_column(open_table(tmp_path / name).read().columns[0]) for name in ("plain.csv", "gaps.csv"))
    np.testing.assert_array_equal(plain[:-1], gaps[:-1])
    np.testing.assert_array_equal(plain[:-1], [float(cell) for cell in cells])


def test_a_first_line_of_numbers_is_a_row_where_a_header_may_be_lacking(tmp_path):
    (tmp_path / "t.csv").write_text("1.5,1.5\n2.5,3\n")
    table = open_table(tmp_path / "t.csv", may_lack_header=True)
    assert table.names == ("f0", "f1")
    np.testing.assert_array_equal(np.column_stack(table.read().columns), [[1.5, 1.5], [2.5, 3]])
    (tmp_path / "t.csv").write_text("0,1\n2.5,3\n")
    assert open_table(tmp_path / "t.csv", may_lack_header=True).names == ("0", "1")
    (tmp_path / "t.csv").write_text("2019,2020\n2.5,3\n")
    assert open_table(tmp_path / "t.csv").names == ("2019", "2020")


def test_dates_of_a_parquet_file_are_words_only_where_asked(tmp_path):
    days = pd.to_datetime(["2020-01-01", "2021-06-01"])
    pd.DataFrame({"day": days, "n": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(table.read().columns[0], days.to_numpy())
    assert table.read(but=["day"]).names == ("n",)
    assert to_words(table.read().columns[0]).tolist() == ["2020-01-01", "2021-06-01"]
