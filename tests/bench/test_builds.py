"""How often a run builds a net: to check its plan, to time its groups and to train them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import seqdg
from digits import TASK, make_plan
from seqdg.bench import Request, Task, Trial, planning
from seqdg.bench import task as task_module
from seqdg.nets import BuiltNet


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
    key = id(task)
    assert key in task_module._kept
    del task
    assert key not in task_module._kept
