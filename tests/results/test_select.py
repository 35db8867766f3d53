"""Selection of steps and candidates agrees with literal loops over the records."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seqdg.base import UsageError
from seqdg.results import (
    DIVERGED,
    DONE,
    Evaluation,
    Record,
    find_best,
    select_evaluation,
    select_outcomes,
    select_step,
)

CRITERIA = ("accuracy", "log_loss")


def make_record(seed: int, held_out: tuple[str, ...] = ("d",), status: str = DONE, steps: int = 5) -> Record:
    draw = np.random.default_rng([seed, len(held_out)])
    history = [
        Evaluation(
            step=10 * (i + 1),
            source={name: draw.random(3).tolist() for name in CRITERIA},
            held_out={name: draw.random(len(held_out)).tolist() for name in CRITERIA},
        )
        for i in range(steps)
    ]
    return Record(f"key{seed}", {"algorithm": "agg", "held_out": list(held_out), "seed": seed}, status, history)


def is_better(new: float, old: float, criterion: str) -> bool:
    return new > old if criterion == "accuracy" else new < old


def find_literally(values: list[float], criterion: str) -> int | None:
    place = None
    for i, value in enumerate(values):
        if math.isfinite(value) and (place is None or is_better(value, values[place], criterion)):
            place = i
    return place


def sign(criterion: str) -> int:
    return 1 if criterion == "accuracy" else -1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_best_is_the_first_of_those_alike_and_finite(criterion: str) -> None:
    for seed in range(20):
        values = np.random.default_rng(seed).integers(0, 4, 6).astype(float)
        values[seed % 6] = (math.nan, math.inf, -math.inf)[seed % 3]
        place = find_literally(list(values), criterion)
        assert place is not None
        assert find_best(list(values), criterion) == (sign(criterion) * values[place], place)
    assert find_best([math.nan, math.inf], criterion) is None
    assert find_best([], criterion) is None


def test_a_difference_in_the_tenth_digit_does_not_decide() -> None:
    assert find_best([0.5, 0.5 + 1e-12], "accuracy") == (0.5, 0)
    assert find_best([0.5, 0.5 + 1e-6], "accuracy") == (0.500001, 1)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_step_is_selected_by_the_mean_over_the_sources(criterion: str) -> None:
    for seed in range(10):
        history = make_record(seed).history
        means = [sum(e.source[criterion]) / 3 for e in history]
        place = find_literally(means, criterion)
        assert place is not None
        assert select_step(history, criterion) == (pytest.approx(sign(criterion) * means[place]), place)


def test_the_held_out_domain_selects_no_step() -> None:
    record = make_record(0)
    others = [Evaluation(e.step, e.source, {name: [99.0] for name in CRITERIA}) for e in record.history]
    assert select_step(others, "accuracy") == select_step(record.history, "accuracy")


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_evaluation_of_a_training_is_the_one_that_validates_best(criterion: str) -> None:
    for seed in range(4):
        record = make_record(seed)
        place = find_literally([sum(e.source[criterion]) / 3 for e in record.history], criterion)
        assert place is not None
        assert select_evaluation(record, criterion) is record.history[place]
    assert select_evaluation(make_record(9, status=DIVERGED), criterion) is None


def test_a_record_that_lacks_what_the_table_shows_is_named():
    whole, lacking = make_record(0), make_record(1)
    for record in (whole, lacking):
        record.description.update(protocol={}, settings={}, net={})
    del lacking.history[0].source["accuracy"]
    with pytest.raises(UsageError, match="The record of trial key1 lacks accuracy: use another copy of its run"):
        select_outcomes([whole, lacking], "source-val", "accuracy")
