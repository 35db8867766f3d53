"""`seqdg table RUN1 RUN2 ...` of several data sets: algorithms × data sets with their average."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from command import seqdg
from seqdg.report.page import build_summary_page, render_page
from seqdg.report.sheet import summarize_runs
from seqdg.report.table import FORMATS, render
from seqdg.results import Store


@pytest.fixture
def store(make_run, tmp_path):
    """`store("vlcs", {"agg": {"V": [0.6, 0.7]}})`: a run directory of that benchmark."""

    def make(benchmark, values, folder="", with_key=""):
        directory = tmp_path / (folder or benchmark)
        kept = Store.create(directory, benchmark)
        records = [replace(r, key=f"{with_key}{r.key}") for r in make_run(values)]
        kept.begin({r.key: "g" for r in records})
        kept.add(records)
        kept.close()
        return directory

    return make


@pytest.fixture
def runs(store):
    one = {"agg": {"V": [0.6, 0.7], "L": [0.5, 0.6]}, "coral": {"V": [0.7, 0.7], "L": [0.7, 0.7]}}
    two = {"agg": {"art": [0.8, 0.9, 1.0]}, "coral": {"art": [0.6, 0.6, 0.6]}, "fish": {"art": [0.5, 0.5, 0.5]}}
    return [store("vlcs", one), store("pacs", two)]


def _read(*words):
    code, out, err = seqdg("table", *words)
    assert code == 0, err
    return out


def test_a_cell_is_the_average_over_domains_and_the_last_column_that_over_data_sets(runs):
    cells = {(e["algorithm"], e["data_set"]): e for e in json.loads(_read(*runs, "--format", "json"))}
    assert cells["agg", "vlcs"]["mean"] == pytest.approx(60.0)
    assert cells["agg", "vlcs"]["stderr"] == pytest.approx(5.0)  # of (55, 65)
    assert cells["agg", "pacs"]["mean"] == pytest.approx(90.0)
    assert cells["agg", "pacs"]["stderr"] == pytest.approx(10 / math.sqrt(3))
    assert cells["agg", "average"]["mean"] == pytest.approx(75.0)
    assert cells["agg", "average"]["stderr"] == pytest.approx(math.hypot(5.0, 10 / math.sqrt(3)) / 2)
    assert cells["agg", "vlcs"]["select"] == "source-val"
    assert cells["fish", "vlcs"]["mean"] is None
    assert cells["fish", "average"]["mean"] is None  # an average over fewer data sets is another number


def test_the_table_is_the_same_in_every_format_and_marks_the_best_of_every_data_set(runs):
    sheet = summarize_runs(runs)
    assert re.search(r"^agg +60\.0 ± 5\.0 +90\.0 ± 5\.8\* +75\.0 ± 3\.8\*$", render(sheet), re.M)
    assert re.search(r"^fish +- +50\.0 ± 0\.0 +-$", render(sheet), re.M)
    assert "| agg | 60.0 ± 5.0 | **90.0 ± 5.8** | **75.0 ± 3.8** |" in render(sheet, "markdown")
    assert r"agg & \underline{60.0 $\pm$ 5.0} & \textbf{90.0 $\pm$ 5.8}" in render(sheet, "latex")
    rows = list(csv.DictReader(io.StringIO(render(sheet, "csv"))))
    assert [r["data_set"] for r in rows[:3]] == ["vlcs", "pacs", "average"]
    page = render_page(build_summary_page(sheet, ["seqdg bench vlcs"]))
    assert "<strong>75.0 ± 3.8<span" in page
    assert "over 2 trials, selected by source-val" in page


def test_each_data_set_is_judged_by_its_own_rule_and_criterion(runs):
    cells = json.loads(_read(*runs, "--select", "last,oracle", "--criterion", "accuracy,log_loss", "--format", "json"))
    by_set = {e["data_set"]: (e["select"], e["criterion"]) for e in cells}
    assert by_set == {"vlcs": ("last", "accuracy"), "pacs": ("oracle", "log_loss")}  # no average of two units
    shown = _read(*runs, "--select", "last,oracle", "--criterion", "accuracy,log_loss")
    assert "There is no average, as the data sets are judged in different units." in shown
    assert "vlcs: Accuracy in % on the held-out domain" in shown
    assert "pacs: Log-loss on the held-out domain" in shown


def test_runs_of_one_benchmark_make_one_column_and_runs_of_the_same_domains_one_table(runs, store):
    more = store("vlcs", {"dann": {"V": [0.5, 0.5], "L": [0.5, 0.5]}}, "more")
    assert re.search(r"^dann +50\.0 ± 0\.0 +- +-$", _read(runs[0], more, runs[1]), re.M)
    other = store("vlcs-features", {"agg": {"V": [0.5, 0.5], "L": [0.5, 0.5]}}, "other", "o")
    assert "agg (other)" in _read(runs[0], other)  # side by side, as before
    assert re.search(r"^agg +60\.0 ± 5\.0 +50\.0 ± 0\.0\* +55\.0 ± 2\.5\*$", _read(runs[0], other, "--summary"), re.M)


def test_what_makes_no_table_of_data_sets_is_refused_in_a_sentence(runs, store):
    alone = store("digits", {"mldg": {"0": [0.5]}})
    code, _, err = seqdg("table", *runs, alone)
    assert code == 2
    assert "No algorithm was run on all of these data sets" in err
    assert "digits has mldg" in err
    for words, said in (
        (["--select", "last,oracle,last"], "--select names 3 for 2 runs"),
        (["--against", "paper"], "--against is of one data set"),
        (["--baseline", "erm2"], "No run has the baseline erm2"),
        (["--select", "lastt"], "There is no selection rule 'lastt'"),
    ):
        code, _, err = seqdg("table", *runs, *words)
        assert code == 2
        assert said in err
    code, _, err = seqdg("table", runs[0], "--summary")
    assert code == 2
    assert "there is one data set" in err


def test_the_report_of_several_data_sets_is_a_page_beside_their_directories(runs):
    code, out, err = seqdg("report", *runs)
    assert code == 0, err
    page = runs[0].parent / "summary.html"
    assert out.strip() == str(page)
    text = page.read_text(encoding="utf-8")
    assert "vlcs and pacs: domain generalization compared" in text
    assert "seqdg bench vlcs --algorithms agg,coral" in text


@pytest.mark.parametrize("sets", [2, 6, 12], ids=["as it is", "narrowed", "turned"])
def test_latex_of_any_width_fits_on_the_page(store, tmp_path, sets):
    runs = [store(f"benchmark-{i}", {"agg": {f"d{i}": [0.5, 0.6]}}) for i in range(sets)]
    shown = render(summarize_runs(runs), "latex")
    assert (r"\resizebox{\textwidth}" in shown) == (sets == 6)
    assert (r"\rotatebox{90}" in shown) == (sets == 12)
    if shutil.which("pdflatex") is None:
        pytest.skip("There is no pdflatex here to compile the table with.")
    (tmp_path / "t.tex").write_text(shown)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_every_format_is_written(runs):
    assert all(render(summarize_runs(runs), form) for form in FORMATS)
