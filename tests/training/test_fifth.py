"""A held-out domain is measured whole and in two parts, a fifth of its rows and the rest."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from digits import TASK, build_stack, make_plan, train
from seqdg.bench import ArrayLearner, Group, Request, Session
from seqdg.training import split_rows
from seqdg.training.trainer import evaluate_stack

REQUEST = Request(algorithms=["agg"], held_out=["0", "30"], trials=2, steps=4)


def test_the_fifth_depends_on_seed_and_domain_alone() -> None:
    trials = make_plan(replace(REQUEST, algorithms=["agg", "mldg"], search=2)).trials
    fifths: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for t in trials:
        split = split_rows(TASK.dataset(), t.protocol, t.held_out, t.seed)
        assert len(split.fifth[0]) == round(0.2 * len(split.test[0]))
        assert set(split.fifth[0].tolist()) < set(split.test[0].tolist())
        fifths.setdefault((t.held_out[0], t.seed), []).append(tuple(split.fifth[0].tolist()))
    assert len(fifths) == 4
    assert all(a == b for same in fifths.values() for a, b in pairwise(same))
    assert len({same[0] for same in fifths.values()}) == 4


@pytest.mark.parametrize("algorithm", ["agg", "mtl"])  # mtl predicts many rows at once, in an order of their own
def test_the_parts_are_measured_on_the_rows_that_they_name(algorithm: str) -> None:
    trials = make_plan(replace(REQUEST, algorithms=[algorithm])).trials
    stack = build_stack(trials)
    deployed = stack.deploy(state := stack.advance(stack.start(), 3))
    evaluations = evaluate_stack(stack, state, deployed)
    held_out = stack.predict_domains(deployed)[-1]
    assert held_out.rows is not None
    for i, (trial, e) in enumerate(zip(trials, evaluations, strict=True)):
        fifth = set(split_rows(TASK.dataset(), trial.protocol, trial.held_out, trial.seed).fifth[0].tolist())
        hits: dict[bool, list[bool]] = {True: [], False: []}
        for row, logits, keep in zip(held_out.rows[i], held_out.logits[i], held_out.mask[i], strict=True):
            if keep:
                hits[int(row) in fifth].append(int(logits.argmax()) == int(TASK.dataset().y[row]))
        assert e.held_out_fifth["accuracy"] == pytest.approx([sum(hits[True]) / len(hits[True])])
        assert e.held_out_rest["accuracy"] == pytest.approx([sum(hits[False]) / len(hits[False])])
        both = hits[True] + hits[False]
        assert e.held_out["accuracy"] == pytest.approx([sum(both) / len(both)])


def test_every_evaluation_of_a_trial_has_both_parts_and_its_key_is_as_before() -> None:
    plan = make_plan(replace(REQUEST, trials=1))
    assert "fifth" not in str(plan.trials[0].description())
    for record in train(plan.groups[0]):
        for e in record.history:
            assert e.held_out.keys() == e.held_out_fifth.keys() == e.held_out_rest.keys()


class Guess(ArrayLearner):
    """Says of every row how often its sources have each class."""

    def fit(self, x: Any, y: Any, domain: Any, classes: int, seed: int) -> Any:
        shares = np.bincount(y, minlength=classes) / len(y)
        return lambda rows: np.tile(shares, (len(rows), 1))


def test_a_learner_of_arrays_measures_them_too() -> None:
    trial = make_plan(replace(REQUEST, trials=1)).trials[0]
    e = Guess().train(Group((trial,)), Session(TASK))[0].history[0]
    rows = len(split_rows(TASK.dataset(), trial.protocol, trial.held_out, trial.seed).test[0])
    fifth = round(0.2 * rows)
    whole = e.held_out_fifth["accuracy"][0] * fifth + e.held_out_rest["accuracy"][0] * (rows - fifth)
    assert e.held_out["accuracy"][0] == pytest.approx(whole / rows)
    assert e.held_out_fifth["log_loss"] != e.held_out_rest["log_loss"]
