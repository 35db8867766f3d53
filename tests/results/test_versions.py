"""Runs of an older version of seqdg."""

from __future__ import annotations

from dataclasses import replace

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.results import DONE, Evaluation, Record, Store, make_key, pack
from seqdg.results.record import VERSION, describe_versions


def make_record(algorithm: str = "agg", version: int = VERSION, seed: int = 0) -> Record:
    about = {
        "version": version, "data": "f" * 64, "algorithm": algorithm, "settings": {}, "held_out": ["0"], "seed": seed,
        "net": {"name": "mlp"}, "protocol": {"steps": 10, "precision": "float32"}, "size": 0, "augment": "",
    }  # fmt: skip
    values = {"accuracy": [0.5]}
    return Record(make_key(about), about, DONE, [Evaluation(10, values, values)])


@pytest.fixture
def old_run(tmp_path):
    store = Store.create(tmp_path / "old", "rotated-mnist")
    store.add([make_record("agg", version=1), make_record("metareg", version=1)])
    store.close()
    return tmp_path / "old"


def test_of_today_s_records_nothing_is_said():
    assert describe_versions([make_record()]) == []


def test_of_older_records_it_is_said_that_another_version_made_them():
    (said,) = describe_versions([make_record("agg", version=1), make_record("metareg", version=1)])
    made = f"These trials were made by another version of seqdg (description 1; today's is {VERSION})"
    assert said == f"{made}, whose methods give other numbers."


def test_a_mixture_of_versions_is_never_silent():
    said = describe_versions([make_record(version=1), make_record()])
    assert said[0].startswith("Some of these trials were made by another version of seqdg")
    assert said[1].startswith("This run mixes trials of different versions")


def test_an_older_run_opens_and_its_table_says_so(old_run):
    done = seqdg("table", old_run)
    assert done.returncode == 0
    assert "made by another version of seqdg" in done.stdout
    assert seqdg("report", old_run).returncode == 0
    assert "made by another version of seqdg" in (old_run / "report.html").read_text()
    assert seqdg("status", old_run).returncode == 0


def test_an_older_run_is_not_continued(old_run):
    before = sorted(Store.open(old_run).statuses())
    done = seqdg("bench", "--algorithms", "agg", "--held-out", 0, "--trials", 1, "--steps", 2, "--out", old_run)
    assert done.returncode == 2
    assert "holds trials of another version of seqdg" in done.stderr
    assert "Give --out another directory" in done.stderr
    assert sorted(Store.open(old_run).statuses()) == before


def test_runs_of_two_versions_are_not_packed_together(old_run, tmp_path):
    new = Store.create(tmp_path / "new", "rotated-mnist")
    new.add([replace(make_record(seed=1))])
    with pytest.raises(UsageError, match="described by different versions of seqdg"):
        pack([(old_run, Store.open(old_run)), (tmp_path / "new", new)], tmp_path / "packed")
