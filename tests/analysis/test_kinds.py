from __future__ import annotations

import json

import pytest

import seqdg
from seqdg.analysis.kinds import KINDS
from seqdg.report import paper
from seqdg.report.analyses import section


@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_has_every_analysis_or_a_sentence(dataset, study, kind):
    names = list(seqdg.algorithms())
    made = study(dataset(), names, steps=3, points=1)
    payload = {"of": made.described(), "numbers": KINDS[kind].run(made)}
    assert json.loads(json.dumps(payload)) == payload  # the store keeps it as it is
    shown = section(kind, payload)
    assert shown.figures
    words = "\n".join(text for _, cells in [*[r for t in shown.tables for r in t.rows]] for text in cells)
    titled = [p.title for f in shown.figures for p in f.pictures]
    for name in names:
        told = name in payload["numbers"].get("refused", {}) or any(name in title for title in titled)
        assert told or name in words, f"{kind} says nothing of {name}"


def test_what_is_looked_at_by_default_exists():
    for kind in KINDS.values():
        assert set(kind.algorithms) <= set(seqdg.algorithms())


def test_the_cost_is_looked_at_for_every_algorithm_of_the_papers_cost_table():
    assert {paper.column_of(name) for name in KINDS["cost"].algorithms} >= set(paper.cost())
