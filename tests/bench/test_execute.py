"""Groups go to a sink as they end; what fails is said, and what is finished leaves no checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from digits import TASK, make_plan, make_session, train
from seqdg.base import Folder, UsageError
from seqdg.bench import InProcess, MemorySink, Plan, Request, TrainingFailed, execute, remove_checkpoints
from seqdg.bench.execution import record_failure
from seqdg.results import DONE, FAILED, Record, RunningGroup, RunProgress, Store
from seqdg.training import FOLDER, Saving, name_checkpoint

REQUEST = Request(algorithms=["agg", "fo-s-mldg"], held_out=["0"], trials=2, steps=4)


@pytest.fixture(scope="module")
def wanted() -> Plan:
    return make_plan(REQUEST)


def test_memory_holds_every_record_by_the_key_of_its_trial(wanted: Plan) -> None:
    sink = MemorySink()
    assert execute(wanted, make_session(), InProcess(), sink) == []
    assert set(sink.records) == {t.key for t in wanted.trials}
    assert all(r.status == DONE and r.key == key for key, r in sink.records.items())


def test_memory_raises_with_the_reason_where_a_trial_fails(wanted: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*about: object) -> None:
        raise ValueError("the cat sat on the cable")

    monkeypatch.setattr(type(TASK), "find_net", fail)
    with pytest.raises(TrainingFailed, match=r"Training \S+ failed") as caught:
        execute(wanted, make_session(), InProcess(), MemorySink())
    assert caught.value.reason == "ValueError: the cat sat on the cable"
    assert caught.value.record.status == FAILED
    assert "Traceback" in str(caught.value)


def test_a_store_keeps_failures_and_the_other_groups_are_run(
    wanted: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = type(TASK).find_net

    def fail_once(task: object, trial: object) -> object:
        if trial.algorithm == "agg":  # type: ignore[attr-defined]
            raise ValueError("no net")
        return find(task, trial)  # type: ignore[arg-type]

    monkeypatch.setattr(type(TASK), "find_net", fail_once)
    store = Store.create(tmp_path, "rotated-mnist")
    failed = execute(wanted, make_session(), InProcess(), store, {})
    assert {r.algorithm for r in failed} == {"agg"}
    assert {r.algorithm: r.status for r in store.records()} == {"agg": FAILED, "fo-s-mldg": DONE}
    assert store.finished() == {t.key for t in wanted.trials if t.algorithm == "fo-s-mldg"}


class FullStore(MemorySink):
    """Cannot write notes at all, nor records after the first group."""

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        raise UsageError("Nothing more can be written")

    def add(self, records: Iterable[Record], group: str = "") -> None:
        if self.records:
            raise UsageError("Nothing more can be written")
        super().add(records, group)


def test_a_full_store_ends_the_run_at_the_next_records_and_not_at_a_note(wanted: Plan, tmp_path: Path) -> None:
    store, files = FullStore(), Folder(tmp_path)
    kept = replace(make_session(), saving=Saving(files, 1e-9))
    with pytest.raises(UsageError, match="Nothing more can be written"):
        execute(wanted, kept, InProcess(), store)
    assert len(store.records) == 2, "the first group is stored whole"
    (left,) = files.list_names(FOLDER)
    assert left in {name_checkpoint(g.key) for g in wanted.groups}, "the second group's checkpoint stays"


def test_checkpoints_of_finished_groups_are_removed_and_others_stay(wanted: Plan, tmp_path: Path) -> None:
    files = Folder(tmp_path)
    sink = MemorySink()
    execute(wanted, make_session(Saving(files, 1e-9)), InProcess(), sink)
    assert list(files.list_names(FOLDER)) == []

    def stop(step: int) -> None:
        raise KeyboardInterrupt

    for group in wanted.groups:
        with pytest.raises(KeyboardInterrupt):
            train(group, stop, Saving(files, 1e9))
    assert len(list(files.list_names(FOLDER))) == 2
    files.write(f"{FOLDER}/stray.safetensors", b"no checkpoint")
    first, second = wanted.groups
    with pytest.warns(UserWarning, match=r"stray\.safetensors is removed, and its trials start anew"):
        remove_checkpoints(files, {t.key for t in first.trials} | {second.trials[0].key})
    assert list(files.list_names(FOLDER)) == [name_checkpoint(second.key)]


def test_a_group_that_failed_has_a_record_for_each_trial(wanted: Plan) -> None:
    group = wanted.groups[0]
    records = record_failure(group, make_session(), "Traceback\nKilled")
    assert [r.key for r in records] == [t.key for t in group.trials]
    assert all(r.status == FAILED and r.stacked == len(group.trials) for r in records)
