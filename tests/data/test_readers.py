"""A format is added by one module and one line: its name and the module in READERS."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from seqdg.base import UsageError
from seqdg.data import (
    READERS,
    DataSpec,
    DomainRows,
    Problem,
    check_dataset,
    collect_rows,
    load_data,
    load_dataset,
)
from seqdg.data.dataset import guess_format


def recognizes(path):
    return path.suffix == ".lines"


def read(path, spec, root, progress):
    """Lines `domain label number number ...`"""
    lines = [line.split() for line in path.read_text().splitlines()]
    rows = {
        domain: DomainRows(
            x=np.array([line[2:] for line in lines if line[0] == domain], np.float32),
            y=np.array([line[1] for line in lines if line[0] == domain]),
        )
        for domain in sorted({line[0] for line in lines})
    }
    return collect_rows(spec, rows, [Problem(f"{path.name} is empty.")] if not lines else [])


@pytest.fixture
def lines(tmp_path, monkeypatch):
    module = ModuleType("toy_reader")
    module.recognizes, module.read = recognizes, read
    monkeypatch.setitem(sys.modules, "toy_reader", module)
    monkeypatch.setitem(READERS, "lines", "toy_reader")  # the one line
    (tmp_path / "set.lines").write_text("a cat 1 2\nb dog 3 4\na dog 5 6\nb cat 7 8\n")
    return tmp_path


def test_a_new_format_is_recognized_read_and_checked(lines):
    assert guess_format(lines / "set.lines") == "lines"
    for form in ("", "lines"):
        data = load_dataset(DataSpec("toy", path=("set.lines",), format=form), lines)
        assert (data.domains, data.classes) == (("a", "b"), ("cat", "dog"))
        assert data.x[data.rows("b")].tolist() == [[3, 4], [7, 8]]
        assert data.y.tolist() == [0, 1, 1, 0]
    assert load_data({"format": "lines", "path": "set.lines"}, lines).fingerprint == data.fingerprint
    counted = DataSpec("toy", path=("set.lines",), counts={"a": 3})
    assert check_dataset(counted, lines).problems == ("a has 2 rows where 3 are published.",)


def test_what_a_new_reader_finds_wrong_is_said(lines):
    (lines / "set.lines").write_text("")
    assert check_dataset(DataSpec("toy", path=("set.lines",)), lines).problems == ("set.lines is empty.",)


def test_a_format_that_nothing_reads_is_named_with_those_that_there_are():
    with pytest.raises(UsageError, match="Did you mean 'images'"):
        DataSpec("toy", format="imges")
