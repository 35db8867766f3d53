"""Worker processes on a GPU, several to one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from digits import make_plan, make_session
from seqdg.bench import InProcess, Request, Workers, execute
from seqdg.results import Record, Store

REQUEST = Request(algorithms=["agg", "fo-s-mldg", "s-mldg"], held_out=["0", "75"], trials=2, steps=12)


@pytest.mark.gpu
def test_workers_that_share_a_gpu_give_what_one_process_gives(tmp_path: Path) -> None:
    here = make_session(device="cuda:0")
    plan = make_plan(REQUEST, device="cuda:0")
    found: list[list[Record]] = []
    for executor in (Workers(2, ("cuda:0",)), InProcess()):
        folder = tmp_path / type(executor).__name__
        folder.mkdir()
        store = Store.create(folder, "rotated-mnist")
        assert not execute(plan, here, executor, store)
        plain = [replace(r, seconds=0.0, peak_memory=0, finished=0.0) for r in store.records()]
        found.append(sorted(plain, key=lambda record: record.key))
    assert len(found[0]) == 12
    assert found[0] == found[1]
