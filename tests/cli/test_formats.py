"""Tables as programs write them: encodings, separators, decimal commas, standard input and output."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.data import TableFormat, open_table

QUICK = ["--steps", "3", "--hidden", "4", "--algorithms", "agg", "--no-estimate"]


def make_table() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    ill = np.arange(40) % 2
    return pd.DataFrame(
        {
            "dose": np.round(draw.normal(size=40) + ill, 2),
            "Größe": np.round(draw.normal(170, 9, 40), 1),
            "site": ["Köln", "Nîmes"] * 10 + ["Nîmes", "Köln"] * 10,
            "ill": np.where(ill, "ja", "nein"),
        }
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The model of the table as a plain .csv, and its predictions."""
    folder = tmp_path_factory.mktemp("plain")
    make_table().to_csv(folder / "t.csv", index=False)
    done = seqdg("fit", folder / "t.csv", "--label", "ill", "--domain", "site", *QUICK, "--out", folder / "m")
    assert done.returncode == 0, done.stderr
    assert seqdg("predict", folder / "m", folder / "t.csv", "--out", folder / "p.csv").returncode == 0
    return folder


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("t.csv", {"encoding": "cp1252"}, "t.csv is read as cp1252."),
        ("t.csv", {"encoding": "utf-8-sig"}, ""),
        ("t.csv", {"encoding": "utf-16"}, "t.csv is read as utf-16."),
        ("t.csv", {"sep": ";", "decimal": ","}, "t.csv has semicolons between its columns and has decimal commas."),
        ("t.csv", {"sep": ";"}, "t.csv has semicolons between its columns."),
        ("t.csv", {"sep": "\t", "encoding": "cp1252"}, "t.csv is read as cp1252 and has tabs between its columns."),
        ("t.csv", {"sep": "|"}, "t.csv has bars between its columns."),
        ("t.csv.gz", {"encoding": "cp1252"}, "t.csv.gz is read as cp1252."),
        ("t.tsv", {"sep": "\t"}, ""),
        ("t.data", {"sep": ";", "encoding": "cp1252"}, "t.data is read as cp1252."),
    ],
)
def test_a_table_is_read_as_it_is_written_and_what_is_unusual_is_said(plain, tmp_path, name, how, said):
    make_table().to_csv(tmp_path / name, index=False, **how)
    done = seqdg("fit", tmp_path / name, "--label", "ill", "--domain", "site", *QUICK, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert done.stderr.partition("40 rows; labels: 2 classes (ja, nein); domains: 2 (Köln, Nîmes)")[0].strip() == said
    done = seqdg("predict", tmp_path / "m", tmp_path / name, "--out", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    assert (tmp_path / "p.csv").read_bytes() == (plain / "p.csv").read_bytes()
    assert done.stdout.startswith("Accuracy on 40 labelled rows")


def test_the_encoding_can_be_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a,w\n1,Łódź\n2,x\n".encode("cp1250"))
    assert open_table(path).read().columns[1].tolist()[0] != "Łódź"
    frame = open_table(path, TableFormat(encoding="cp1250")).read()
    assert frame.columns[1].tolist() == ["Łódź", "x"]
    with pytest.raises(UsageError, match=r"There is no encoding 'ansi'\. Usual ones are"):
        open_table(path, TableFormat(encoding="ansi"))
    with pytest.raises(UsageError, match=r"cannot be read as .* ascii"):
        open_table(path, TableFormat(encoding="ascii")).read()


def test_a_header_with_a_comma_in_a_name_does_not_hide_the_semicolons(tmp_path):
    (tmp_path / "t.csv").write_text("age;weight, kg;ill\n1;2,5;x\n2;3,5;y\n")
    table = open_table(tmp_path / "t.csv")
    assert table.names == ("age", "weight, kg", "ill")
    assert table.read().columns[1].tolist() == [2.5, 3.5]


def test_rows_that_are_too_short_or_too_long_are_refused_in_every_kind_of_table(tmp_path):
    for name, text in [
        ("t.csv", "a,b\n1,2\n3\n"),
        ("t.csv", "a,b\n1,2\n3,4,5\n"),
        ("t.data", "a,b\n1,2\n3\n"),
        ("t.data", "a,b\n1,2\n3,4,5\n"),
        ("t.data", "a,b\n1,2,3\n3,4,5\n"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match=r"cannot be read|has 1 cell for 2 columns"):
            open_table(tmp_path / name).read()


class Standard(io.TextIOWrapper):
    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))


def test_predictions_go_from_standard_input_to_standard_output(plain, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Standard((plain / "t.csv").read_bytes()))
    done = seqdg("predict", plain / "m", "-", "--out", "-")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (plain / "p.csv").read_text()
    assert "Accuracy on 40 labelled rows" in done.stderr
    monkeypatch.setattr(sys, "stdin", Standard((plain / "t.csv").read_bytes()))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if stderr were a terminal, with a bar
    assert seqdg("predict", plain / "m", "-", "--out", "-").stdout == done.stdout


def test_a_model_is_fitted_to_standard_input(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Standard((plain / "t.csv").read_bytes()))
    done = seqdg("fit", "-", "--label", "ill", "--domain", "site", *QUICK, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "From `standard input`." in (tmp_path / "m/card.md").read_text()
    monkeypatch.setattr(sys, "stdin", Standard(b""))
    done = seqdg("fit", "-", "--label", "ill", "--domain", "site", *QUICK, "--out", tmp_path / "n")
    assert done.returncode == 2
    assert "is empty: its first line must name the columns" in done.stderr


def test_a_broken_gz_is_a_sentence(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 100)[:-12])
    with pytest.raises(UsageError, match="cannot be read"):
        open_table(tmp_path / "t.csv.gz").read()
