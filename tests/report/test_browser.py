"""The report in a real browser: no errors, no requests, every mark drawn, no sideways scrolling, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from browsing import list_requests, set_looks, wait_until
from command import seqdg
from digits import make_plan, train
from seqdg.bench import Request
from seqdg.report import find_analysis, list_analyses
from seqdg.report.page import build_page, render_page
from seqdg.report.run_contents import RunContents, read_contents
from seqdg.results import Analysis, Record, Store

MEASURE = """
const box = e => { const r = e.getBoundingClientRect(); return [r.width, r.height]; };
const count = (e, kind) => e.querySelectorAll(`.mark-${kind}.role-mark > *`).length;
return {
  beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  background: getComputedStyle(document.body).backgroundColor,
  color: getComputedStyle(document.body).color,
  pictures: [...document.querySelectorAll('.chart')].map(c => ({
    box: box(c.querySelector('svg')),
    symbols: count(c, 'symbol'),
    lines: count(c, 'line'),
    colors: [...new Set([...c.querySelectorAll('.mark-symbol path, .mark-line path')].map(m => {
      const s = getComputedStyle(m); return s.fill === 'none' || s.fill === 'transparent' ? s.stroke : s.fill; }))],
  })),
  spilled: [...document.querySelectorAll('body *')].filter(e =>
    e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, svg')).map(e => e.outerHTML.slice(0, 120)),
};
"""


def count_marks(panel) -> tuple[int, int]:
    """Dots and curves of a panel; each value of a curve has a dot that is not seen."""
    if "value" in panel.rows[0]:
        return sum(row["value"] is not None for row in panel.rows), 0
    curves = {row["look"] for row in panel.rows} if panel.is_zoomed else ()
    return sum(row["y"] is not None for row in panel.rows), len(curves)


def seen(browser, path: Path, width: int, scheme: str) -> dict:
    """What the page looks like at a width in a color scheme, with all that the browser logged."""
    set_looks(browser, width, 844, scheme)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())
    wait_until(browser, "return document.documentElement.dataset.drawn > 0")
    found = browser.execute_script(MEASURE)
    found["console"] = browser.get_log("browser")
    found["requests"] = list_requests(browser)
    return found


def check(browser, made, path: Path) -> None:
    """All that must hold of any report."""
    path.write_text(render_page(made), encoding="utf-8")
    check_file(browser, made, path)


def check_file(browser, made, path: Path) -> None:
    assert path.stat().st_size < 2_000_000
    expected = [count_marks(p) for f in made.figures for p in f.panels]
    looks = {}
    for width in (390, 1280):
        for scheme in ("light", "dark"):
            found = seen(browser, path, width, scheme)
            assert found["console"] == []
            assert [url for url in found["requests"] if url != path.as_uri() and not url.startswith("data:")] == []
            assert found["beyond"] == 0
            assert found["spilled"] == []
            assert [(p["symbols"], p["lines"]) for p in found["pictures"]] == expected
            for picture in found["pictures"]:
                assert min(picture["box"]) > 40
            looks[scheme] = found
    light, dark = looks["light"], looks["dark"]
    assert (light["background"], light["color"]) != (dark["background"], dark["color"])
    assert light["background"] == "rgb(255, 255, 255)"
    assert light["pictures"][0]["colors"] != dark["pictures"][0]["colors"]


@pytest.mark.slow
def test_a_report_with_hard_names_gaps_and_divergence_shows_well(browser, run, tmp_path):
    evil = "<b>bold</b> & \"quoted\" 'name' " + "very_long_" * 30
    values = {
        "agg": {"V": [0.5, 0.6, 0.7], evil: [0.5, 0.6, 0.7], "w" * 120: [0.4, 0.5, 0.3]},
        evil: {"V": [0.7, 0.8, None], evil: [None, None, None]},
        "fo-s-mldg": {"V": [0.7, 0.8, 0.9], evil: [0.6, 0.7, 0.8], "w" * 120: [0.5, 0.6, 0.4]},
    }
    asked = {"command": f"seqdg bench '{evil}'", "algorithms": [*values, "dann"], "held_out": ["V"], "seeds": [0, 1]}
    check(browser, build_page(RunContents(evil, run(values), (), [asked])), tmp_path / "report.html")


@pytest.mark.slow
def test_a_report_of_one_trial_shows_well(browser, run, tmp_path):
    values = {"agg": {"V": [0.5], "L": [0.6]}, "mldg": {"V": [0.6], "L": [0.5]}}
    check(browser, build_page(RunContents("vlcs", run(values))), tmp_path / "report.html")


@pytest.mark.slow
def test_a_report_of_many_algorithms_and_domains_shows_well(browser, run, tmp_path):
    domains = {f"domain {d}": [0.5 + d / 40, 0.52 + d / 40, 0.49 + d / 40] for d in range(10)}
    check(
        browser,
        build_page(RunContents("many", run({f"algorithm-{a}": domains for a in range(13)}))),
        tmp_path / "report.html",
    )


@pytest.mark.slow
def test_every_analysis_shows_well(browser, run, payloads, tmp_path):
    values = {"agg": {"V": [0.5, 0.6], "L": [0.6, 0.7]}, "fo-s-mldg": {"V": [0.6, 0.5], "L": [0.5, 0.7]}}
    made = build_page(
        RunContents("vlcs", run(values), [Analysis(name, 0.0, payload) for name, payload in payloads.items()])
    )
    assert {s.name for s in made.sections} >= {*payloads, "step-cost"}
    check(browser, made, tmp_path / "report.html")


def trained(request: Request) -> list[Record]:
    return [record for group in make_plan(request).groups for record in train(group)]


@pytest.mark.slow
def test_a_report_of_real_trials_shows_well(browser, tmp_path):
    records = trained(Request(algorithms=["agg", "fo-s-mldg"], held_out=["0", "75"], trials=2, steps=20))
    check(browser, build_page(RunContents("rotated-mnist", records)), tmp_path / "report.html")


@pytest.mark.soak
@pytest.mark.parametrize(("benchmark", "domains"), [("rotated-mnist", 6), ("office-caltech10", 4)])
def test_the_report_that_the_commands_make_with_every_analysis_shows_well(
    browser, request, tmp_path, benchmark, domains
):
    data = [] if benchmark == "rotated-mnist" else ["--data", str(request.getfixturevalue("shared_data"))]
    where = [benchmark, *data, "--out", str(tmp_path / "run")]
    assert seqdg("bench", *where, "--algorithms", "agg,fo-s-mldg", "--trials", "2", "--steps", "20").returncode == 0
    for name in list_analyses():
        few = ["--algorithms", ",".join(find_analysis(name).algorithms[:3]), "--trials", "1", "--steps", "6"]
        assert seqdg("analyze", name, *where, *few).returncode == 0
    assert seqdg("report", str(tmp_path / "run"), "--figures", str(tmp_path / "figures")).returncode == 0
    store = Store.open(tmp_path / "run")
    made = build_page(read_contents(store))
    rows = store.analyses("tsne")[0].payload["numbers"]["labels"]
    store.close()
    marks = {f.name: [count_marks(p) for p in f.panels] for f in made.figures}
    assert len(marks) == 4 + 9  # of the run; of the analyses, two of them of ranks
    assert marks["tsne"] == [(len(rows), 0)] * 4  # raw data and three algorithms
    assert [curves for _, curves in marks["curves"]] == [2, 2, 2]
    assert len(marks["domains"]) == domains + 1  # and their average
    assert all(drawn == (2, 0) for drawn in marks["domains"])  # a dot for each algorithm
    assert len(list((tmp_path / "figures").iterdir())) == 3 * len(marks)
    check_file(browser, made, tmp_path / "run" / "report.html")
