from __future__ import annotations

import json

from seqdg.report.run_contents import (
    RunContents,
    describe_budgets,
    describe_diverged,
    describe_missing,
    list_commands,
    list_facts,
    list_settings,
    read_contents,
)
from seqdg.results import FAILED, Store

ASKED = {"command": "seqdg bench vlcs", "algorithms": ["agg", "mldg", "dann"], "held_out": ["V", "L"], "seeds": [0, 1]}


def test_what_a_half_finished_run_lacks_is_named_by_algorithm_domain_and_seed(run):
    records = run({"agg": {"V": [0.5, 0.6], "L": [0.5, 0.6]}, "mldg": {"V": [0.5]}})
    found = describe_missing(RunContents("vlcs", records, (), [ASKED]))
    assert found == [
        "mldg: 3 of 4 trials are missing: V (seed 1); L (seed 0, 1).",
        "dann: no result yet (4 trials).",
    ]


def test_where_the_command_is_not_known_the_gaps_between_what_is_there_are_named(run):
    records = run({"agg": {"V": [0.5, 0.6]}, "mldg": {"V": [0.5]}})
    assert describe_missing(RunContents("vlcs", records)) == ["mldg: 1 of 2 trials are missing: V (seed 1)."]


def test_a_whole_run_lacks_nothing(run):
    assert describe_missing(RunContents("vlcs", run({"agg": {"V": [0.5, None]}}))) == []


def test_failed_trials_are_missing_and_their_last_words_are_kept(run):
    records = run({"agg": {"V": [0.5]}})
    records += run({"mldg": {"V": [0.5]}}, status=FAILED, error="Traceback\nValueError: out of cheese\n")
    found = describe_missing(RunContents("vlcs", records))
    assert found[0] == "mldg: no result yet (1 trial)."
    assert found[1] == "1 trial failed; the last said: ValueError: out of cheese"


def test_diverged_trials_are_counted_by_algorithm_and_domain(run):
    records = run({"agg": {"V": [0.5, None, None], "L": [0.5]}})
    assert describe_diverged(RunContents("vlcs", records)) == ["agg: 2 of 3 trials with V held out"]


def test_unequal_budgets_are_named(run):
    records = run({"agg": {"V": [0.5, 0.6]}, "mldg": {"V": [0.5, 0.6]}, "coral": {"V": [0.4, 0.4]}})
    for r in records:
        r.losses[:] = [1.0]
        r.description["protocol"] = {"steps": 20 if r.algorithm == "agg" else 40, "batch": 8}
    assert describe_budgets(RunContents("vlcs", records)) == [
        "Unequal budgets: 20 steps (agg); 40 steps (mldg, coral)."
    ]
    more = run({"agg": {"V": [0.5, 0.6]}})
    for r in more:
        r.description["settings"] = {"alpha": "0.3"}
    assert "Unequal budgets: 2 candidates (agg); 1 candidate (mldg, coral)." in describe_budgets(
        RunContents("vlcs", [*records, *more])
    )


def test_equal_budgets_and_those_that_a_search_draws_are_not_named(run):
    records = run({"agg": {"V": [0.5, 0.6]}, "mldg": {"V": [0.5, 0.6]}})
    for i, r in enumerate(records):
        r.losses[:] = [1.0]
        r.description["protocol"] = {"steps": 20 + i % 2, "batch": 8}
    assert describe_budgets(RunContents("vlcs", records)) == []


def test_without_its_command_a_run_can_still_be_asked_for_again(run):
    records = run({"agg": {"V": [0.5, 0.6]}, "mldg": {"V": [0.5, 0.6]}})
    assert list_commands(RunContents("vlcs", records)) == [
        "seqdg bench vlcs --algorithms agg,mldg --held-out V --trials 2"
    ]
    assert list_commands(RunContents("vlcs", records, (), [ASKED])) == ["seqdg bench vlcs"]
    assert list_commands(RunContents("vlcs", [])) == []


def test_facts_hold_fingerprint_versions_commit_and_device(run):
    found = dict(list_facts(RunContents("vlcs", run({"agg": {"V": [0.5]}}))))
    assert found["Data fingerprint"] == "f" * 64
    assert found["Versions"] == "seqdg 0.1.0, torch 2.13.0, python 3.11.7"
    assert found["Commit"] == "0123456789ab"
    assert found["Network"] == "name mlp, hidden 64-32"


def test_what_of_the_protocol_is_an_algorithms_own_stands_with_its_settings(run):
    records = run({"agg": {"V": [0.5]}, "mldg": {"V": [0.5]}})
    records[0].description["protocol"]["lr"] = 0.1
    records[1].description["protocol"]["lr"] = 0.2
    records[1].description["settings"] = {"alpha": "0.3"}
    whole = RunContents("vlcs", records)
    assert list_settings(whole) == [("agg", ["lr 0.1"]), ("mldg", ["alpha 0.3, lr 0.2"])]
    assert "lr" not in dict(list_facts(whole))["Protocol"]


def test_a_run_is_read_in_the_order_in_which_its_command_named_things(run, tmp_path):
    store = Store.create(tmp_path, "vlcs")
    store.add(run({"mldg": {"L": [0.5], "V": [0.5]}, "agg": {"L": [0.5], "V": [0.5]}}))
    store.set_meta("commands", json.dumps([ASKED]))
    store.add_analysis("cost", {"numbers": {}})
    found = read_contents(store)
    assert [(r.algorithm, *r.held_out) for r in found.records] == [
        ("agg", "V"), ("agg", "L"), ("mldg", "V"), ("mldg", "L"),
    ]  # fmt: skip
    assert found.analyses[0].name == "cost"
