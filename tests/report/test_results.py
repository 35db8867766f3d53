"""`seqdg.Results`, the results of a run in Python."""

from __future__ import annotations

import math

import pytest

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.results import FAILED, Store

AGG = {"V": [0.6, 0.61, 0.62, 0.63], "L": [0.5, 0.52, 0.51, 0.53]}
BETTER = {domain: [value + 0.05 for value in values] for domain, values in AGG.items()}


@pytest.fixture
def make(tmp_path):
    def results(records) -> seqdg.Results:
        store = Store.create(tmp_path / "vlcs", "vlcs")
        store.add(records)
        store.close()
        return seqdg.Results.open(tmp_path / "vlcs")

    return results


@pytest.fixture
def results(make, run):
    return make(run({"agg": AGG, "fo-s-mldg": BETTER}))


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv", "json"])
def test_a_table_prints_what_the_command_prints(results, form):
    words = ("--baseline", "agg", "--against", "paper", "--format", form)
    code, out, _ = command("table", str(results.path), *words)
    assert code == 0
    assert f"{results.table(baseline='agg', against='paper', format=form)}\n" == out


def test_a_table_shows_itself_in_a_notebook_and_escapes_names(make, run):
    html = make(run({"agg": AGG, "<i>mine</i>": BETTER})).table(baseline="agg")._repr_html_()
    assert "&lt;i&gt;mine" in html
    assert "<i>" not in html
    assert "<b>66.5 ± 0.6</b>" in html
    assert "better than agg" in html


def test_an_unknown_format_is_refused_before_it_is_printed(results):
    with pytest.raises(UsageError, match="There is no table format 'txt'"):
        results.table(format="txt")


def test_a_run_shows_its_table_and_says_what_it_is(results):
    assert repr(results) == f"<Results of vlcs in {results.path}: 16 done>"
    assert results._repr_html_() == results.table()._repr_html_()
    assert results.benchmark == "vlcs"


def test_to_say_that_nothing_failed_no_record_is_read(results, monkeypatch):
    counted = results.count_statuses()
    assert sum(counted.values()) == len(results.records())
    assert set(counted) == {"done"}
    monkeypatch.setattr(type(results), "records", None)
    assert results.failures() == []


def test_a_run_without_results_shows_itself_too(make, run):
    results = make(run({"agg": {"V": [0.5]}}, status=FAILED, history=[]))
    assert "1 failed" in results._repr_html_()


def test_the_frame_has_every_evaluation_of_every_trial(results):
    frame = results.frame()
    assert len(frame) == 16 * 2
    row = frame[(frame.algorithm == "agg") & (frame.held_out == "V") & (frame.seed == 1) & (frame.step == 50)]
    assert row.accuracy.item() == row.source_accuracy.item() == pytest.approx(0.51)
    assert "auroc" not in frame.columns


def test_the_frame_of_a_rule_has_the_numbers_of_the_table(results):
    frame = results.frame(select="source-val")
    means = 100 * frame.groupby(["algorithm", "held_out"]).accuracy.mean()
    cells = {(c.algorithm, c.held_out): c.mean for c in results.table().sheet.cells}
    assert len(frame) == 16
    for place, mean in means.items():
        assert cells[place] == pytest.approx(mean)


def test_no_trial_is_missing_from_the_frame(make, run):
    records = run({"agg": {"V": [0.6, None]}}) + run({"mldg": {"V": [0.5]}}, status=FAILED, history=[])
    frame = make(records).frame()
    assert list(frame.status) == ["done", "done", "diverged", "diverged", "failed"]
    assert math.isnan(frame.accuracy.iloc[-1])
    assert make(records).frame(select="last").accuracy.isna().tolist() == [False, True]


def test_algorithms_are_compared_with_the_baseline_in_pairs(results):
    (test,) = tests = results.compare()
    assert (test.baseline, test.pairs, test.verdict) == ("agg", 8, "better than agg")
    assert "fo-s-mldg: +5.0 points over 8 pairs" in str(tests)
    assert "<td>+5.0</td>" in tests._repr_html_()
    assert results.compare(baseline="fo-s-mldg")[0].verdict == "worse than fo-s-mldg"


def test_the_report_is_written_where_asked_for(results, tmp_path):
    assert results.report() == results.path / "report.html"
    assert results.report(tmp_path / "mine.html") == tmp_path / "mine.html"
    assert results.report(tmp_path) == tmp_path / "report.html"
    assert (tmp_path / "mine.html").read_text() == (results.path / "report.html").read_text()
    with pytest.raises(UsageError, match="cannot be written"):
        results.report(tmp_path / "mine.html" / "inside.html")  # below a file
