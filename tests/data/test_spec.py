"""The `[data]` table of a benchmark file."""

from __future__ import annotations

import sys
import zipfile

import numpy as np
import pytest

from seqdg.base import UsageError
from seqdg.data import DataSpec, load_data


def test_a_table_becomes_a_spec_and_one_name_a_list_of_one():
    spec = DataSpec.from_table("b", {"path": "set", "domains": ["a", "b"], "counts": {"a": 3}, "size": 32})
    assert spec == DataSpec("b", path=("set",), domains=("a", "b"), counts={"a": 3}, size=32)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"pth": "x"}, r"The \[data\] table of b has no key 'pth'. Did you mean 'path'\?"),
        ({"format": "image"}, "There is no data format 'image'. Did you mean 'images'?"),
        ({"normalize": "l3"}, "There is no normalization 'l3'"),
        ({"label_base": 2}, "label_base is 2. Give 0 or 1"),
        ({"size": 0}, "size is 0"),
        ({"size": "big"}, r"'size' in the \[data\] table of b is 'big', but it must be a whole number."),
        ({"domains": ["a", 1]}, r"is \['a', 1\], but it must be a list of texts."),
        ({"counts": {"a": "3"}}, "it must be a table of whole numbers."),
        ({"drop_other_labels": 1}, "it must be true or false."),
        ({"files": "{view}.mat"}, r"files has '{view}.mat', in which only {domain} may stand for something else"),
        ({"domains": ["a", "a"]}, "domains names one of them twice: a, a."),
        ({"domains": ["a"], "counts": {"b": 1}}, "b has no domain 'b'"),
    ],
)
def test_a_mistake_in_the_table_is_named(table, said):
    with pytest.raises(UsageError, match=said):
        DataSpec.from_table("b", table)


def test_data_that_do_not_come_with_the_package_need_a_folder():
    with pytest.raises(UsageError, match=r"b does not come with seqdg: give the folder that holds set with --data DIR"):
        load_data({"path": ["set", "set.zip"]}, None, name="b")


def test_a_benchmark_table_is_loaded_below_the_root(tmp_path, rows):
    x, y = rows()
    np.savez(tmp_path / "set.npz", a_x=x, a_y=y, b_x=x, b_y=y)
    table = {"path": "set.npz", "counts": {"a": 13}}
    with pytest.raises(UsageError, match="a has 12 rows where 13 are published"):
        load_data(table, tmp_path)
    assert len(load_data(table, tmp_path, allow_partial=True).notes) == 1


@pytest.mark.parametrize(
    ("module", "path", "said"),
    [
        ("PIL.Image", "pictures.zip", r"Reading images needs Pillow: pip install 'seqdg\[images\]'."),
        ("h5py", "mat", r"is a MATLAB 7.3 file, which needs h5py: pip install 'seqdg\[mat\]'."),
    ],
)
def test_what_to_install_is_said_where_a_package_is_missing(tmp_path, monkeypatch, module, path, said):
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as out:
        for domain in "ab":
            out.writestr(f"{domain}/cat/1.png", b"")
    (tmp_path / "mat").mkdir()
    (tmp_path / "mat/a.mat").write_bytes(bytes(512) + b"\x89HDF\r\n\x1a\n")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=said):
        load_data({"path": path}, tmp_path)


@pytest.mark.parametrize("key", ["domain_column", "label_column"])
def test_a_column_that_every_row_needs_is_named(key):
    with pytest.raises(UsageError, match=f"set: {key} is empty. Name a column of the table."):
        DataSpec("set", **{key: ""})
