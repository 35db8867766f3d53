from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess

import pytest

from seqdg.errors import UsageError
from seqdg.report.sheet import sheet
from seqdg.report.table import FORMATS, table

NASTY = {
    "html": "<script>alert('x')</script>",
    "latex": r"100% of $x_1^2$ & \evil{#1} ~ \end{document}",
    "long": "a_very_long_name_" * 20,
    "pipe": "a|b*c`d[e]",
    "breaks": "two\nlines\tand \x1b[31mred",
}
TWO = {"agg": {"V": [0.60, 0.70], "L": [0.5, 0.6]}, "mldg": {"V": [0.8, 0.9], "L": [0.4, 0.5]}}


def _nasty(run):
    domains = {name: [0.5, 0.6] for name in NASTY.values()}
    return sheet(run(dict.fromkeys((*NASTY.values(), "agg"), domains)), baseline="agg")


def test_means_and_standard_errors_are_those_computed_by_hand(run):
    cells = {(c["algorithm"], c["held_out"]): c for c in json.loads(table(sheet(run(TWO)), "json"))}
    assert cells["agg", "V"]["mean"] == pytest.approx(65.0)
    assert cells["agg", "V"]["stderr"] == pytest.approx(5.0)  # half the gap of two values
    assert cells["agg", "average"]["mean"] == pytest.approx(60.0)
    assert cells["agg", "average"]["stderr"] == pytest.approx(5.0)
    assert cells["agg", "worst"]["mean"] == pytest.approx(55.0)
    assert cells["mldg", "worst"]["mean"] == pytest.approx(45.0)
    assert set(cells["agg", "V"]) == {"algorithm", "held_out", "mean", "stderr", "trials", "select"}


def test_rows_are_the_held_out_domains_then_average_and_worst(run):
    shown = table(sheet(run(TWO))).splitlines()
    assert [line.split()[0] for line in shown[2:6]] == ["V", "L", "average", "worst"]


def test_the_best_of_every_row_is_marked_in_every_format_for_people(run):
    found = sheet(run(TWO))
    assert re.search(r"^V +65\.0 ± 5\.0 +85\.0 ± 5\.0\*$", table(found), re.M)
    assert re.search(r"^L +55\.0 ± 5\.0\* +45\.0 ± 5\.0$", table(found), re.M)
    assert "| V | 65.0 ± 5.0 | **85.0 ± 5.0** |" in table(found, "markdown")
    assert r"V & \underline{65.0 $\pm$ 5.0} & \textbf{85.0 $\pm$ 5.0} \\" in table(found, "latex")


def test_of_a_criterion_where_less_is_better_the_lowest_is_marked_and_the_highest_is_the_worst(run):
    found = sheet(run(TWO), criterion="log_loss")
    assert r"\textbf{0.550 $\pm$ 0.050}" in table(found, "latex")
    assert re.search(r"^worst +0\.550", table(found), re.M)
    assert table(found).splitlines()[-1].startswith("Log-loss on the held-out domain")


def test_one_trial_has_no_error_bars_and_it_is_said(run):
    shown = table(sheet(run({"agg": {"V": [0.6]}, "mldg": {"V": [0.5]}})))
    assert "±" not in shown
    assert "one trial each, so there are no error bars" in shown


def test_diverged_trials_are_counted_and_never_averaged(run):
    found = sheet(run({"agg": {"V": [0.6, None, 0.8]}, "mldg": {"V": [None, None, None]}}))
    shown = table(found)
    assert re.search(r"^V +70\.0 ± 10\.0 \(1 diverged\)\* +diverged$", shown, re.M)
    assert "4 trials diverged and count in no mean." in shown
    entries = {(e["algorithm"], e["held_out"]): e for e in json.loads(table(found, "json"))}
    assert entries["mldg", "V"]["mean"] is None
    assert entries["mldg", "V"]["diverged"] == 3


def test_what_is_missing_of_a_half_finished_run_is_a_dash(run):
    found = sheet(run({"agg": {"V": [0.6, 0.7], "L": [0.5]}, "mldg": {"V": [0.6]}}))
    assert re.search(r"^L +50\.0\* +-$", table(found), re.M)
    assert "- not run" in table(found)


def test_an_empty_run_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match="holds no finished trial yet"):
        sheet([])


def test_an_unknown_format_is_refused_in_a_sentence(run):
    with pytest.raises(UsageError, match=r"There is no table format 'latexx'\. Did you mean 'latex'\?"):
        table(sheet(run(TWO)), "latexx")


def test_the_test_against_the_baseline_is_in_every_format(run):
    found = sheet(run({"agg": {"V": [0.5] * 8}, "mldg": {"V": [0.6 + i / 100 for i in range(8)]}}), baseline="agg")
    assert "mldg: +13.5 points over 8 pairs" in table(found)
    assert "better than agg" in table(found, "markdown")
    assert re.search(r"mldg & \$\+13\.5\$ & .* & better than agg \\\\", table(found, "latex"))
    average = next(
        e for e in json.loads(table(found, "json")) if (e["algorithm"], e["held_out"]) == ("mldg", "average")
    )
    assert average["against"]["verdict"] == "better than agg"
    assert average["against"]["p_holm"] == pytest.approx(2**-7)
    rows = list(csv.DictReader(io.StringIO(table(found, "csv"))))
    assert [r["verdict"] for r in rows if r["algorithm"] == "mldg"] == ["", "better than agg", ""]


@pytest.mark.parametrize("form", FORMATS)
def test_names_with_markup_and_of_any_length_are_taken_as_text(run, form):
    shown = table(_nasty(run), form)
    assert "\x1b" not in shown or form == "csv"  # what is for programs keeps names as they are
    if form == "json":
        assert {e["held_out"] for e in json.loads(shown)} == {*NASTY.values(), "average", "worst"}
    elif form == "csv":
        assert {r["held_out"] for r in csv.DictReader(io.StringIO(shown))} == {*NASTY.values(), "average", "worst"}
    elif form == "markdown":
        assert "<script>" not in shown
        grid = [line for line in shown.splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in grid} == {len(NASTY) + 3}
    elif form == "text":
        grid = shown.split("\n\n")[0].splitlines()
        assert len(grid) == 2 + len(NASTY) + 2
        assert max(len(line) for line in grid) < 300


def test_shortened_names_stay_different(run):
    long = "x" * 100
    names = [f"{long}{i}{long}" for i in range(3)]
    shown = table(sheet(run({"agg": {name: [0.5] for name in names}})))
    firsts = [line.split()[0] for line in shown.splitlines()[2:5]]
    assert len(set(firsts)) == 3


def _balanced(text):
    depth = 0
    for i, ch in enumerate(text):
        escaped = i > 0 and text[i - 1] == "\\" and not (i > 1 and text[i - 2] == "\\")
        depth += 0 if escaped else {"{": 1, "}": -1}.get(ch, 0)
        assert depth >= 0
    return depth == 0


def test_latex_has_the_structure_of_a_booktabs_table_whatever_the_names(run):
    shown = table(_nasty(run), "latex")
    body = [line for line in shown.splitlines() if not line.startswith("%")]
    assert shown.isascii()
    assert _balanced("\n".join(body))
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}", r"\end{tabular}"):
        assert rule in body or any(line.startswith(rule) for line in body)
    first = body.index(next(line for line in body if line.startswith(r"\begin{tabular}")))
    last = body.index(r"\end{tabular}")
    lines = [line for line in body[first + 1 : last] if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(NASTY) + 1}
    assert r"\textless{}script\textgreater{}" in shown
    assert not [line for line in body if r"\evil" in line]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="There is no pdflatex here to compile the table with.")
@pytest.mark.parametrize("wrapped", [False, True], ids=["by itself", "within a document"])
def test_latex_compiles(run, tmp_path, wrapped):
    (tmp_path / "table.tex").write_text(table(_nasty(run), "latex"))
    whole = r"\documentclass{article}\usepackage{booktabs}\begin{document}Text. \input{table.tex} More.\end{document}"
    (tmp_path / "whole.tex").write_text(whole)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "whole.tex" if wrapped else "table.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / ("whole.pdf" if wrapped else "table.pdf")).stat().st_size > 1000
