from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import seqdg
from seqdg.base import UsageError
from seqdg.report import find_analysis, find_column, list_analyses, load_minutes, show_analysis

WRAPPED = ["agg+ema", "fo-s-mldg+mixup+sma", "undo-bias+ema"]
ALGORITHMS = [*seqdg.list_algorithms(), *WRAPPED]  # before any test registers one of its own
# One plain, one of two passes, one with a branch for each domain, one with a stage of its own, one that remembers, one
# that predicts by a rule of its own, and one that needs points inside the net.
FEW = ["agg", "fo-s-mldg", "undo-bias", "metareg", "fish", "t3a", "mixstyle", *WRAPPED]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [pytest.param(FEW, id="few"), pytest.param(ALGORITHMS, id="all", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("kind", list_analyses())
def test_every_algorithm_has_every_analysis_or_a_sentence(dataset, study, kind, names):
    made = study(dataset(), names, steps=3, points=1)
    payload = {"of": made.describe(), "numbers": find_analysis(kind).compute(made)}
    assert json.loads(json.dumps(payload)) == payload  # the store keeps it as it is
    shown = show_analysis(kind, payload)
    assert shown.figures
    words = "\n".join(text for _, cells in [*[r for t in shown.tables for r in t.rows]] for text in cells)
    titled = [p.description for f in shown.figures for p in f.panels]
    for name in names:
        told = name in payload["numbers"].get("refused", {}) or any(name in title for title in titled)
        assert told or name in words, f"{kind} says nothing of {name}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [name for name in list_analyses() if name != "cost"])
def test_an_algorithm_that_diverges_is_named_and_no_number_is_made_up(dataset, study, kind):
    lost, sound = ("undo-bias", "s-undo-bias") if kind in ("similarity", "ensemble") else ("fo-s-mldg", "agg")
    made = study(dataset(), [lost, sound], steps=30, points=3, trials=2, settings=[f"{lost}.lr=1e9"])
    payload = {"of": made.describe(), "numbers": find_analysis(kind).compute(made)}
    json.dumps(payload, allow_nan=False)
    shown = show_analysis(kind, payload)
    words = " ".join([*shown.text, *(" ".join(cells) for t in shown.tables for _, cells in t.rows)])
    if kind == "ensemble":
        assert "2 trials diverged and count in no mean." in words
    else:
        assert f"{lost} is not shown: 2 of its 2 trials diverged by step" in words
    assert shown.figures
    assert any(sound in p.description for f in shown.figures for p in f.panels)


def test_a_first_phase_that_diverges_is_a_sentence(dataset, study):
    made = study(dataset(), ["agg"], steps=30)
    wild = replace(made.benchmark, protocol=replace(made.benchmark.protocol, lr=1e9))
    with pytest.raises(UsageError, match=r"^The domain classifier is not shown: its one trial diverged by step"):
        find_analysis("invariance").compute(replace(made, benchmark=wild))


def test_what_is_looked_at_by_default_exists():
    for kind in list_analyses():
        assert set(find_analysis(kind).algorithms) <= set(seqdg.list_algorithms())


def test_the_cost_is_looked_at_for_every_algorithm_of_the_papers_cost_table():
    assert {find_column(name) for name in find_analysis("cost").algorithms} >= set(load_minutes())


@pytest.mark.parametrize("kind", list_analyses())
def test_every_analysis_is_described_with_a_picture(kind):
    docs = Path(__file__).parents[2] / "docs"
    _, _, rest = (docs / "report.md").read_text(encoding="utf-8").partition(f"\n### `{kind}`: ")
    own, _, _ = rest.partition("\n### ")
    shown = re.findall(r"!\[([^]]{20,})\]\((pictures/[a-z-]+\.svg)\)", own)
    assert shown
    for _, picture in shown:
        drawn = [e for e in ET.parse(docs / picture).iter() if "mark" in e.get("class", "")]
        assert len(drawn) > 2
