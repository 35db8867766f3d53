"""Worker processes give the records that one process gives, and may die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from digits import make_plan, make_session
from seqdg.base import Folder
from seqdg.bench import Group, InProcess, Progress, Request, execute
from seqdg.bench.execution import Executor, record_failure
from seqdg.bench.executors import workers
from seqdg.bench.executors.workers import Sender, Warned, Workers, _receive, _Worker
from seqdg.results import FAILED, Record, Store
from seqdg.training import Saving

REQUEST = Request(algorithms=["agg", "fo-s-mldg", "s-mldg"], held_out=["0", "75"], trials=2, steps=12)


def run(
    folder: Path, executor: Executor, request: Request = REQUEST, on_progress=lambda progress: None
) -> tuple[list[Record], list[Record]]:
    """All records, without what the clock says, and those that failed."""
    store = Store.create(folder, "rotated-mnist")
    failed = execute(
        make_plan(request), make_session(Saving(Folder(folder), 1e-9)), executor, store, on_progress=on_progress
    )
    return without_clock(store.records()), failed


def without_clock(records: Sequence[Record]) -> list[Record]:
    plain = [replace(r, seconds=0.0, peak_memory=0, finished=0.0) for r in records]
    return sorted(plain, key=lambda record: record.key)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    records, failed = run(tmp_path_factory.mktemp("alone"), InProcess())
    assert not failed
    assert len(records) == 12
    return records


@pytest.mark.slow
def test_workers_and_one_process_give_the_same_bits_though_a_worker_is_killed(
    tmp_path: Path, expected: list[Record]
) -> None:
    killed: list[int] = []
    executor, session = Workers(2), make_session(Saving(Folder(tmp_path), 1e-9))

    def kill(progress: Progress) -> None:
        under_way = [group for group in progress.list_running() if group.step > 0]
        if under_way and not killed:
            assert len(multiprocessing.active_children()) == 2
            victim = multiprocessing.active_children()[0]
            os.kill(victim.pid or 0, signal.SIGKILL)
            killed.append(victim.pid or 0)

    store = Store.create(tmp_path, "rotated-mnist")
    assert not execute(make_plan(REQUEST), session, executor, store, on_progress=kill)
    records = without_clock(store.records())
    assert killed
    assert records == expected
    assert all(record.weights for record in records)
    assert not multiprocessing.active_children()


DEADLY = '''
import os
from dataclasses import dataclass
from seqdg import Algorithm, register


@register("deadly")
@dataclass(frozen=True)
class Deadly(Algorithm):
    """Ends its process."""

    def gradient(self, net, params, episode):
        os._exit(7)


'''


@pytest.mark.slow
def test_a_group_over_which_all_workers_die_is_recorded_as_failed_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    request = replace(REQUEST, algorithms=[f"{tmp_path}/deadly.py:deadly", "agg"])
    records, failed = run(tmp_path, Workers(1), request)
    assert {r.algorithm for r in failed} == {"deadly"}
    assert len(failed) == 4
    assert "3 workers died over this group, the last one with exit code 7" in failed[0].error
    assert sorted(r.status for r in records) == ["done"] * 4 + [FAILED] * 4


@pytest.mark.skipif(sys.platform == "win32", reason="A pipe of Windows sends a message in one call.")
def test_a_warning_while_a_message_is_sent_comes_after_it() -> None:
    class WarningPipe(Connection):
        """Warns between the length of a large message, which is sent first, and the message."""

        def _send(self, *args: Any) -> None:
            super()._send(*args)
            if not warned:
                warned.append(True)
                sender.send_warning("This is odd.", UserWarning, "warning.py", 7)

    warned: list[bool] = []
    ours, theirs = multiprocessing.Pipe()
    sender = Sender(WarningPipe(os.dup(theirs.fileno())))
    record = "x" * 2**15
    sender.send([record])
    assert ours.recv() == [record]
    assert ours.recv() == Warned("This is odd.", "UserWarning", "warning.py", 7)


def test_a_warning_that_comes_after_ctrl_c_is_no_record() -> None:
    group, *_ = make_plan(REQUEST).missing
    warned = Warned("This is odd.", "Oddity", "warning.py", 7)
    worker = _Worker.__new__(_Worker)
    worker.group = group
    worker.pipe, other = multiprocessing.Pipe()
    worker.process = multiprocessing.get_context("spawn").Process()  # never started
    other.send(warned)
    other.close()
    with pytest.warns(Warning, match="This is odd") as caught:
        assert workers._dismiss([worker]) == []
    assert (caught[0].category.__name__, caught[0].filename, caught[0].lineno) == ("Oddity", "warning.py", 7)


def test_a_failed_trial_keeps_its_traceback_and_is_tried_again(tmp_path: Path, mistaken: str) -> None:
    request = replace(REQUEST, algorithms=[mistaken, "agg"])
    records, failed = run(tmp_path, InProcess(), request)
    assert len(failed) == 4
    assert sum(r.status == "done" for r in records) == 4
    store = Store.open(tmp_path)
    assert len(store.failures()) == 4
    assert "Traceback" in store.failures()[0][1]
    assert "ArithmeticError: two and two is five" in store.failures()[0][1]
    (again,) = make_plan(request, store.finished()).missing
    assert {t.key for t in again.trials} == {key for key, _ in store.failures()}


@pytest.mark.slow
def test_workers_that_were_started_are_sent_away_where_another_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = _Worker.start, list[BaseProcess]()

    def interrupt(worker: _Worker) -> None:
        if started:
            raise KeyboardInterrupt
        start(worker)
        started.append(worker.process)

    monkeypatch.setattr(_Worker, "start", interrupt)
    executor, session = Workers(2), make_session()
    groups = executor(make_plan(REQUEST).missing, session, lambda group, step: None)
    with pytest.raises(KeyboardInterrupt) as stopped:  # as long as its traceback is alive, so are the pipes in it
        next(groups)
    assert stopped.tb is not None
    assert [process.is_alive() for process in started] == [False]


def test_a_worker_whose_start_is_interrupted_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def interrupt() -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    before = multiprocessing.active_children()
    monkeypatch.setattr(workers, "_block_interrupts", interrupt)
    with pytest.raises(KeyboardInterrupt) as stopped:
        _Worker(make_session())
    assert stopped.tb is not None
    assert multiprocessing.active_children() == before


def test_what_a_worker_finishes_after_ctrl_c_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = make_plan(REQUEST).missing
    records = record_failure(first, make_session(), "")

    def send_all(worker: _Worker) -> None:
        worker.pipe, other = multiprocessing.Pipe()
        worker.process = multiprocessing.get_context("spawn").Process()  # never started
        for message in (3, 6, records):
            other.send(message)
        other.close()

    def interrupt(group: Group, step: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(_Worker, "start", send_all)
    results = Workers(1)((first, second), make_session(), interrupt)
    assert next(results) == (first, records)
    with pytest.raises(KeyboardInterrupt):
        next(results)


def test_a_worker_has_its_next_group_before_its_records_are_stored() -> None:
    first, second, third = make_plan(REQUEST).missing
    worker, told = _Worker.__new__(_Worker), []
    worker.pipe, other = multiprocessing.Pipe()
    worker.group, worker.attempt = first, 1
    other.send([])
    waiting = deque([(second, 1), (third, 1)])
    for group, records in _receive(worker, waiting, lambda group, step: told.append((group, step))):
        assert (group, records) == (first, [])
        assert other.recv() == second
        assert not told, "what is told may fail, and the records are not stored yet"
    assert worker.group is second
    assert told == [(second, 0)]
    assert list(waiting) == [(third, 1)]


@pytest.mark.slow
def test_a_worker_that_is_still_starting_does_not_hear_ctrl_c():
    worker = _Worker(make_session())
    assert worker.process.pid is not None
    os.kill(worker.process.pid, signal.SIGINT)  # before it could import anything
    worker.pipe.send(None)
    worker.process.join(60)
    assert worker.process.exitcode == 0
    worker.pipe.close()
