from __future__ import annotations

import copy
import importlib
import sys
from dataclasses import replace

import pytest

import seqdg.paper
from seqdg.base import UsageError
from seqdg.report import analyses, format_significant
from seqdg.report.analyses import find_analysis, list_analyses, register_analysis, show_analyses, show_analysis
from seqdg.results import Analysis


def test_every_analysis_has_a_picture_its_numbers_and_how_it_was_made(payloads):
    assert set(payloads) == set(list_analyses())
    for name, payload in payloads.items():
        shown = show_analysis(name, payload)
        assert shown.figures
        assert all(p.rows for f in shown.figures for p in f.panels)
        assert shown.tables or len(shown.aside) > 1
        assert shown.aside[-1].rows[-1] == ("command", [f"seqdg analyze {name} vlcs"])


def test_the_newest_of_a_kind_and_subject_counts_and_other_subjects_stand_beside_it(payloads):
    old, new, other = (copy.deepcopy(payloads["cost"]) for _ in range(3))
    old["numbers"]["sources"] = 99
    other["of"]["held_out"] = "L"
    found = show_analyses([Analysis("cost", 1.0, old), Analysis("cost", 2.0, other), Analysis("cost", 3.0, new)])
    assert [s.name for s in found] == ["step-cost", "step-cost-2"]
    assert "99 sources" not in found[0].text[0]
    assert found[1].text[0].startswith("Held out: L.")
    assert [f.name for s in found for f in s.figures] == ["step-cost", "step-cost-2"]


MINE = """
from seqdg.report.analyses import AnalysisKind, Section, describe_study, register_analysis


def compute(study):
    return {"answer": 42}


def show(payload, looks):
    return Section("mine", "Mine", [describe_study(payload), str(payload["numbers"]["answer"])])


register_analysis(AnalysisKind("mine", compute, show, ("agg",), trials=1, order=45))
"""


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A new file among the analyses, for one test."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(seqdg.paper, "__path__", [*seqdg.paper.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    yield
    analyses._kinds.pop("mine", None)
    sys.modules.pop("seqdg.paper.mine", None)


def test_one_new_file_adds_an_analysis(added, payloads):
    assert list_analyses() == (
        "invariance",
        "tsne",
        "similarity",
        "ranks",
        "mine",
        "alignment",
        "line",
        "ensemble",
        "cost",
    )
    payload = {**payloads["cost"], "numbers": find_analysis("mine").compute(None)}
    (section,) = show_analyses([Analysis("mine", 1.0, payload)])
    assert section.text == ["Held out: V. 3 seeds, 100 steps.", "42"]


def test_two_analyses_of_one_name_are_refused():
    known = find_analysis("cost")

    def compute(study):
        return {}

    with pytest.raises(UsageError, match=r"Two analyses are named 'cost', in seqdg\.paper\.cost and .*\. Rename one\."):
        register_analysis(replace(known, compute=compute))
    assert find_analysis("cost") is known


@pytest.mark.parametrize("name", ["mine", "study", "_study", "../cost", ""])
def test_what_is_no_analysis_is_not_found(name):
    assert find_analysis(name) is None


def test_an_analysis_of_another_name_is_left_to_those_who_know_it():
    assert show_analyses([Analysis("mine", 1.0, {"anything": 1})]) == []


def test_invariance_names_the_hardest_and_the_easiest(payloads):
    text = show_analysis("invariance", payloads["invariance"]).text[0]
    assert "hardest to tell from the features of agg (loss 0.50) and easiest from those of fo-s-mldg (0.30)" in text
    assert "guessing costs 1.10" in text
    assert "from hardest to easiest: fo-s-mldg, fo-mldg and agg (loss 1.20 to 1.00)." in text


def test_cost_has_ratios_and_the_papers_minutes(payloads):
    shown = show_analysis("cost", payloads["cost"])
    assert shown.text[0] == (
        "Held out: V. One trial, 3 sources, cpu. A step takes from 2.0 (fo-mldg) to 3.0 (fo-s-mldg) times as long as "
        "one of agg."
    )
    rows = dict(shown.tables[0].rows)
    assert rows["fo-s-mldg"] == ["30.00", "3.00", "3.00", "2.9", "3.00", "72.64", "6.62"]


def test_cost_without_agg_has_no_ratios(payloads):
    payload = payloads["cost"]
    del payload["numbers"]["costs"]["agg"]
    rows = dict(show_analysis("cost", payload).tables[0].rows)
    assert rows["fo-mldg"][1] == "-"


def test_ranks_say_whether_the_loss_falls_with_the_place(payloads):
    text = show_analysis("ranks", payloads["ranks"]).text[0]
    assert "the loss on L falls with every place (0.750 first, 0.550 last" in text
    payloads["ranks"]["numbers"]["by_place"]["fo-s-mldg"].reverse()
    assert "the loss on L does not fall" in show_analysis("ranks", payloads["ranks"]).text[0]


def test_alignment_compares_at_equal_loss_too(payloads):
    shown = show_analysis("alignment", payloads["alignment"])
    assert [p.heading for p in shown.figures[0].panels] == [
        "Cosine",
        "Cosine at equal loss",
        "Inner product",
    ]
    assert "with fo-s-mldg, fo-mldg and agg, in this order" in shown.text[0]


def test_the_ensemble_is_what_others_are_set_against(payloads):
    assert show_analysis("ensemble", payloads["ensemble"]).text[0] == (
        "Held out: V. 3 seeds, 100 steps. undo-bias is 1.0 points above the naive ensemble. "
        "s-undo-bias is 2.0 points above the naive ensemble."
    )


def test_similarity_says_where_weights_part_on_the_way_and_not_only_where_they_end(payloads):
    layers = payloads["similarity"]["numbers"]["curves"]["undo-bias"]["layers"]
    layers["one"] = {"mean": [1.0, 0.99, 1.0], "spread": None}
    layers["head"] = {"mean": [1.0, 0.5, 1.0], "spread": [0.0, 0.1, 0.01]}
    shown = show_analysis("similarity", payloads["similarity"])
    assert "part most in head (up to 60.0 degrees) and least in one (8.1)." in shown.text[0]
    assert shown.tables[0].rows[0][1][1] == "0.00, at most 60.00"


def test_similarity_has_readable_numbers_where_cosines_are_nearly_1(payloads):
    layers = payloads["similarity"]["numbers"]["curves"]["undo-bias"]["layers"]
    layers["one"] = {"mean": [1.0 + 1e-12, 0.999998, 0.999999], "spread": None}
    shown = show_analysis("similarity", payloads["similarity"])
    assert shown.tables[0].rows[0][1][0] == "0.08, at most 0.11"
    axes = shown.figures[0].panels[0].chart.to_json(validate=False)
    assert "angle in degrees" in axes
    assert "cosine" not in axes


@pytest.mark.parametrize(("value", "said"), [(2.0, "+2.00"), (0.28, "+0.280"), (0.0, "+0.00"), (123.4, "+123")])
def test_three_digits_are_three_digits(value, said):
    assert format_significant(value, "+") == said


@pytest.mark.parametrize("name", ["similarity", "alignment", "invariance"])
def test_what_no_algorithm_can_have_is_a_sentence_and_no_picture(payloads, name):
    numbers = payloads[name]["numbers"]
    for part in ("curves", "second", "probe"):
        if part in numbers:
            numbers[part] = {}
    numbers["refused"] = {"agg": "agg has none."}
    shown = show_analysis(name, payloads[name])
    assert not shown.figures
    assert "agg has none." in shown.text
