"""How often a run reads and builds what it needs: once."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seqdg
from digits import TASK, make_plan
from seqdg.bench import Request, Task, Trial, planning
from seqdg.bench import benchmark as benchmark_module
from seqdg.bench import task as task_module
from seqdg.cli import main
from seqdg.nets import BuiltNet
from seqdg.results import Store


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often a net was built, by the seed of its trial."""
    counts: Counter[int] = Counter()
    build = Task.build_net

    def count(task: Task, trial: Trial) -> BuiltNet:
        counts[trial.seed] += 1
        return build(task, trial)

    monkeypatch.setattr(Task, "build_net", count)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithms", "expected"),
    [
        (["agg", "fo-s-mldg"], {0: 1, 1: 1}),
        (["agg", "logistic"], {0: 1, 1: 1}),
        (["knn", "logistic"], {}),
    ],
)
def test_a_run_builds_the_net_of_a_seed_once_and_none_that_nothing_trains(
    algorithms: list[str], expected: dict[int, int], built: Counter[int], tmp_path: Path
) -> None:
    seqdg.run(
        "rotated-mnist", algorithms=algorithms, held_out=["0", "75"], trials=2, steps=4, workers=0, out=tmp_path,
    )  # fmt: skip
    assert built == expected


def test_a_plan_of_many_trials_builds_one_net(built: Counter[int]) -> None:
    task = replace(TASK)
    trials = make_plan(Request(algorithms=["agg", "fo-s-mldg", "logistic"], trials=3)).trials
    built.clear()
    planned = planning.plan_further(task, trials)
    assert len(planned.trials) == len(trials)
    assert built == {0: 1}


def test_nets_are_kept_while_they_take_little_memory_and_as_long_as_their_task(
    built: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = replace(TASK)
    first, second = (replace(make_plan(Request(algorithms=["agg"], trials=1)).trials[0], seed=s) for s in (0, 1))
    built.clear()
    size = sum(w.nbytes for w in task.find_net(first).module.state_dict().values())
    monkeypatch.setattr(task_module, "KEPT", size)
    assert task.find_net(first) is task.find_net(first)
    task.find_net(second)  # takes the place of the first
    task.find_net(first)
    assert built == {0: 2, 1: 1}
    monkeypatch.setattr(task_module, "KEPT", size - 1)
    task.find_net(second)
    task.find_net(second)
    assert built == {0: 2, 1: 3}
    monkeypatch.setattr(task_module, "KEPT", size)
    kept = weakref.ref(task.find_net(second).module)
    assert kept() is task.find_net(second).module
    del task
    assert kept() is None


def test_a_run_reads_the_benchmarks_file_and_its_own_store_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*values: Any, **named: Any) -> Any:
            calls[name] += 1
            return original(*values, **named)

        monkeypatch.setattr(owner, name, counted)

    count(benchmark_module, "load_benchmark")
    count(Store, "_find_damage")
    count(Store, "records")
    command = "seqdg bench rotated-mnist --algorithms agg --held-out 0 --trials 2 --steps 4 --workers 0 --out"
    monkeypatch.setattr(sys, "argv", [*command.split(), str(tmp_path / "run")])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert "average" in capsys.readouterr().out
    assert calls == {"load_benchmark": 1, "_find_damage": 1, "records": 1}  # for the table
