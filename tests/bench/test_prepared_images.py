"""Images that every step would resize in the same way are resized once, to the same bits, where they fit."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqdg.bench import STACK, Group, RowsInMemory, Session, Task, Trial, build_stack
from seqdg.bench import task as bench_task
from seqdg.data import Dataset, augment, derive
from seqdg.nets import NetSpec
from seqdg.training import Protocol

CPU = torch.device("cpu")
ROWS, STORED, SIZE = 48, 21, 8


def make_task(
    tmp_path: Path | None = None, net: str = "mlp", precision: str = "float32", side: int = STORED, recipe: str = ""
) -> Task:
    """Make a task of a new data set, whose images are a memory map where there is a folder."""
    x: Any = np.random.default_rng(0).integers(0, 256, (ROWS, 3, side, side + 1), dtype=np.uint8)
    if tmp_path is None:
        x = torch.from_numpy(x)
    else:
        np.save(tmp_path / "x.npy", x)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    place = torch.arange(ROWS)
    dataset = Dataset("noise", tuple("abc"), ("0", "1"), x, place // 3 % 2, place % 3, "noise")
    protocol = Protocol(steps=4, batch=5, lr=0.1, evaluations=2, precision=precision)
    spec = NetSpec(net, (6,) if net == "mlp" else ())
    policy = "none" if net == "mlp" else "frozen"
    return Task("noise", RowsInMemory(dataset), spec, policy, protocol, SIZE, recipe)


def list_trials(task: Task, count: int) -> tuple[Trial, ...]:
    return tuple(task.make_trial("agg", {}, task.protocol, ("a",), seed) for seed in range(count))


def load(task: Task, count: int) -> tuple[bool, list[Tensor]]:
    """Say whether the images are prepared, and return what enters the net in three steps and two evaluations."""
    trials = list_trials(task, count)
    inputs = task.make_inputs(trials, task.build_net(trials[0]).normalization, CPU)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(ROWS, (3, count, 2, 5), generator=generator)
    steps = [x for x, _ in inputs.load_steps(rows, torch.zeros(3, count, dtype=torch.int64))]
    return inputs.prepared is not None, [*steps, inputs.serve(rows[0, :, 0])[0], inputs.serve(rows[0, 0, 0])[0]]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("is_map", [False, True])
def test_what_enters_the_net_is_the_same_to_the_bit_and_lies_in_memory_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_map: bool, precision: str, count: int
) -> None:
    is_prepared, once = load(make_task(tmp_path if is_map else None, precision=precision), count)
    monkeypatch.setattr(bench_task, "READY", 0)
    is_too, at_every_step = load(make_task(tmp_path if is_map else None, precision=precision), count)
    assert is_prepared
    assert not is_too
    for x, same in zip(once, at_every_step, strict=True):
        assert x.dtype == same.dtype == getattr(torch, precision)
        assert torch.equal(x, same)
        assert x.stride() == same.stride()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("net", ["mlp", "resnet18"])
def test_trainings_end_with_the_same_weights_and_metrics(monkeypatch: pytest.MonkeyPatch, net: str, count: int) -> None:
    records = []
    for limit in (bench_task.READY, 0):
        monkeypatch.setattr(bench_task, "READY", limit)
        task = make_task(net=net)
        made = STACK.train(Group(list_trials(task, count)), Session(task))
        records.append([(r.key, r.weights, r.history, r.losses) for r in made])
        assert all(r.weights for r in made)
    assert records[0] == records[1]


def test_as_many_rows_are_predicted_at_once_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of matrices is rounded in another way where it has another number of rows."""
    once = []
    for limit in (bench_task.READY, 0):
        monkeypatch.setattr(bench_task, "READY", limit)
        task = make_task()
        once.append(build_stack(Group(list_trials(task, 1)), task, CPU)._count_rows_together(1))
    assert once == [2**23 // (3 * STORED * (STORED + 1))] * 2


def count_resized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of images whenever some are resized."""
    resized: list[int] = []
    real = augment.interpolate

    def resize(images: Tensor, **how: Any) -> Tensor:
        resized.append(len(images))
        return real(images, **how)

    monkeypatch.setattr(augment, "interpolate", resize)
    return resized


@pytest.mark.parametrize("is_map", [False, True])
def test_an_image_is_resized_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_map: bool) -> None:
    task = make_task(tmp_path if is_map else None)
    resized = count_resized(monkeypatch)
    for count in (1, 2):
        STACK.train(Group(list_trials(task, count)), Session(task))
    assert sum(resized) == ROWS + 1, "each once, and one that tells the shape"


def test_images_are_worked_on_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task()
    trials = list_trials(task, 1)
    inputs = task.make_inputs(trials, task.build_net(trials[0]).normalization, CPU)
    resized = count_resized(monkeypatch)
    assert inputs.prepared is not None
    assert torch.equal(inputs.prepare_rows(together=20 * inputs.size), inputs.prepared)
    assert resized == [1, 20, 20, 8]


def is_prepared(task: Task) -> bool:
    trials = list_trials(task, 1)
    return task.make_inputs(trials, task.build_net(trials[0]).normalization, CPU).prepared is not None


def test_images_stay_as_they_are_where_steps_change_them_or_none_is_resized() -> None:
    assert is_prepared(make_task())
    assert not is_prepared(make_task(recipe="pacs"))
    square = make_task()
    dataset = square.dataset()
    square = replace(square, rows=RowsInMemory(replace(dataset, x=dataset.x[..., :SIZE, :SIZE].contiguous())))
    assert not is_prepared(square)


def test_images_are_kept_where_they_take_at_most_four_times_their_bytes() -> None:
    assert is_prepared(make_task(side=SIZE))
    assert not is_prepared(make_task(side=SIZE - 1))
    assert is_prepared(make_task(side=11, precision="float64"))
    assert not is_prepared(make_task(side=10, precision="float64")), "2 x 8 x 8 > 10 x 11"


def test_images_are_kept_in_at_most_a_quarter_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ROWS * 3 * SIZE**2 * 4
    monkeypatch.setattr(bench_task, "measure_free_memory", lambda: 4 * needed)
    assert is_prepared(make_task())
    monkeypatch.setattr(bench_task, "measure_free_memory", lambda: 4 * needed - 1)
    assert not is_prepared(make_task())
    monkeypatch.setattr(bench_task, "measure_free_memory", lambda: None)
    assert is_prepared(make_task())


def test_one_size_is_kept_at_a_time_and_leaves_with_its_data_set() -> None:
    task = make_task()
    for size in (SIZE, 5):
        other = replace(task, size=size)
        trials = list_trials(other, 1)
        served = other.make_inputs(trials, other.build_net(trials[0]).normalization, CPU).serve(torch.arange(2)[None])[
            0
        ]
        (kept,) = derive(task.dataset(), "images", dict).values()
        assert kept is not None
        assert kept.shape == (ROWS, 3, size, size)
        assert torch.equal(served[0], kept[:2])
    kept = weakref.ref(kept)
    del task, other
    assert kept() is None
