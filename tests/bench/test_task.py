"""A task is small, the same in every process, and gives a trial inputs that follow from its own sources."""

from __future__ import annotations

import pickle
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from seqdg.bench import STACK, Draft, Group, Session, StackLearner, Trial
from seqdg.bench import task as task_module
from seqdg.bench.planning import plan
from seqdg.bench.task import RowsInMemory, RowsOnDisk, RowSource, Task
from seqdg.data import Dataset, derive
from seqdg.nets import NetSpec
from seqdg.training import Protocol

DOMAINS = ("art", "photo", "sketch")
PROTOCOL = Protocol(steps=3, batch=4, evaluations=1, precision="float64")
CPU = torch.device("cpu")


def make_rows(seed: int = 0, rows: int = 20) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows of each domain, of another mean and spread, with classes of unequal size."""
    draw = np.random.default_rng(seed)
    y = np.arange(rows) % 5 // 3
    return {name: (draw.normal(10 * d, 1 + d, (rows, 4)).astype(np.float32), y) for d, name in enumerate(DOMAINS)}


def make_dataset(parts: dict[str, tuple[np.ndarray, np.ndarray]], fingerprint: str = "0" * 64) -> Dataset:
    return Dataset(
        name="three",
        domains=tuple(parts),
        classes=("0", "1"),
        x=torch.from_numpy(np.concatenate([x for x, _ in parts.values()])),
        y=torch.from_numpy(np.concatenate([y for _, y in parts.values()])),
        domain=torch.arange(len(parts)).repeat_interleave(20),
        fingerprint=fingerprint,
    )


def make_task(rows: RowSource, **more: object) -> Task:
    return replace(Task("three", rows, NetSpec("mlp", hidden=(3,)), "none", PROTOCOL), **more)  # type: ignore[arg-type]


def list_trials(task: Task, seeds: range = range(2)) -> tuple[Trial, ...]:
    candidate = StackLearner().propose(Draft("agg", PROTOCOL))
    return plan(task, candidate, [(name,) for name in DOMAINS], seeds).trials


@pytest.fixture
def files(tmp_path: Path) -> RowsOnDisk:
    (tmp_path / "set").mkdir()
    for name, (x, y) in make_rows().items():
        np.savez(tmp_path / "set" / f"{name}.npz", x=x, y=y)
    return RowsOnDisk("three", {"path": "set"}, tmp_path)


def test_tasks_of_files_and_of_memory_pickle_and_give_the_same_trials_and_records(files: RowsOnDisk) -> None:
    loaded = files.load()
    memory = RowsInMemory(make_dataset(make_rows(), loaded.fingerprint))
    assert torch.equal(loaded.x, memory.dataset.x)
    weights = []
    for rows in (files, memory):
        task = make_task(rows)
        trials = list_trials(task)
        again: Task = pickle.loads(pickle.dumps(task))
        assert [t.key for t in list_trials(again)] == [t.key for t in trials]
        assert len({t.key for t in trials}) == 6
        weights.append([r.weights for r in STACK.train(Group(trials), Session(task))])
        assert [r.weights for r in STACK.train(Group(trials), Session(again))] == weights[-1]
    assert weights[0] == weights[1]


def test_a_task_reads_its_files_once_and_does_not_carry_them(
    files: RowsOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(files)
    first = task.dataset()
    assert replace(task, title="another").dataset() is first
    assert len(pickle.dumps(task)) < 4000
    again: Task = pickle.loads(pickle.dumps(task))
    assert again.rows == task.rows
    monkeypatch.setattr(task_module, "load_data", lambda *about: pytest.fail("the files are read again"))
    assert task.dataset() is first


def test_a_new_task_of_files_that_were_changed_has_their_new_rows(files: RowsOnDisk) -> None:
    before = make_task(replace(files)).dataset()
    assert files.root is not None
    file = files.root / "set" / "art.npz"
    with np.load(file) as old:
        np.savez(file, x=old["x"] + 1, y=old["y"])
    after = make_task(replace(files)).dataset()
    assert torch.equal(after.x[:20], before.x[:20] + 1)
    assert after.fingerprint != before.fingerprint


def test_a_trial_has_another_key_where_a_value_of_its_rows_is_another(tmp_path: Path) -> None:
    keys = set()
    for change in (0.0, 1.0):
        root = tmp_path / str(change)
        (root / "set").mkdir(parents=True)
        for name, (x, y) in make_rows().items():
            x[0, 0] += change
            np.savez(root / "set" / f"{name}.npz", x=x, y=y)
        keys |= {t.key for t in list_trials(make_task(RowsOnDisk("three", {"path": "set"}, root)), range(1))}
    assert len(keys) == 6


def test_rows_move_to_a_device_once_and_leave_with_their_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    monkeypatch.setattr(task_module, "move_to_device", lambda x, device: moved.append(device) or x.clone())
    task = make_task(RowsInMemory(make_dataset(make_rows())))
    trials = list_trials(task)
    first = task.make_inputs(trials, task.build_net(trials[0]).normalization, CPU)
    second = task.make_inputs(trials, task.build_net(trials[0]).normalization, CPU)
    assert moved == [CPU]
    assert torch.equal(first.serve(torch.arange(3)[None])[0], second.serve(torch.arange(3)[None])[0])
    rows = weakref.ref(derive(task.dataset(), CPU, pytest.fail))
    del task, first, second
    assert rows() is None


def test_constants_of_a_trial_come_from_its_own_sources_alone() -> None:
    parts = make_rows()
    task = make_task(RowsInMemory(make_dataset(parts)), numbers=4)
    other = {**parts, "sketch": (1000 * parts["sketch"][0], parts["sketch"][1])}
    changed = make_task(RowsInMemory(make_dataset(other)), numbers=4)
    rows = torch.arange(40).repeat(3, 1)  # of art and photo, for trials that hold out art, photo and sketch

    def serve(task: Task) -> torch.Tensor:
        trials = list_trials(task, range(1))
        return task.make_inputs(trials, task.build_net(trials[0]).normalization, CPU).serve(rows)[0]

    before, after = serve(task), serve(changed)
    assert torch.equal(before[2], after[2]), "sketch is held out, and changes nothing"
    assert not torch.allclose(before[0], after[0])
    assert not torch.allclose(before[1], after[1])
    sources = np.concatenate([parts["art"][0], parts["photo"][0]]).astype(np.float64)
    want = (sources - sources.mean(0)) / sources.std(0)
    np.testing.assert_allclose(before[2].numpy(), want, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_with_class_weights_too_a_trial_gives_the_same_numbers_alone_and_in_a_group(class_weight: str | None) -> None:
    task = make_task(RowsInMemory(make_dataset(make_rows())), class_weight=class_weight)
    candidates = tuple(StackLearner().propose(Draft("agg", PROTOCOL)))
    planned = plan(task, candidates, [("art",), ("photo",)], range(3))
    for group in planned.groups:
        together = STACK.train(group, Session(task))
        for trial, record in zip(group.trials, together, strict=True):
            (alone,) = STACK.train(Group((trial,)), Session(task))
            assert alone.losses == pytest.approx(record.losses, rel=1e-9)


def test_rows_that_were_moved_to_a_device_stay_there_though_there_is_less_room_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, device = make_task(RowsInMemory(make_dataset(make_rows()))), torch.device("cpu")
    first = task._move_rows(task.dataset(), device)
    monkeypatch.setattr(task_module, "fits_on", lambda x, device: False)
    assert task._move_rows(task.dataset(), device) is first
    other = make_task(RowsInMemory(make_dataset(make_rows())))
    assert other._move_rows(other.dataset(), device) is other.dataset().x
    monkeypatch.setattr(task_module, "fits_on", lambda x, device: True)
    monkeypatch.setattr(task_module, "move_to_device", lambda x, device: pytest.fail("it is decided once"))
    assert other._move_rows(other.dataset(), device) is other.dataset().x


def test_the_constants_of_sources_are_learned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(make_rows())
    first = task_module._find_constants(dataset, (DOMAINS[0],), 2, "standard")
    monkeypatch.setattr(task_module, "learn_scaling", lambda x, how: pytest.fail("it is learned again"))
    assert task_module._find_constants(dataset, (DOMAINS[0],), 2, "standard") is first


def test_a_file_that_says_scale_gives_each_trial_constants_of_its_own_sources(files: RowsOnDisk) -> None:
    with np.load(files.root / "set" / "art.npz") as arrays:  # a gap in one row
        x, y = arrays["x"].copy(), arrays["y"]
    x[0, 1] = np.nan
    np.savez(files.root / "set" / "art.npz", x=x, y=y)
    rows = RowsOnDisk("three", {"path": "set", "scale": True}, files.root)
    task, by_hand = make_task(rows), make_task(rows, numbers=4)
    trials = list_trials(task, range(1))
    every = torch.arange(60)
    for trial in trials:
        inputs, same = (t.make_inputs([trial], t.build_net(trial).normalization, CPU) for t in (task, by_hand))
        served = inputs.serve(every[None])[0][0]
        assert torch.equal(served, same.serve(every[None])[0][0])
        assert torch.isfinite(served).all()
        sources = torch.cat([task.dataset().rows(name) for name in DOMAINS if name not in trial.held_out])
        torch.testing.assert_close(served[sources].mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-6, rtol=0)
