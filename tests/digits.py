"""The bundled benchmark, for tests that plan or train some of its trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from seqdg.bench import learner
from seqdg.bench.benchmark import Benchmark, Request, load_benchmark
from seqdg.bench.executors.session import Session
from seqdg.bench.learner import STACK
from seqdg.bench.plan import Plan
from seqdg.bench.task import Task
from seqdg.bench.trial import Group, Trial
from seqdg.results.record import Record
from seqdg.training.saving import Saving
from seqdg.training.stack import Stack

BENCHMARK = load_benchmark("rotated-mnist")
TASK = BENCHMARK.make_task()


def make_session(saving: Saving | None = None, device: str = "cpu") -> Session:
    return Session(TASK, device, saving or Saving())


def make_plan(
    request: Request, finished: Iterable[str] = (), device: str = "cpu", benchmark: Benchmark = BENCHMARK
) -> Plan:
    return benchmark.plan(TASK if benchmark is BENCHMARK else benchmark.make_task(), request, device, finished)


def train(
    group: Group, tick: Callable[[int], None] = lambda step: None, saving: Saving | None = None, device: str = "cpu"
) -> list[Record]:
    return STACK.train(group, TASK, torch.device(device), tick, saving)


def build_stack(trials: Iterable[Trial], device: str = "cpu", task: Task = TASK) -> Stack:
    return learner.build_stack(Group(tuple(trials)), task, torch.device(device))
