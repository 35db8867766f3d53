"""Several domains held out at once, and training on one alone: protocols of one option each."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import pytest

import seqdg
from command import seqdg as run_seqdg
from seqdg import UsageError
from seqdg.report.sheet import build_sheet

FEW = {"trials": 2, "steps": 4, "rows": 30, "progress": False, "device": "cpu"}


def test_one_source_is_trained_on_and_all_others_are_tested(tmp_path: Path) -> None:
    results = seqdg.run("rotated-mnist", ["agg", "fo-s-mldg"], single_source=True, out=tmp_path, **FEW)
    records = results.records()
    assert len(records) == 6 * 2 * 2
    assert {len(r.held_out) for r in records} == {5}
    assert all(len(e.source["accuracy"]) == 1 for r in records for e in r.history)
    sheet = build_sheet(records, "last")
    cells = {(c.held_out, c.algorithm): c.mean for c in sheet.cells}
    assert {row for row, _ in cells} == {"average", "worst", *(f"from {angle}" for angle in range(0, 76, 15))}
    ours = [r for r in records if r.algorithm == "agg" and "45" not in r.held_out]
    expected = fmean(fmean(r.history[-1].held_out["accuracy"]) for r in ours)
    assert math.isclose(cells["from 45", "agg"], expected * sheet.unit.factor, rel_tol=1e-9)
    assert "from: trained on this domain alone" in str(results.table())
    again = seqdg.run("rotated-mnist", ["agg", "fo-s-mldg"], single_source=True, out=tmp_path, **FEW)
    assert [r.finished for r in again.records()] == [r.finished for r in records]  # nothing was trained again


@pytest.mark.slow
def test_every_choice_of_domains_is_held_out_at_once(tmp_path: Path) -> None:
    names = ["0", "30", "75"]
    results = seqdg.run("rotated-mnist", ["agg"], held_out=names, held_out_together=2, out=tmp_path, **FEW)
    assert {r.held_out for r in results.records()} == {("0", "30"), ("0", "75"), ("30", "75")}
    table = str(results.table())
    assert "0 + 30" in table
    assert "Domains with + between them are held out at once" in table
    done = run_seqdg("report", tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_algorithm_that_needs_several_sources_is_refused_with_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="source"):
        seqdg.run("rotated-mnist", ["group-dro", "irm", "coral", "fusion"], single_source=True, out=tmp_path, **FEW)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"single_source": True, "held_out": ["0"]}, "leave out --held-out"),
        ({"single_source": True, "held_out_together": 2}, "leave out --held-out-together"),
        ({"held_out_together": 6}, "give 1 to 5"),
        ({"held_out_together": 2, "held_out": ["0"]}, "name as many with --held-out"),
        ({"held_out_together": 2, "select": "leave-one-out"}, "one domain held out at a time"),
        ({"held_out_together": 0}, "at least 1"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(tmp_path: Path, options, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        seqdg.run("rotated-mnist", ["agg"], out=tmp_path, **FEW, **options)
