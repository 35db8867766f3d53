"""From a benchmark and what is asked of it to a store that holds the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seqdg.benchmark import Benchmark, Choice, plan
from seqdg.data.domain import Dataset
from seqdg.errors import UsageError
from seqdg.executors.context import Context
from seqdg.models.net import Net
from seqdg.place import net_of
from seqdg.record import FAILED, Record
from seqdg.store import Store
from seqdg.trial import Group, Trial, group

Executor = Callable[[Sequence[Group], Context, Callable[[int], None]], Iterator[tuple[Group, list[Record]]]]


@dataclass(frozen=True)
class Plan:
    """All that a command asks for, and what of it is missing from the store."""

    trials: tuple[Trial, ...]
    groups: tuple[Group, ...]
    missing: tuple[Group, ...]
    parameters: int  # of the net

    @property
    def work(self) -> int:
        return sum(g.work for g in self.missing)


def make_plan(context: Context, choice: Choice, finished: Iterable[str] = ()) -> Plan:
    """Checked: every algorithm can train this net on these domains."""
    dataset, benchmark = context.dataset(), context.benchmark
    trials = plan(benchmark, dataset, choice)
    built = net_of(trials[0], dataset)
    net = Net(built.module, benchmark.batchnorm)
    trials = tuple(replace(trial, weights=built.weights_sha256) for trial in trials)
    _check(trials, net, dataset)
    parameters = sum(p.numel() for p in net.params().values())
    groups = group(trials, capacity(parameters, dataset, context.device))
    done = set(finished)
    left = [tuple(t for t in g.trials if t.key not in done) for g in groups]
    return Plan(trials, groups, tuple(Group(ts) for ts in left if ts), parameters)


def _check(trials: Sequence[Trial], net: Net, dataset: Dataset) -> None:
    seen = set()
    for trial in trials:
        case = (trial.algorithm, trial.settings, len(trial.held_out))
        if case not in seen:
            seen.add(case)
            trial.built().check(net, len(dataset.domains) - len(trial.held_out))


def capacity(parameters: int, dataset: Dataset, device: str) -> int:
    """How many trials a stack holds: images train alone, small nets together."""
    if dataset.is_image:
        return 1
    if device == "cpu":
        return max(1, min(32, 1_000_000 // parameters))
    return max(1, min(256, 1_500_000_000 // parameters))


def fill(store: Store, made: Plan, context: Context, executor: Executor, tick: Callable[[int], None]) -> list[Record]:
    """Runs what is missing and stores it group by group; the records that failed."""
    failed = []
    for _, records in executor(made.missing, context, tick):
        store.add(records)
        failed += [r for r in records if r.status == FAILED]
    return failed


def device_of(wanted: str) -> str:
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError("There is no CUDA device here. Use --device cpu, or auto.")
    if wanted != "cpu" and not wanted.startswith("cuda"):
        raise UsageError(f"There is no device '{wanted}'. Choose auto, cpu or cuda.")
    return wanted


def default_out(benchmark: Benchmark) -> Path:
    return Path("runs") / benchmark.name
