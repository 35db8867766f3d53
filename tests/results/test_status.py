"""How a run stands is read from its directory, whether it goes on or not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from seqdg.results import DIVERGED, DONE, FAILED, Record, RunningGroup, RunProgress, Store, lock_directory, read_status


def record(key: str, state: str, error: str = "") -> Record:
    return Record(key, {"algorithm": "agg", "held_out": ["a"], "seed": 0}, state, error=error)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Ten trials: 3 done, 1 diverged, 2 failed (one of them running again), 4 left; and a stranger."""
    store = Store.create(tmp_path, "bench")
    groups = {f"k{i}": "first" if i < 7 else "second" for i in range(8)}
    store.begin({**groups, "k8": "third", "k9": "third"})
    store.add([record(f"k{i}", DONE) for i in range(3)] + [record("k3", DIVERGED), record("other", DONE)])
    store.add([record("k4", FAILED, "Traceback\nOldError: x"), record("k7", FAILED, "Traceback\nNewError: y\n")])
    store.note(RunProgress(time.time() - 100, time.time(), 0.25), [RunningGroup("second", "agg", 1, 50, 200)])
    store.close()
    return tmp_path


def test_a_run_that_goes_on_says_what_is_under_way_and_how_long_it_will_take(directory: Path) -> None:
    with lock_directory(directory):
        now = read_status(directory)
    assert now.active
    assert (now.planned, now.done, now.diverged, now.failed, now.running, now.left) == (10, 3, 1, 1, 1, 4)
    assert now.others == 1
    assert now.groups == (RunningGroup("second", "agg", 1, 50, 200),)
    assert now.seconds_left == pytest.approx(300, rel=0.05)
    assert now.error == "NewError: y"


def test_of_a_run_that_was_killed_nothing_is_running(directory: Path) -> None:
    now = read_status(directory)
    assert not now.active
    assert (now.planned, now.done, now.diverged, now.failed, now.running, now.left) == (10, 3, 1, 2, 0, 4)
    assert now.groups == ()
    assert now.seconds_left is None


def test_asking_does_not_keep_a_run_from_starting(directory: Path) -> None:
    read_status(directory)
    with lock_directory(directory):
        assert read_status(directory).active


def test_a_group_that_is_stored_is_no_longer_running(directory: Path) -> None:
    store = Store.create(directory, "bench")
    store.add([record("k7", DONE)], "second")
    assert store.running() == []
