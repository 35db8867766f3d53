"""The bundled benchmark, for tests that plan or train some of its trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from seqdg import bench
from seqdg.bench import STACK, Benchmark, Group, Plan, Request, Session, Task, Trial, load_benchmark
from seqdg.results import Record
from seqdg.training import Saving, Stack

BENCHMARK = load_benchmark("rotated-mnist")
TASK = BENCHMARK.make_task()


def make_session(saving: Saving | None = None, device: str = "cpu") -> Session:
    return Session(TASK, device, saving or Saving())


def make_plan(
    request: Request, finished: Iterable[str] = (), device: str = "cpu", benchmark: Benchmark = BENCHMARK
) -> Plan:
    return benchmark.plan(TASK if benchmark is BENCHMARK else benchmark.make_task(), request, device, finished)


def train(
    group: Group, on_step: Callable[[int], None] = lambda step: None, saving: Saving | None = None, device: str = "cpu"
) -> list[Record]:
    return STACK.train(group, make_session(saving, device), on_step)


def build_stack(trials: Iterable[Trial], device: str = "cpu", task: Task = TASK) -> Stack:
    return bench.build_stack(Group(tuple(trials)), task, torch.device(device))
