"""What cannot be packed or read is one sentence."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace

import pytest

from command import seqdg
from seqdg.base.errors import UsageError
from seqdg.report.results import Results
from seqdg.results.archive.reading import FILE, open_run
from seqdg.results.archive.writing import pack
from seqdg.results.store import Store


def rewritten(file, path, **changes):
    content = {**json.loads(lzma.decompress(file.read_bytes())), **changes}
    path.write_bytes(lzma.compress(json.dumps(content).encode()))


@pytest.mark.parametrize("kept", [0.0, 0.0002, 0.3, 0.9, 0.9999])
def test_a_file_that_is_cut_short_is_told_from_one_that_is_no_packed_run(file, tmp_path, kept):
    data = file.read_bytes()
    (tmp_path / FILE).write_bytes(data[: int(kept * len(data))])
    with pytest.raises(UsageError, match="is cut short" if kept else "is no packed run"):
        open_run(tmp_path / FILE)


def test_a_damaged_file_is_never_read(file, tmp_path):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(UsageError, match="is damaged"):
        open_run(tmp_path / FILE)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x1f\x8b\x08", lzma.compress(b"[1]"), lzma.compress(b"{}")])
def test_another_file_is_no_packed_run(tmp_path, data):
    (tmp_path / "other.xz").write_bytes(data)
    with pytest.raises(UsageError, match=r"other\.xz is no packed run"):
        open_run(tmp_path / "other.xz")


def test_a_newer_format_is_named(file, tmp_path):
    rewritten(file, tmp_path / FILE, version=2)
    with pytest.raises(UsageError, match="was written in format 2, and this version of seqdg reads format 1"):
        open_run(tmp_path)


def test_a_file_with_parts_missing_is_refused_when_it_is_opened(file, tmp_path):
    for changes in ({"count": 3}, {"columns": {}}, {"columns": []}):
        rewritten(file, tmp_path / FILE, **changes)
        with pytest.raises(UsageError, match="is no packed run that can be read"):
            open_run(tmp_path)


def test_runs_of_other_benchmarks_or_data_are_not_mixed(directory, tmp_path):
    records = Store.open(directory).records()
    other, foreign = Store.create(tmp_path / "vlcs", "vlcs"), Store.create(tmp_path / "mine", "rotated-mnist")
    other.add(records[:2])
    foreign.add([replace(r, key="k", description={**r.description, "data": "0" * 64}) for r in records[:1]])
    ours = (directory, open_run(directory))
    with pytest.raises(UsageError, match=r"holds a run of 'vlcs' and .* one of 'rotated-mnist': pack each"):
        pack([ours, (tmp_path / "vlcs", other)], tmp_path / FILE)
    with pytest.raises(UsageError, match="on 2 different data sets"):
        pack([ours, (tmp_path / "mine", foreign)], tmp_path / FILE)
    assert not (tmp_path / FILE).exists()


def test_a_run_without_results_and_a_place_that_cannot_be_written_are_sentences(directory, tmp_path):
    Store.create(tmp_path / "empty", "rotated-mnist").close()
    (tmp_path / "taken").write_text("")
    for words, sentence in (
        ((tmp_path / "empty", "--out", tmp_path), "holds no finished trial, so there is nothing to pack."),
        ((tmp_path / "nowhere", "--out", tmp_path), "There are no results in"),
        ((directory, "--out", tmp_path / "taken" / "x"), "cannot be written"),
    ):
        done = seqdg("pack", *words)
        assert done.returncode == 2
        assert sentence in done.stderr


def test_the_commands_say_what_was_packed_and_read_it(directory, tmp_path):
    done = seqdg("pack", directory, "--out", tmp_path / "place")
    assert done.returncode == 0
    said = done.stdout
    assert said.startswith(f"88 trials of rotated-mnist in {tmp_path / 'place' / FILE}, 0.0")
    assert "Criteria other than accuracy have" in said
    done = seqdg("table", tmp_path / "place")
    assert done.returncode == 0
    assert done.stdout == f"{Results.open(directory).table()}\n"
    done = seqdg("status", tmp_path / "place" / FILE)
    assert done.returncode == 0
    assert "done         88" in done.stdout
    done = seqdg("report", tmp_path / "place" / FILE)
    assert done.returncode == 0
    assert done.stdout == f"{tmp_path / 'place' / 'report.html'}\n"
