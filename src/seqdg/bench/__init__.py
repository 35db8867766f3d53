"""Plan, train and repeat trials: tasks, learners, plans, executors and benchmark files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqdg.bench.benchmark import Benchmark, Request, list_benchmarks, load_benchmark
    from seqdg.bench.execute import Memory, Sink, TrainingFailed
    from seqdg.bench.executors.choice import ExecutorChoice, choose_executor
    from seqdg.bench.executors.local import InProcess
    from seqdg.bench.executors.session import Executor, Session
    from seqdg.bench.executors.workers import Workers
    from seqdg.bench.learner import (
        ArrayLearner,
        Candidate,
        Learner,
        StackLearner,
        build_stack,
        find_learner,
        list_learners,
        register_learner,
    )
    from seqdg.bench.plan import Choice, Plan, plan_trials
    from seqdg.bench.rerun import Repeat
    from seqdg.bench.run import BenchmarkRun, Where, run_benchmark
    from seqdg.bench.search import Proposal, Search
    from seqdg.bench.task import RowsInMemory, RowsOnDisk, Task
    from seqdg.bench.trial import Group, Trial

__all__ = [
    "ArrayLearner",
    "Benchmark",
    "BenchmarkRun",
    "Candidate",
    "Choice",
    "Executor",
    "ExecutorChoice",
    "Group",
    "InProcess",
    "Learner",
    "Memory",
    "Plan",
    "Proposal",
    "Repeat",
    "Request",
    "RowsInMemory",
    "RowsOnDisk",
    "Search",
    "Session",
    "Sink",
    "StackLearner",
    "Task",
    "TrainingFailed",
    "Trial",
    "Where",
    "Workers",
    "build_stack",
    "choose_executor",
    "find_learner",
    "list_benchmarks",
    "list_learners",
    "load_benchmark",
    "plan_trials",
    "register_learner",
    "run_benchmark",
]

# `plan`, `execute` and `rerun` have the names of their modules and are imported from them:
# `from seqdg.bench.plan import plan`.

# Where each name is defined. It is imported when it is first used.
_MODULES = {
    "ArrayLearner": "learner",
    "Benchmark": "benchmark",
    "BenchmarkRun": "run",
    "Candidate": "learner",
    "Choice": "plan",
    "Executor": "executors.session",
    "ExecutorChoice": "executors.choice",
    "Group": "trial",
    "InProcess": "executors.local",
    "Learner": "learner",
    "Memory": "execute",
    "Plan": "plan",
    "Proposal": "search",
    "Repeat": "rerun",
    "Request": "benchmark",
    "RowsInMemory": "task",
    "RowsOnDisk": "task",
    "Search": "search",
    "Session": "executors.session",
    "Sink": "execute",
    "StackLearner": "learner",
    "Task": "task",
    "TrainingFailed": "execute",
    "Trial": "trial",
    "Where": "run",
    "Workers": "executors.workers",
    "build_stack": "learner",
    "choose_executor": "executors.choice",
    "find_learner": "learner",
    "list_benchmarks": "benchmark",
    "list_learners": "learner",
    "load_benchmark": "benchmark",
    "plan_trials": "plan",
    "register_learner": "learner",
    "run_benchmark": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seqdg.bench' has no attribute '{name}'")
    return getattr(import_module(f"seqdg.bench.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
