"""Which of several settings and learning rates a table shows, and that it says how many there were."""

from __future__ import annotations

import copy
import csv
import io
import json
from dataclasses import replace

import pytest

from seqdg.base import UsageError
from seqdg.report.sheet import build_sheet
from seqdg.report.table import FORMATS, render
from seqdg.results import DIVERGED, DONE, FAILED, Evaluation, Record, select_outcomes

DOMAINS = ("V", "L", "C")


def trial(lr: float, held_out: tuple[str, ...], source: list[float], outside: list[list[float]], status: str = DONE):
    """A record of agg with a value of accuracy per evaluation: on the sources, and on every held-out domain."""
    history = [
        Evaluation(10 * (i + 1), {"accuracy": [inside] * (3 - len(held_out))}, {"accuracy": [d[i] for d in outside]})
        for i, inside in enumerate(source)
    ]
    about = {
        "algorithm": "agg", "settings": {}, "held_out": list(held_out), "seed": 0,
        "protocol": {"lr": lr, "steps": 20}, "net": {"name": "mlp"},
    }  # fmt: skip
    return Record(f"{lr}/{','.join(held_out)}", about, status, history)


def inner(lr: float, on_l: float, on_c: float, status: str = DONE) -> list[Record]:
    """With V held out, how well L and C are served by the other."""
    flat = [0.5, 0.5]
    return [
        trial(lr, ("V", "L"), flat, [flat, [on_l, on_l]], status),
        trial(lr, ("C", "V"), flat, [[on_c, on_c], flat]),
    ]


RECORDS = [
    # Each rule has a candidate and a step of its own, and none is the first.
    trial(0.1, ("V",), [0.1, 0.1], [[0.11, 0.12]]), *inner(0.1, 0.1, 0.1),
    trial(0.2, ("V",), [0.9, 0.3], [[0.21, 0.22]]), *inner(0.2, 0.2, 0.2),
    trial(0.3, ("V",), [0.2, 0.8], [[0.31, 0.32]]), *inner(0.3, 0.3, 0.3),
    trial(0.4, ("V",), [0.5, 0.5], [[0.41, 0.42]]), *inner(0.4, 0.9, 0.7),
    trial(0.5, ("V",), [0.6, 0.6], [[0.99, 0.98]]), *inner(0.5, 0.5, 0.6),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "lr", "step"),
    [("source-val", 0.2, 10), ("last", 0.3, 20), ("leave-one-out", 0.4, 10), ("oracle", 0.5, 10)],
)
def test_every_rule_chooses_candidate_and_step_by_its_own_evidence(rule, lr, step):
    (found,) = select_outcomes(RECORDS, rule)
    assert (found.record.description["protocol"]["lr"], found.step) == (lr, step)


@pytest.mark.parametrize("rule", ["source-val", "last", "leave-one-out"])
def test_only_the_oracle_looks_at_the_held_out_domain(rule):
    turned = [
        trial(r.description["protocol"]["lr"], ("V",), [e.source["accuracy"][0] for e in r.history],
              [[1 - e.held_out["accuracy"][0] for e in r.history]])
        if len(r.held_out) == 1 else r
        for r in RECORDS
    ]  # fmt: skip
    (before,), (after,) = select_outcomes(RECORDS, rule), select_outcomes(turned, rule)
    assert (before.record.key, before.step) == (after.record.key, after.step)
    assert select_outcomes(RECORDS, "oracle")[0].record.key != select_outcomes(turned, "oracle")[0].record.key


def test_a_candidate_of_which_an_inner_trial_diverged_is_not_chosen():
    lost = [r for r in RECORDS if r.description["protocol"]["lr"] != 0.4]
    lost += [RECORDS[9], *inner(0.4, 0.9, 0.7, status=DIVERGED)]
    (found,) = select_outcomes(lost, "leave-one-out")
    assert found.record.description["protocol"]["lr"] == 0.5


def test_inner_trials_that_are_missing_are_not_averaged_over():
    with pytest.raises(UsageError, match="only 1 of 2 for agg with V held out"):
        select_outcomes([*RECORDS[:2], *RECORDS[3:6]], "leave-one-out")


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_says_how_many_candidates_there_were_and_what_chose_among_them(form):
    shown = render(build_sheet(RECORDS, "last"), form)
    if form == "json":
        assert {entry["candidates"] for entry in json.loads(shown)} == {5}
    elif form == "csv":
        assert {row["candidates"] for row in csv.DictReader(io.StringIO(shown))} == {"5"}
    else:
        assert "chosen by source validation at the last step" in shown
        assert "among 5 candidates of each algorithm" in shown


def test_unequal_numbers_of_candidates_are_named_and_a_single_one_is_not(run):
    few = build_sheet([*RECORDS, *run({"mldg": {"V": [0.6]}})])
    assert "among these candidates: agg 5, mldg 1." in render(few)
    assert "candidates" not in render(build_sheet(run({"agg": {"V": [0.6]}})), "csv")


@pytest.mark.parametrize("field", ["steps", "precision"])
def test_a_table_says_what_else_the_trainings_differ_in_that_it_chose_from(field):
    others = [copy.deepcopy(r) for r in RECORDS]
    for r in others:
        r.description["protocol"]["precision"] = "float32"
    assert "mixes" not in render(build_sheet(others))
    others[0].description["protocol"][field] = "other"
    assert f"This run mixes trainings of {field} other and {'20' if field == 'steps' else 'float32'}." in render(
        build_sheet(others)
    )


def test_a_table_says_of_which_algorithms_trials_failed():
    failed = [replace(r, description={**r.description, "algorithm": "mine"}, status=FAILED) for r in RECORDS[:2]]
    shown = render(build_sheet([*RECORDS, *failed]))
    assert "2 trials of mine failed: `seqdg status DIR --errors`." in shown
    assert "failed" not in render(build_sheet(RECORDS))


@pytest.mark.parametrize(("apart", "step"), [(1e-12, 50), (1e-6, 100)])
def test_evaluations_that_rounding_alone_tells_apart_count_as_alike_and_the_first_is_chosen(run, apart, step):
    history = [
        Evaluation(step=at, source={"log_loss": [0.3 - gap, 0.3]}, held_out={"log_loss": [0.5]})
        for at, gap in ((50, 0.0), (100, apart))
    ]
    (found,) = select_outcomes(run({"agg": {"V": [0.6]}}, history=history), criterion="log_loss")
    assert found.step == step
