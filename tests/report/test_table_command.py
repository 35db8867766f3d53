"""`seqdg table`, on a store with known records."""

from __future__ import annotations

import json
import re

import pytest

from command import seqdg
from seqdg.results import Store


@pytest.fixture
def directory(run, tmp_path):
    values = {"V": [0.6, 0.61, 0.62, 0.63], "L": [0.5, 0.52, 0.51, 0.53]}
    better = {d: [v + 0.05 for v in line] for d, line in values.items()}
    store = Store.create(tmp_path / "vlcs", "vlcs")
    store.add(run({"agg": values, "fo-s-mldg": better}))
    store.close()
    return str(tmp_path / "vlcs")


def test_the_baseline_is_tested_against_below_the_table(directory):
    code, out, _ = seqdg("table", directory, "--baseline", "agg")
    assert code == 0
    assert (
        "fo-s-mldg: +5.0 points over 8 pairs (95 % CI +5.0 to +5.0, p = 0.008), ahead on 2 of 2 domains: better" in out
    )


def test_the_papers_numbers_come_with_what_differs(directory):
    code, out, _ = seqdg("table", directory, "--against", "paper")
    assert code == 0
    assert "paper: S-MLDG" in out
    assert re.search(r"^trials +20 +4$", out, re.M)
    assert re.search(r"^domains in the average +all +all but C, S$", out, re.M)


def test_both_together_as_json_stay_a_list_of_cells(directory):
    code, out, _ = seqdg("table", directory, "--against", "paper", "--baseline", "agg", "--format", "json")
    assert code == 0
    cells = {(c["algorithm"], c["held_out"]): c for c in json.loads(out)}
    assert cells["fo-s-mldg", "V"]["paper"] == 68.7
    assert cells["fo-s-mldg", "average"]["against"]["verdict"] == "better than agg"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--baseline", "mldg"), "This run has no algorithm 'mldg'."),
        (("--against", "papers"), "There is no source of numbers to set beside ours 'papers'. Did you mean 'paper'?"),
        (("--format", "html"), "There is no table format 'html'."),
        (("--select", "test"), "There is no selection rule 'test'."),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(directory, words, message):
    code, out, err = seqdg("table", directory, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"seqdg: {message}")
    assert err.count("\n") == 1
