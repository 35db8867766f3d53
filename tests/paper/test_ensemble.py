from __future__ import annotations

import pytest

from seqdg.bench import InProcess
from seqdg.paper.ensemble import compute
from seqdg.results import AVERAGE


def test_every_held_out_domain_has_a_mean_over_the_trials_of_every_algorithm(dataset, study):
    found = compute(study(dataset(), ["ensemble", "undo-bias"], trials=2, steps=40, everywhere=True))
    cells = {(c["algorithm"], c["held_out"]): c for c in found["cells"]}
    assert {d for _, d in cells} == {"a", "b", "c", "d", "average", "worst"}
    assert cells["ensemble", "a"]["trials"] == 2
    for name in ("ensemble", "undo-bias"):
        mean = sum(cells[name, d]["mean"] for d in "abcd") / 4
        assert cells[name, AVERAGE]["mean"] == pytest.approx(mean)
        assert mean > 60  # chance is 33


def test_rows_come_in_the_order_asked_for_whatever_is_done_first(dataset, study):
    def backwards(groups, context, watch):
        yield from reversed(list(InProcess()(groups, context, watch)))

    names = ["undo-bias", "ensemble"]
    found = compute(study(dataset(), names, steps=2, everywhere=True, executor=backwards))
    assert [(c["algorithm"], c["held_out"]) for c in found["cells"]] == [
        (name, row) for name in names for row in ("a", "b", "c", "d", "average", "worst")
    ]


def test_one_held_out_domain_can_be_asked_for(dataset, study):
    found = compute(study(dataset(), ["ensemble"], steps=10))
    assert {c["held_out"] for c in found["cells"]} == {"d", "average", "worst"}
