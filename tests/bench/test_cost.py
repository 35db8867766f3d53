"""What is known of the time that a run takes, before it starts and while it goes on."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from digits import TASK, build_stack, make_plan, train
from seqdg.base import format_duration
from seqdg.bench import Group, Progress, Request, Trial
from seqdg.bench.execution import estimate_makespan, sort_longest_first
from seqdg.bench.learners import stack_learner
from seqdg.bench.planning import time_groups
from seqdg.results import DIVERGED, DONE, FAILED, Record, Store, estimate_seconds_left
from seqdg.training import name_device

REQUEST = Request(algorithms=["agg", "s-mldg"], held_out=["0", "75"], trials=2, steps=100)


def recorded(trial: Trial, seconds: float, device: str, status: str = DONE) -> Record:
    return Record(trial.key, trial.description(), status, seconds=seconds, device=device)


def test_the_first_time_groups_are_timed_and_the_costly_algorithm_is_seen_to_be() -> None:
    plan = make_plan(REQUEST)
    found = time_groups(plan.missing, TASK, "cpu")
    by_name = {group.trials[0].algorithm: found[group.key] for group in plan.missing}
    assert by_name["s-mldg"] > 3 * by_name["agg"] > 0
    assert [g.trials[0].algorithm for g in sort_longest_first(plan.missing, found)] == ["s-mldg", "agg"]


def test_what_comes_before_the_first_step_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the scaling of many columns, which every group does for its own sources."""
    plan = make_plan(replace(REQUEST, algorithms=["agg"], steps=3))
    build = stack_learner.build_stack
    monkeypatch.setattr(stack_learner, "build_stack", lambda *how: time.sleep(0.5) or build(*how))
    assert min(time_groups(plan.missing, TASK, "cpu").values()) > 0.5


def test_later_records_of_the_same_device_say_how_long_it_takes(tmp_path: Path) -> None:
    plan, store = make_plan(REQUEST), Store.create(tmp_path, "rotated-mnist")
    here = name_device(torch.device("cpu"))
    first = {trial.algorithm: trial for trial in plan.trials}
    store.add([recorded(first["agg"], 5.0, here), recorded(first["s-mldg"], 1e6, here, FAILED)])
    store.add([recorded(plan.trials[1], 1e6, "another device")])
    found = time_groups(plan.missing, TASK, "cpu", store.pace(name_device(torch.device("cpu"))))
    by_name = {group.trials[0].algorithm: found[group.key] for group in plan.missing}
    assert by_name["agg"] == pytest.approx(4 * 5.0), "four trials of as many steps"
    assert 0 < by_name["s-mldg"] < 1e4, "timed, as a failure says nothing"


def test_a_training_that_diverged_says_nothing_of_how_long_others_take(tmp_path: Path) -> None:
    plan, store = make_plan(REQUEST), Store.create(tmp_path, "rotated-mnist")
    here, agg = name_device(torch.device("cpu")), [t for t in plan.trials if t.algorithm == "agg"]
    store.add([recorded(agg[0], 5.0, here), recorded(agg[1], 0.1, here, DIVERGED)])
    assert store.pace(here)["agg", 1, "float32"] == pytest.approx(5.0 / agg[0].protocol.steps)


@pytest.mark.slow
def test_records_of_another_precision_say_nothing(tmp_path: Path) -> None:
    plan, store = make_plan(replace(REQUEST, precision="float64")), Store.create(tmp_path, "rotated-mnist")
    single = make_plan(REQUEST).trials
    store.add([recorded(trial, 1e6, name_device(torch.device("cpu"))) for trial in single])
    found = time_groups(plan.missing, TASK, "cpu", store.pace(name_device(torch.device("cpu"))))
    assert 0 < max(found.values()) < 1e4


def test_a_group_that_cannot_be_tried_has_no_cost_and_goes_first() -> None:
    plan = make_plan(REQUEST)
    broken = Group(tuple(replace(t, held_out=("nowhere",)) for t in plan.missing[0].trials))
    assert time_groups([broken], TASK, "cpu") == {}
    assert sort_longest_first([plan.missing[0], broken], {plan.missing[0].key: 1.0})[0] is broken


def test_the_longest_group_goes_first_and_of_unknown_length_before_all() -> None:
    groups = [Group((trial,)) for trial in make_plan(REQUEST).trials[:3]]
    assert sort_longest_first(groups, {groups[0].key: 1.0, groups[1].key: 3.0}) == (groups[2], groups[1], groups[0])


def test_the_last_worker_decides_when_all_is_done() -> None:
    assert estimate_makespan([5, 3, 3, 3], 2) == 8
    assert estimate_makespan([5, 3, 3, 3], 1) == 14
    assert estimate_makespan([5, 3, 3, 3], 9) == 5
    assert estimate_makespan([], 2) == 0


def test_progress_counts_time_and_not_steps() -> None:
    agg, dear = make_plan(REQUEST).missing
    progress = Progress((agg, dear), {agg.key: 10.0, dear.key: 90.0})
    assert progress.share == 0
    progress.note_step(agg, 50)
    progress.note_step(dear, 10)
    assert progress.share == pytest.approx((5 + 9) / 100)
    assert {r.step for r in progress.list_running()} == {10, 50}
    progress.finish_group(agg)
    assert progress.share == pytest.approx((10 + 9) / 100)
    assert (progress.trials_done, progress.trials) == (4, 8)
    progress.finish_group(dear)
    assert progress.share == 1
    assert Progress((), {}).share == 1


def test_without_costs_every_step_counts_alike() -> None:
    agg, dear = make_plan(REQUEST).missing
    progress = Progress((agg, dear), {agg.key: 10.0})
    progress.finish_group(agg)
    assert progress.share == pytest.approx(0.5)


def test_the_time_left_is_said_once_it_means_something() -> None:
    assert estimate_seconds_left(10, 0.25) == pytest.approx(30)
    assert estimate_seconds_left(1, 0.5) is None
    assert estimate_seconds_left(100, 0.01) is None
    agg, dear = make_plan(REQUEST).missing
    progress = Progress((agg, dear), {agg.key: 1.0, dear.key: 3.0})
    progress.started = time.time() - 100
    progress.finish_group(agg)
    assert progress.left == pytest.approx(300, rel=0.01)


def test_durations_are_written_no_finer_than_they_are_known() -> None:
    assert [format_duration(s) for s in (0.1, 45, 200, 7200, 3e5)] == [
        "about 1 s", "about 45 s", "about 3 min", "about 2 h", "about 3 days",
    ]  # fmt: skip


def test_one_hears_how_many_kinds_of_group_are_timed() -> None:
    heard: list[tuple[int, int]] = []
    plan = make_plan(replace(REQUEST, trials=20))
    assert len(plan.missing) > 2
    time_groups(plan.missing, TASK, "cpu", on_progress=lambda done, of: heard.append((done, of)))
    assert heard == [(0, 2), (1, 2)]


TWO = Request(algorithms=["agg", "metareg"], held_out=["0"], trials=1, steps=20, settings=["metareg.evaluations=4"])


def test_a_net_that_waits_for_a_first_stage_gets_as_many_steps_as_any_other() -> None:
    _, metareg = make_plan(TWO).missing
    stack = build_stack(metareg.trials)
    first = stack.advance(stack.start(), 20)
    assert all(torch.equal(w, stack.start().params[n]) for n, w in stack.deploy(first).items()), (
        "still the first weights"
    )
    heard: list[int] = []
    (record,) = train(metareg, heard.append)
    assert [e.step for e in record.history] == [25, 30, 35, 40], "of the 20 steps that the net itself learns"
    assert heard == sorted(heard)
    assert heard[-1] == 40
    assert len(record.losses) == 40
    accuracy = [sum(e.source["accuracy"]) for e in record.history]
    assert accuracy[-1] > accuracy[0]


def test_the_steps_of_a_first_stage_count_in_progress_and_costs(tmp_path: Path) -> None:
    agg, metareg = make_plan(TWO).missing
    progress = Progress((agg, metareg), {})
    progress.finish_group(agg)
    assert progress.share == pytest.approx(1 / 3)
    progress.note_step(metareg, 30)
    assert progress.share == pytest.approx((20 + 30) / 60)
    assert [(r.step, r.steps) for r in progress.list_running()] == [(30, 40)]
    known = Store.create(tmp_path / "known", "rotated-mnist")
    known.add([recorded(metareg.trials[0], 7.0, name_device(torch.device("cpu")))])
    assert time_groups([metareg], TASK, "cpu", known.pace(name_device(torch.device("cpu"))))[
        metareg.key
    ] == pytest.approx(7.0), "as long as the last time"
    timed = time_groups([agg, metareg], TASK, "cpu")
    assert timed[metareg.key] > 1.5 * timed[agg.key]
