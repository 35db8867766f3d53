"""What a run took, from its records."""

from __future__ import annotations

import csv
import io
import json

import pytest

from seqdg.base import UsageError
from seqdg.report.table import render_costs, sum_costs
from seqdg.results import DIVERGED, FAILED

ONE = {"V": [0.6, 0.7]}


def test_time_is_summed_and_a_step_is_set_against_the_baselines(run):
    records = [
        *run({"agg": ONE}, seconds=2.0, stacked=4, peak_memory=2**20),
        *run({"mldg": ONE}, seconds=3.0, peak_memory=3 * 2**20),
    ]
    agg, mldg = sum_costs(records)
    assert (agg.trainings, agg.seconds, agg.per_step, agg.times, agg.stacked) == (2, 4.0, 20.0, 1.0, 4)
    assert (mldg.seconds, mldg.per_step, mldg.times, mldg.memory) == (6.0, 30.0, 1.5, 3 * 2**20)
    assert "4 trainings in 10 s on cpu (x86_64): 24 per minute." in render_costs(records)


def test_time_side_by_side_is_counted_once(run):
    """Two stacks of two from 100 to 140 and from 110 to 150, and after a pause one alone from 200 to 230."""
    one = run({"agg": ONE}, seconds=20.0, stacked=2, finished=140.0)
    other = run({"mldg": ONE}, seconds=20.0, stacked=2, finished=150.0)
    alone = run({"dann": {"V": [0.5]}}, seconds=30.0, finished=230.0)
    said = render_costs([*one, *other, *alone])
    assert "5 trainings in 80 s on cpu (x86_64): 3.75 per minute. Several ran at a time: their" in said
    assert "their seconds add up to 110." in said
    assert "3 trainings in 70 s on cpu (x86_64): 2.57 per minute.\n" in render_costs([*one, *alone])


@pytest.mark.parametrize("seconds", [0.3, 0.5, 0.9, 1.2, 1.5, 2.5])
def test_stacks_one_after_the_other_are_not_taken_for_side_by_side_where_a_record_knows_the_second_alone(run, seconds):
    ends = [round(1000 + seconds * (i + 1)) for i in range(50)]
    records = [r for end in ends for r in run({"agg": {"V": [0.5]}}, seconds=seconds, finished=float(end))]
    said = render_costs(records)
    assert f"50 trainings in {50 * seconds:.0f} s" in said
    assert "Several" not in said


def test_devices_are_kept_apart_and_failed_trials_left_out(run):
    records = [
        *run({"agg": ONE, "mldg": ONE}, seconds=1.0),
        *run({"mldg": ONE}, seconds=0.1, device="NVIDIA H200"),
        *run({"agg": ONE}, seconds=9.0, status=FAILED),
    ]
    found = {(s.algorithm, s.device): s for s in sum_costs(records)}
    assert len(found) == 3
    assert found["agg", "cpu (x86_64)"].seconds == 2.0
    assert found["mldg", "NVIDIA H200"].times is None  # no baseline there


def test_a_training_that_diverged_and_ended_early_says_nothing_of_how_long_a_step_takes(run):
    sound, lost = run({"agg": ONE}, seconds=2.0), run({"agg": ONE}, seconds=0.1, status=DIVERGED)
    (cost,) = sum_costs([*lost, *sound])
    assert (cost.trainings, cost.seconds, cost.per_step) == (4, 4.2, 20.0)


def test_every_format_has_the_same_numbers(run):
    records = run({"agg": ONE, "a|b": ONE}, seconds=2.0)
    entries = json.loads(render_costs(records, "json"))
    assert [e["seconds"] for e in entries] == [4.0, 4.0]
    rows = list(csv.DictReader(io.StringIO(render_costs(records, "csv"))))
    assert [float(row["per_step"]) for row in rows] == [20.0, 20.0]
    assert "| a\\|b | 2 | 4.0 | 20 | 1.00 |" in render_costs(records, "markdown")
    with pytest.raises(UsageError, match="There is no format of the cost table 'latex'"):
        render_costs(records, "latex")
    with pytest.raises(UsageError, match="holds no finished trial yet"):
        render_costs([])
