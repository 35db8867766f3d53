"""Files that 0.1 packed are still read, and `seqdg pack` makes today's of them."""

from __future__ import annotations

import json
import lzma
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.report import Results
from seqdg.report.table import FORMATS
from seqdg.results import open_run
from seqdg.results.archive.layout import sort_criteria
from seqdg.results.archive.old import OLD_FILE

OLD = Path(__file__).parent / "files" / OLD_FILE  # eight trials of a run of 0.1


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copy(OLD, tmp_path / OLD_FILE))


def rewrite(file, **changes):
    content = {**json.loads(lzma.decompress(OLD.read_bytes())), **changes}
    file.write_bytes(lzma.compress(json.dumps(content).encode()))


def test_its_table_is_printed():
    done = seqdg("table", OLD, "--format", "markdown")
    assert done.returncode == 0
    assert "| photo | **96.9 ± 0.1** | 95.7 ± 0.9 |" in done.stdout
    assert seqdg("table", OLD.parent, "--format", "markdown").stdout == done.stdout


def test_packed_again_it_has_the_same_records_and_tables(old):
    before = open_run(old)
    done = seqdg("pack", old, "--out", old.parent)
    assert done.returncode == 0
    assert f"{old}, of an older version, is no longer read and can be deleted." in done.stdout
    after = open_run(old.parent)
    assert [replace(r, history=sort_criteria(r)) for r in before.records()] == after.records()
    for name in ("groups", "planned", "statuses", "analyses"):
        assert getattr(before, name)() == getattr(after, name)()
    for criterion in ("accuracy", "log_loss", "balanced_accuracy"):
        for form in FORMATS:
            tables = [str(Results.open(path).table(criterion=criterion, format=form)) for path in (old, old.parent)]
            assert tables[0] == tables[1]


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.3, 0.9, 0.9999])
def test_a_file_that_is_cut_short_is_told_from_one_that_is_no_packed_run(old, kept):
    old.write_bytes(OLD.read_bytes()[: int(kept * OLD.stat().st_size)])
    with pytest.raises(UsageError, match="is cut short" if kept else "is no packed run"):
        open_run(old)


def test_a_damaged_file_is_never_read(old):
    data = bytearray(OLD.read_bytes())
    data[len(data) // 2] ^= 1
    old.write_bytes(data)
    with pytest.raises(UsageError, match="is damaged"):
        open_run(old)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x1f\x8b\x08", lzma.compress(b"[1]"), lzma.compress(b"{}")])
def test_another_file_is_no_packed_run(tmp_path, data):
    (tmp_path / "other.xz").write_bytes(data)
    with pytest.raises(UsageError, match=r"other\.xz is no packed run"):
        open_run(tmp_path / "other.xz")


def test_another_version_or_a_file_with_parts_missing_is_refused_when_it_is_opened(old):
    rewrite(old, version=2)
    with pytest.raises(UsageError, match="was written in format 2, and this version of seqdg reads format 1"):
        open_run(old)
    for changes in ({"count": 3}, {"columns": {}}, {"columns": []}):
        rewrite(old, **changes)
        with pytest.raises(UsageError, match="is no packed run that can be read"):
            open_run(old)
