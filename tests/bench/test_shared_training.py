"""Averages change no training: `agg`, `agg+ema`, `agg+sma` and `agg+swad` of one plan train once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from command import seqdg
from digits import TASK, build_stack, make_plan, make_session, train
from seqdg.base import Folder
from seqdg.bench import Group, InProcess, MemorySink, Plan, Progress, Request, execute, rerun
from seqdg.bench.learners.stack_learner import share_trainings
from seqdg.bench.planning import time_groups
from seqdg.results import Record, Store
from seqdg.training import Saving

FOUR = ["agg", "agg+ema", "agg+sma", "agg+swad"]
SET = ["agg.evaluations=10", "agg.lr=3"]  # so large that the loss soon rises, and SWAD has a valley
REQUEST = Request(algorithms=FOUR, held_out=["0", "75"], trials=2, steps=20, settings=SET)


def told(record: Record) -> tuple[object, ...]:
    """What training gave, without what the clock says."""
    return record.key, record.status, record.weights, record.history, record.losses


def run(plan: Plan) -> dict[str, Record]:
    memory = MemorySink()
    execute(plan, make_session(), InProcess(), memory)
    return memory.records


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return run(make_plan(REQUEST))


def test_four_algorithms_are_one_group_of_as_many_trainings_as_one_of_them() -> None:
    (group,) = make_plan(REQUEST).groups
    assert len(group.trials) == 16
    assert [[t.short_name for t in trials] for trials in group.trainings] == [FOUR] * 4
    assert len(build_stack(group.trials).jobs) == 4


@pytest.mark.slow
def test_the_four_have_records_of_their_own(records: dict[str, Record]) -> None:
    plan = make_plan(REQUEST)
    by_name = {name: [records[t.key] for t in plan.trials if t.short_name == name] for name in FOUR}
    assert {name: len(found) for name, found in by_name.items()} == dict.fromkeys(FOUR, 4)
    for found in zip(*by_name.values(), strict=True):
        assert len({r.weights for r in found}) == 4, "each deploys other weights"
        assert len({tuple(r.losses) for r in found}) == 1, "all have the losses of one training"
        assert {r.stacked for r in found} == {4}


@pytest.mark.parametrize("name", FOUR)
def test_each_is_to_the_bit_as_if_it_were_asked_for_alone(name: str, records: dict[str, Record]) -> None:
    alone = run(make_plan(replace(REQUEST, algorithms=[name])))
    assert len(alone) == 4
    assert [told(r) for r in alone.values()] == [told(records[key]) for key in alone]


def test_what_is_asked_for_later_is_trained_later_and_the_same(records: dict[str, Record]) -> None:
    first = make_plan(replace(REQUEST, algorithms=["agg", "agg+sma"]))
    rest = make_plan(REQUEST, finished=[t.key for t in first.trials])
    (missing,) = rest.missing
    assert {t.short_name for t in missing.trials} == {"agg+ema", "agg+swad"}
    found = run(rest)
    assert [told(r) for r in found.values()] == [told(records[key]) for key in found]


def test_where_trainings_lack_different_records_all_of_them_come(records: dict[str, Record]) -> None:
    (group,) = make_plan(REQUEST).groups
    wanted = [trial for i, trial in enumerate(group.trials) if i not in (0, 2, 5, 6, 7, 9)]  # another lack in each
    ragged = train(Group(tuple(wanted)))
    assert [r.key for r in ragged] == [t.key for t in wanted], "in the order of the group"
    assert [told(r) for r in ragged] == [told(records[r.key]) for r in ragged]


def test_candidates_that_differ_in_the_average_alone_share_a_training() -> None:
    settings = [f"agg+ema.decay={d}" for d in (0.5, 0.9)]
    trials = [make_plan(replace(REQUEST, algorithms=["agg+ema"], settings=[*SET, s])).trials[0] for s in settings]
    group = Group(tuple(trials))
    assert len(group.trainings) == 1
    ((algorithm, views),) = share_trainings(group)
    assert len(views) == 3
    assert views[0] is None
    both = train(group)
    assert both[0].weights != both[1].weights
    for record, trial in zip(both, trials, strict=True):
        (alone,) = train(Group((trial,)))
        assert told(record) == told(alone)
    assert len(algorithm.averages) == 2  # type: ignore[attr-defined]


def test_chains_share_what_they_wrap_and_nothing_else() -> None:
    names = ["agg", "agg+mixup", "agg+mixup+ema", "agg+mixup+sma", "agg+sam+ema"]
    plan = make_plan(replace(REQUEST, algorithms=names, held_out=["0"], trials=1))
    assert sorted([t.short_name for t in g.trials] for g in plan.groups) == [
        ["agg"],
        ["agg+mixup", "agg+mixup+ema", "agg+mixup+sma"],
        ["agg+sam+ema"],
    ]


def test_progress_and_cost_count_a_training_once() -> None:
    four, one = make_plan(REQUEST), make_plan(replace(REQUEST, algorithms=["agg"]))
    assert four.work == one.work == 4 * 20
    progress = Progress(four.missing, {})
    (group,) = four.missing
    progress.note_step(group, 10)
    assert progress.share == pytest.approx(0.5)
    assert progress.list_running()[0].step == 10
    kind = ("agg", 1, "float32")
    assert time_groups(four.missing, TASK, "cpu", {kind: 0.5}) == {group.key: 0.5 * 4 * 20}


@pytest.mark.slow
def test_checkpoints_of_a_shared_training_resume_all_its_records(tmp_path: Path, records: dict[str, Record]) -> None:
    (group,) = make_plan(REQUEST).groups
    saving = Saving(Folder(tmp_path), 3600.0)

    def interrupt(step: int) -> None:
        if step >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(group, interrupt, saving)
    resumed = train(group, saving=saving)
    assert [told(r) for r in resumed] == [told(records[t.key]) for t in group.trials]


def test_saved_weights_are_those_that_each_deploys(tmp_path: Path) -> None:
    (group,) = make_plan(replace(REQUEST, held_out=["0"], trials=1)).groups
    train(group, saving=Saving(Folder(tmp_path), weights=True))
    saved = [load_file(tmp_path / "weights" / f"{t.key}.safetensors") for t in group.trials]
    assert len(saved) == 4
    for other in saved[1:]:
        assert any(not torch.equal(saved[0][name], other[name]) for name in saved[0])


@pytest.mark.slow
@pytest.mark.parametrize("order", [FOUR, FOUR[::-1]])
def test_an_averaged_record_is_trained_again_in_its_stack(tmp_path: Path, order: Sequence[str]) -> None:
    plan, store = make_plan(replace(REQUEST, algorithms=order)), Store.create(tmp_path, "rotated-mnist")
    execute(plan, make_session(), InProcess(), store)
    stored = store.records()
    wanted = [r for r in stored if r.algorithm in ("agg+ema", "agg+swad")][::4]
    repeats = list(rerun(stored, wanted, make_session(), store.groups()))
    assert len(repeats) == 2
    for repeat in repeats:
        assert repeat.stacked
        assert repeat.same_weights
        assert repeat.allowed == 0.0
        assert repeat.agrees


@pytest.mark.slow
def test_workers_give_the_same_records_as_one_process(tmp_path: Path, records: dict[str, Record]) -> None:
    words = [
        "bench",
        "--algorithms",
        ",".join(FOUR),
        "--held-out",
        "0,75",
        "--trials",
        2,
        "--steps",
        20,
        *(w for s in SET for w in ("--set", s)),
    ]
    done = seqdg(*words, "--workers", 2, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    found = {r.key: r for r in Store.open(tmp_path).records()}
    assert {key: r.weights for key, r in found.items()} == {key: r.weights for key, r in records.items()}
    table = seqdg("table", tmp_path, "--cost").stdout
    assert "4 trainings in" in table
    assert "agg+swad" in table


@pytest.mark.ray
@pytest.mark.soak
def test_ray_gives_the_same_records_as_one_process(tmp_path: Path, records: dict[str, Record]) -> None:
    pytest.importorskip("ray", reason="Ray is not installed here.")
    words = ["bench", "--algorithms", ",".join(FOUR), "--held-out", "0,75", "--trials", "2", "--steps", "20"]
    words += [*(w for s in SET for w in ("--set", s)), "--executor", "ray", "--workers", "1", "--device", "cpu"]
    command = [sys.executable, "-c", "from seqdg.cli import main; main()", *words, "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found = {r.key: r for r in Store.open(tmp_path).records()}
    assert {key: r.weights for key, r in found.items()} == {key: r.weights for key, r in records.items()}
