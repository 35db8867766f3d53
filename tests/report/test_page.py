from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from seqdg.report.page import Page, build_page, render_page
from seqdg.report.run_contents import RunContents
from seqdg.results import Analysis

TWO = {"agg": {"V": [0.60, 0.70, 0.65], "L": [0.5, 0.6, 0.55]}, "mldg": {"V": [0.8, 0.9, 0.85], "L": [0.6, 0.7, 0.65]}}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Tags(HTMLParser):
    """All tags with their attributes, and that they are closed in order."""

    VOID = ("meta", "link", "input", "line")

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def _text(html):
    shown = re.sub(r"<script.*?</script>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown))


def test_the_questions_are_answered_first(run):
    values = {
        "agg": {d: [0.5 + i / 100 for i in range(5)] for d in "VL"},
        "mldg": {d: [0.6 + i / 90 for i in range(5)] for d in "VL"},
    }
    made = build_page(RunContents("vlcs", run(values)))
    said = dict(made.answers)
    assert said["Which algorithm?"].startswith(
        "mldg is highest on average over the held-out domains: 62.2 ± 0.8, before agg"
    )
    assert said["Is that real?"].startswith(
        "Yes, on these data and domains: mldg is 10.2 points above agg over 10 pairs, 95 % confidence interval +"
    )
    assert said["Is that real?"].endswith("; ahead on 2 of 2 domains.")
    assert "1.1 times as long as one of agg" in said["What did it cost?"]


def test_what_was_learned_is_said_where_it_was_looked_into(run, payloads):
    plain = dict(build_page(RunContents("vlcs", run(TWO))).answers)
    assert plain["What did it learn?"] == "No analysis has been run."
    looked = [Analysis(name, 0.0, payload) for name, payload in payloads.items()]
    said = dict(build_page(RunContents("vlcs", run(TWO), looked)).answers)["What did it learn?"]
    assert (
        "By a classifier fitted anew, from hardest to easiest: fo-s-mldg, fo-mldg and agg (loss 1.20 to 1.00)." in said
    )
    assert "Classes are best separated by fo-s-mldg" in said
    assert said.startswith("Gradients of different sources point most alike")


def test_an_algorithm_looks_the_same_in_every_figure(run, payloads):
    looked = [Analysis(name, 0.0, payload) for name, payload in payloads.items()]
    made = build_page(RunContents("vlcs", run({"fo-s-mldg": TWO["agg"], "dann": TWO["mldg"]}), looked))
    names = ["agg", "dann", "ensemble", "fo-mldg", "fo-s-mldg", "undo-bias"]
    keys = {(name, f.looks[name]) for f in made.figures for name in f.looks if name in names}
    assert sorted(name for name, _ in keys) == names
    assert len({style for _, style in keys}) == len(names)


def test_a_difference_that_may_be_chance_is_not_called_real(run):
    values = {"agg": {"V": [0.5, 0.6, 0.7]}, "mldg": {"V": [0.6, 0.5, 0.71]}}
    said = dict(build_page(RunContents("vlcs", run(values))).answers)
    assert said["Is that real?"].startswith("That cannot be said: mldg is not distinguishable from agg")


def test_what_else_is_better_or_worse_is_said_and_also_only_where_it_is_also(run):
    agg = {"V": [0.5 + i / 100 for i in range(8)], "L": [0.5] * 8}
    jitter = [0.02 * (-1) ** i for i in range(8)]
    alike = {d: [v + j + 0.001 for v, j in zip(line, jitter, strict=True)] for d, line in agg.items()}
    worse = {d: [v - 0.1 + j for v, j in zip(line, jitter, strict=True)] for d, line in agg.items()}
    better = {d: [v + 0.1 + j for v, j in zip(line, jitter, strict=True)] for d, line in agg.items()}
    said = dict(build_page(RunContents("x", run({"agg": agg, "mldg": alike, "dann": worse}))).answers)["Is that real?"]
    assert said.startswith("That cannot be said: mldg is not distinguishable from agg")
    assert said.endswith(" Worse than agg: dann.")
    more = {"agg": agg, "mldg": better, "s-mldg": {d: [v + 0.001 for v in line] for d, line in better.items()}}
    said = dict(build_page(RunContents("x", run(more))).answers)["Is that real?"]
    assert said.startswith("Yes, on these data and domains: s-mldg")
    assert said.endswith(" Also better than agg: mldg.")


def test_what_correction_does_to_a_p_value_is_said(run):
    values = {"agg": {"V": [0.5] * 8}, "a": {"V": [0.6 + i / 100 for i in range(8)]}, "b": {"V": [0.4, 0.7] * 4}}
    said = dict(build_page(RunContents("x", run(values))).answers)["Is that real?"]
    assert "p = 0.008, after Holm's correction for 2 comparisons p = 0.016; ahead" in said


def test_commands_in_sentences_look_like_commands_and_are_still_escaped():
    made = Page("t", "l", [("Why?", "Run `seqdg x <b>`; one ` alone stays.")])
    assert "Run <code>seqdg x &lt;b&gt;</code>; one ` alone stays." in render_page(made)


def test_where_the_baseline_is_best_nothing_is_claimed(run):
    said = dict(build_page(RunContents("vlcs", run({"agg": {"V": [0.9, 0.9]}, "mldg": {"V": [0.5, 0.6]}}))).answers)
    nothing = "No algorithm has a higher average than the baseline, agg."
    assert said["Is that real?"] == f"{nothing} Not distinguishable from agg: mldg."
    more = {"agg": {"V": [0.9] * 8}, "mldg": {"V": [0.5 + i / 100 for i in range(8)]}}
    assert dict(build_page(RunContents("x", run(more))).answers)["Is that real?"] == f"{nothing} Worse than agg: mldg."


def test_the_page_has_every_part_and_is_one_file(run):
    html = render_page(build_page(RunContents("vlcs", run(TWO))))
    for anchor in ("results", "differences", "training", "cost", "paper", "reproduce"):
        assert f'<section id="{anchor}">' in html
        assert f'href="#{anchor}"' in html
    links = [a for _, attrs in Tags(html).found for name, a in attrs.items() if name in ("src", "href", "xlink:href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert len(html) < 2_000_000


def test_tables_have_captions_and_heads_and_pictures_have_words(run):
    tags = Tags(render_page(build_page(RunContents("vlcs", run(TWO))))).found
    names = [tag for tag, _ in tags]
    assert names.count("table") == names.count("caption") > 3
    assert all(attrs.get("scope") in ("row", "col") for tag, attrs in tags if tag == "th")
    pictures = [attrs for _, attrs in tags if "chart" in attrs.get("class", "").split()]
    assert len(pictures) > 5
    assert all(attrs["role"] == "img" and len(attrs["aria-label"]) > 10 for attrs in pictures)
    assert ("html", {"lang": "en"}) in tags
    assert next(n for n in names if n in ("h1", "h2", "h3")) == "h1"


def test_names_from_data_are_text_everywhere(run):
    values = {name: {EVIL: [0.5, 0.6, 0.7], "b" * 500: [0.5, 0.6, None]} for name in (EVIL, "agg", "a" * 300)}
    html = render_page(build_page(RunContents(EVIL, run(values), (), [
        {"command": f"seqdg bench {EVIL}", "algorithms": [EVIL], "held_out": [EVIL], "seeds": [0, 9]},
    ])))  # fmt: skip
    tags = Tags(html).found
    assert not [tag for tag, _ in tags if tag == "img"]
    assert len([tag for tag, _ in tags if tag == "script"]) == 3  # ours: the charts, Vega, and the page's own
    assert not [name for _, attrs in tags for name in attrs if name.startswith("on")]
    assert "&lt;script&gt;" in html


def test_one_trial_only_has_no_error_bars_and_says_so(run):
    made = build_page(RunContents("vlcs", run({"agg": {"V": [0.5]}, "mldg": {"V": [0.6]}})))
    text = _text(render_page(made))
    assert "one trial each, so there are no error bars" in text
    assert "±" not in text
    dots = made.sections[0].figures[0].panels[0].rows
    assert [(row["value"], row["low"]) for row in dots] == [(60.0, None), (50.0, None)]
    assert "not distinguishable from agg: one pair is too few to tell" in text


def test_diverged_trials_are_told_apart_from_missing_ones(run):
    made = build_page(RunContents("vlcs", run({"agg": {"V": [0.5, 0.6]}, "mldg": {"V": [None, None]}})))
    assert made.warnings == ["Diverged: mldg: 2 of 2 trials with V held out."]
    assert "mldg diverged" in made.sections[0].figures[0].panels[0].description


def test_an_empty_run_says_that_nothing_is_there_and_how_to_get_it():
    asked = {"command": "seqdg bench vlcs", "algorithms": ["agg"], "held_out": ["V"], "seeds": [0, 1]}
    text = _text(render_page(build_page(RunContents("vlcs", [], (), [asked]))))
    assert "No trial has finished yet" in text
    assert "agg: no result yet (2 trials)." in text
    assert "seqdg bench vlcs" in text
    assert "No trial has finished yet" in _text(render_page(build_page(RunContents("vlcs", []))))


def test_one_algorithm_alone_has_no_differences(run):
    made = build_page(RunContents("vlcs", run({"mldg": {"V": [0.5, 0.6]}})))
    assert "differences" not in [s.name for s in made.sections]


def test_a_benchmark_of_the_paper_is_set_beside_it(run):
    text = _text(render_page(build_page(RunContents("vlcs", run(TWO)))))
    assert "Beside Table 2 of the paper" in text
    assert "trials 20 3" in " ".join(text.split())


def test_other_benchmarks_are_not_set_beside_it(run):
    values = {"agg": {"0": [0.5, 0.6]}, "mldg": {"0": [0.5, 0.6]}}
    assert "paper" not in [s.name for s in build_page(RunContents("rotated-mnist", run(values))).sections]


@pytest.mark.parametrize("criterion", ["balanced_accuracy", "log_loss", "calibration_error"])
def test_the_whole_report_can_be_made_by_another_criterion(run, criterion):
    made = build_page(RunContents("vlcs", run(TWO)), criterion=criterion)
    assert made.answers
    assert "paper" not in [s.name for s in made.sections]


def test_the_same_run_gives_the_same_page(run):
    assert render_page(build_page(RunContents("vlcs", run(TWO)))) == render_page(
        build_page(RunContents("vlcs", run(TWO)))
    )


def test_without_vl_convert_the_page_has_its_tables_and_says_what_is_missing(run, monkeypatch):
    monkeypatch.setattr("seqdg.report.charts.can_draw", lambda: False)
    html = render_page(build_page(RunContents("vlcs", run(TWO))))
    assert "pip install &#39;seqdg[figures]&#39;" in html
    assert html.count("<table") > 3
    assert "<figure" not in html
    assert len(html) < 200_000
