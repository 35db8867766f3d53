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
from seqdg.base import UsageError
from seqdg.report.page import build_page, render_page
from seqdg.report.run_contents import RunContents
from seqdg.report.sheet import build_sheet
from seqdg.report.table import FORMATS, render

NASTY = {
    "html": "<script>alert('x')</script>",
    "latex": r"100% of $x_1^2$ & \evil{#1} ~ \end{document}",
    "long": "a_very_long_name_" * 20,
    "pipe": "a|b*c`d[e]",
    "breaks": "two\nlines\tand \x1b[31mred",
    "letters": "Zürich 漢字 α–β 😀 €",
}
TWO = {"agg": {"V": [0.60, 0.70], "L": [0.5, 0.6]}, "mldg": {"V": [0.8, 0.9], "L": [0.4, 0.5]}}


def _nasty(run):
    domains = {name: [0.5, 0.6] for name in NASTY.values()}
    return build_sheet(run(dict.fromkeys((*NASTY.values(), "agg"), domains)), baseline="agg")


def test_means_and_standard_errors_are_those_computed_by_hand(run):
    cells = {(c["algorithm"], c["held_out"]): c for c in json.loads(render(build_sheet(run(TWO)), "json"))}
    assert cells["agg", "V"]["mean"] == pytest.approx(65.0)
    assert cells["agg", "V"]["stderr"] == pytest.approx(5.0)  # half the gap of two values
    assert cells["agg", "average"]["mean"] == pytest.approx(60.0)
    assert cells["agg", "average"]["stderr"] == pytest.approx(5.0)
    assert cells["agg", "worst"]["mean"] == pytest.approx(55.0)
    assert cells["mldg", "worst"]["mean"] == pytest.approx(45.0)
    assert set(cells["agg", "V"]) == {"algorithm", "held_out", "mean", "stderr", "trials", "select"}


def test_rows_are_the_held_out_domains_then_average_and_worst(run):
    shown = render(build_sheet(run(TWO))).splitlines()
    assert [line.split()[0] for line in shown[2:6]] == ["V", "L", "average", "worst"]


def test_the_best_of_every_row_is_marked_in_every_format_for_people(run):
    found = build_sheet(run(TWO))
    assert re.search(r"^V +65\.0 ± 5\.0 +85\.0 ± 5\.0\*$", render(found), re.M)
    assert re.search(r"^L +55\.0 ± 5\.0\* +45\.0 ± 5\.0$", render(found), re.M)
    assert "| V | 65.0 ± 5.0 | **85.0 ± 5.0** |" in render(found, "markdown")
    assert r"V & \underline{65.0 $\pm$ 5.0} & \textbf{85.0 $\pm$ 5.0} \\" in render(found, "latex")


def test_of_a_criterion_where_less_is_better_the_lowest_is_marked_and_the_highest_is_the_worst(run):
    found = build_sheet(run(TWO), criterion="log_loss")
    assert r"\textbf{0.550 $\pm$ 0.050}" in render(found, "latex")
    assert re.search(r"^worst +0\.550", render(found), re.M)
    assert render(found).splitlines()[-1].startswith("Log-loss on the held-out domain")


def test_one_trial_has_no_error_bars_and_it_is_said(run):
    shown = render(build_sheet(run({"agg": {"V": [0.6]}, "mldg": {"V": [0.5]}})))
    assert "±" not in shown
    assert "one trial each, so there are no error bars" in shown


def test_diverged_trials_are_counted_and_never_averaged(run):
    found = build_sheet(run({"agg": {"V": [0.6, None, 0.8]}, "mldg": {"V": [None, None, None]}}))
    shown = render(found)
    assert re.search(r"^V +70\.0 ± 10\.0 \(1 diverged\)\* +diverged$", shown, re.M)
    assert "4 trials diverged and count in no mean." in shown
    entries = {(e["algorithm"], e["held_out"]): e for e in json.loads(render(found, "json"))}
    assert entries["mldg", "V"]["mean"] is None
    assert entries["mldg", "V"]["diverged"] == 3


def test_what_is_missing_of_a_half_finished_run_is_a_dash(run):
    found = build_sheet(run({"agg": {"V": [0.6, 0.7], "L": [0.5]}, "mldg": {"V": [0.6]}}))
    assert re.search(r"^L +50\.0\* +-$", render(found), re.M)
    assert "- not run" in render(found)


def test_a_domain_may_be_called_as_the_rows_below_the_domains_are(run):
    found = build_sheet(run({"agg": {"average": [0.9, 0.9], "worst": [0.8, 0.8], "V": [0.1, 0.1]}}))
    assert found.rows == ["average (domain)", "worst (domain)", "V", "average", "worst"]
    assert [found.value(row, "agg") for row in found.rows] == [f"{v} ± 0.0" for v in (90.0, 80.0, 10.0, 60.0, 10.0)]


def _with_auroc(records, undefined):
    """Two classes; a domain that has one of them alone has no AUROC."""
    return [
        replace(r, history=[
            replace(e, source={**e.source, "auroc": [0.7, 0.8]},
                    held_out={**e.held_out, "auroc": [math.nan if r.held_out[0] == undefined else 0.6]})
            for e in r.history
        ])
        for r in records
    ]  # fmt: skip


def test_a_criterion_that_a_domain_cannot_have_is_a_dash_and_counts_in_no_mean_and_no_pair(run):
    records = _with_auroc(run(TWO), "L")
    found = build_sheet(records, criterion="auroc", baseline="agg")
    assert [found.value(row, "agg") for row in found.rows] == ["60.0 ± 0.0", "-", "-", "-"]
    assert (found.paired[0].pairs, found.paired[0].left_out, found.paired[0].diverged) == (2, 2, 0)
    assert "diverged and count" not in render(found)
    page = render_page(build_page(RunContents("patients", records)))
    assert "nan" not in page.partition("<script>")[0].lower()  # before Vega


def test_algorithms_that_predict_a_batch_of_the_unseen_domain_at_once_are_named_below_the_table(run):
    def mark(records, names):
        return [
            replace(r, description={**r.description, "together": 64}) if r.algorithm in names else r for r in records
        ]

    records = run(dict.fromkeys(("agg", "arm", "t3a"), TWO["agg"]))
    assert "transductive" not in render(build_sheet(records))
    both = "arm and t3a predict a batch of the unseen domain at once (transductive); the others row by row."
    assert both in render(build_sheet(mark(records, ("arm", "t3a")))).splitlines()
    assert both in render_page(build_page(RunContents("b", mark(records, ("arm", "t3a")))))
    alone = "arm predicts a batch of the unseen domain at once (transductive)."
    assert alone in render(build_sheet(mark([r for r in records if r.algorithm == "arm"], ("arm",))), "markdown")


def test_an_empty_run_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match="holds no finished trial yet"):
        build_sheet([])


def test_an_unknown_format_is_refused_in_a_sentence(run):
    with pytest.raises(UsageError, match=r"There is no table format 'latexx'\. Did you mean 'latex'\?"):
        render(build_sheet(run(TWO)), "latexx")


def test_the_test_against_the_baseline_is_in_every_format(run):
    found = build_sheet(
        run({"agg": {"V": [0.5] * 8}, "mldg": {"V": [0.6 + i / 100 for i in range(8)]}}), baseline="agg"
    )
    assert "mldg: +13.5 points over 8 pairs" in render(found)
    assert "better than agg" in render(found, "markdown")
    assert re.search(r"mldg & \$\+13\.5\$ & .* & better than agg \\\\", render(found, "latex"))
    average = next(
        e for e in json.loads(render(found, "json")) if (e["algorithm"], e["held_out"]) == ("mldg", "average")
    )
    assert average["against"]["verdict"] == "better than agg"
    assert average["against"]["p_holm"] == pytest.approx(2**-7)
    rows = list(csv.DictReader(io.StringIO(render(found, "csv"))))
    assert [r["verdict"] for r in rows if r["algorithm"] == "mldg"] == ["", "better than agg", ""]


def test_the_help_of_the_command_names_every_format():
    assert f"--format {'|'.join(FORMATS)}" in " ".join(seqdg("table", "--help").stdout.split())


@pytest.mark.parametrize("form", FORMATS)
def test_names_with_markup_and_of_any_length_are_taken_as_text(run, form):
    shown = render(_nasty(run), form)
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
    shown = render(build_sheet(run({"agg": {name: [0.5] for name in names}})))
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
    shown = render(_nasty(run), "latex")
    body = [line for line in shown.splitlines() if not line.startswith("%")]
    assert "".join(ch for ch in shown if not ch.isascii()) == "ü漢字α–β😀€" * (shown.count("ü"))
    assert r"{\ifdefined\Umathcode 漢\else(U+6F22)\fi}" in shown
    assert _balanced("\n".join(body))
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}", r"\end{tabular}"):
        assert rule in body or any(line.startswith(rule) for line in body)
    first = body.index(next(line for line in body if line.startswith(r"\begin{tabular}")))
    last = body.index(r"\end{tabular}")
    lines = [line for line in body[first + 1 : last] if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(NASTY) + 1}
    assert r"\textless{}script\textgreater{}" in shown
    assert not [line for line in body if r"\evil" in line]


@pytest.mark.parametrize("wrapped", [False, True], ids=["by itself", "within a document"])
@pytest.mark.parametrize("engine", ["pdflatex", "lualatex", "xelatex"])
def test_latex_compiles(run, tmp_path, engine, wrapped):
    if shutil.which(engine) is None:
        pytest.skip(f"There is no {engine} here to compile the table with.")
    (tmp_path / "table.tex").write_text(render(_nasty(run), "latex"))
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}"
    whole = rf"{head}\begin{{document}}Text. \input{{table.tex}} More.\end{{document}}"
    (tmp_path / "whole.tex").write_text(whole)
    done = subprocess.run(
        [engine, "-interaction=nonstopmode", "-halt-on-error", "whole.tex" if wrapped else "table.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / ("whole.pdf" if wrapped else "table.pdf")).stat().st_size > 1000
