"""What cannot be packed or read is one sentence."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pyarrow as arrow
import pytest
from pyarrow import parquet

from command import seqdg
from seqdg.base import UsageError
from seqdg.report import Results
from seqdg.results import EVALUATIONS, TRIALS, Store, open_run, pack, runs


@pytest.fixture
def copy(packed, tmp_path):
    return shutil.copytree(packed, tmp_path / "copy")


@pytest.mark.slow
@pytest.mark.parametrize("name", [TRIALS, EVALUATIONS])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.9999])
def test_a_file_that_is_cut_short_is_never_read(copy, name, kept):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[: int(kept * len(data))])
    with pytest.raises(UsageError, match=rf"{name} is (damaged|cut short|no Parquet file|not the one that was packed)"):
        open_run(copy)


@pytest.mark.parametrize("name", [TRIALS, EVALUATIONS])
@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7])
def test_a_damaged_file_is_never_read(copy, name, place):
    data = bytearray((copy / name).read_bytes())
    data[int(place * len(data))] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(UsageError, match=r"Fetch (it|both files|both) again, or pack the run again"):
        open_run(copy).records()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.rename_columns(["lossez" if name == "losses" else name for name in t.column_names]),
        lambda t: t.set_column(4, "seed", t["seed"].cast("double")),
        lambda t: t.set_column(5, "status", t["status"].cast("binary")),
    ],
)
def test_a_column_with_another_name_or_type_is_never_read(copy, change):
    metadata = parquet.read_schema(copy / TRIALS).metadata
    changed = change(parquet.read_table(copy / TRIALS))
    parquet.write_table(changed.replace_schema_metadata(metadata), copy / TRIALS)
    with pytest.raises(UsageError, match=r"trials\.parquet is damaged"):
        open_run(copy)


def test_evaluations_of_another_run_are_refused(copy, directory, tmp_path):
    pack([(directory, open_run(directory))], tmp_path / "other", criteria=[])
    shutil.copy(tmp_path / "other" / EVALUATIONS, copy / EVALUATIONS)
    with pytest.raises(UsageError, match=r"is not the one that was packed with trials\.parquet"):
        open_run(copy)
    (copy / EVALUATIONS).unlink()
    with pytest.raises(UsageError, match=r"evaluations\.parquet cannot be read: No such file"):
        open_run(copy)


def test_a_number_that_somebody_changed_is_found_by_the_digest_of_its_trial(copy):
    metadata = parquet.read_schema(copy / TRIALS).metadata
    trials = parquet.read_table(copy / TRIALS)
    changed = trials.set_column(trials.column_names.index("seconds"), "seconds", arrow.array([1.0] * len(trials)))
    parquet.write_table(changed.replace_schema_metadata(metadata), copy / TRIALS)
    with pytest.raises(UsageError, match=f"Trial {trials['key'][0]} .* digest is another"):
        open_run(copy)
    for words in (["rerun", copy, "--device", "cpu"], ["table", copy]):
        done = seqdg(*words)
        assert done.returncode == 2
        assert "digest is another" in done.stderr


def test_a_parquet_file_of_somebody_else_is_no_packed_run(tmp_path):
    parquet.write_table(arrow.table({"key": ["a"]}), tmp_path / TRIALS)
    with pytest.raises(UsageError, match="is no file of `seqdg pack`"):
        open_run(tmp_path)


def test_a_file_of_another_kind_is_no_run(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"notes\.txt is no run: give the directory of a run"):
        open_run(tmp_path / "notes.txt")


def test_a_newer_format_is_named(packed, monkeypatch):
    monkeypatch.setattr(runs, "FORMAT_VERSION", 1)
    with pytest.raises(UsageError, match="was written in format 2, and this version of seqdg reads format 1"):
        open_run(packed)


def test_runs_of_other_benchmarks_or_data_are_not_mixed(directory, tmp_path):
    records = Store.open(directory).records()
    other, foreign = Store.create(tmp_path / "vlcs", "vlcs"), Store.create(tmp_path / "mine", "rotated-mnist")
    other.add(records[:2])
    foreign.add([replace(r, key="k", description={**r.description, "data": "0" * 64}) for r in records[:1]])
    ours = (directory, open_run(directory))
    with pytest.raises(UsageError, match=r"holds a run of 'vlcs' and .* one of 'rotated-mnist': pack each"):
        pack([ours, (tmp_path / "vlcs", other)], tmp_path / "both")
    with pytest.raises(UsageError, match="on 2 different data sets"):
        pack([ours, (tmp_path / "mine", foreign)], tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_a_run_without_results_and_a_place_that_cannot_be_written_are_sentences(directory, tmp_path):
    Store.create(tmp_path / "empty", "rotated-mnist").close()
    (tmp_path / "taken").write_text("")
    for words, sentence in (
        ((tmp_path / "empty", "--out", tmp_path), "holds no finished trial, so there is nothing to pack."),
        ((tmp_path / "nowhere", "--out", tmp_path), "There are no results in"),
        ((directory, "--out", tmp_path / "taken" / "x"), "cannot be written"),
        ((directory, "--out", tmp_path / "x.parquet"), f"give --out a directory for them, such as {tmp_path / 'x'}."),
    ):
        done = seqdg("pack", *words)
        assert done.returncode == 2
        assert sentence in done.stderr


@pytest.mark.slow
def test_the_commands_say_what_was_packed_and_read_it(directory, tmp_path):
    done = seqdg("pack", directory, "--out", tmp_path / "place")
    assert done.returncode == 0
    assert done.stdout.startswith(f"88 trials of rotated-mnist in {tmp_path / 'place'}: {TRIALS} and {EVALUATIONS}, 0.")
    done = seqdg("table", tmp_path / "place")
    assert done.returncode == 0
    assert done.stdout == f"{Results.open(directory).table()}\n"
    done = seqdg("status", tmp_path / "place" / TRIALS)
    assert done.returncode == 0
    assert "done         88" in done.stdout
    done = seqdg("report", tmp_path / "place")
    assert done.returncode == 0
    assert done.stdout == f"{tmp_path / 'place' / 'report.html'}\n"
