"""Plan, train and repeat trials: tasks, learners, plans, executors and benchmark files."""

from typing import TYPE_CHECKING

from seqdg.base.front_door import open_front_door

if TYPE_CHECKING:
    from seqdg.bench.benchmark import Benchmark, Request, list_benchmarks, load_benchmark
    from seqdg.bench.execute import MemorySink, Sink, TrainingFailed
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
    "MemorySink",
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

__getattr__, __dir__ = open_front_door(
    __name__,
    {
        "benchmark": "Benchmark Request list_benchmarks load_benchmark",
        "execute": "MemorySink Sink TrainingFailed",
        "executors.choice": "ExecutorChoice choose_executor",
        "executors.local": "InProcess",
        "executors.session": "Executor Session",
        "executors.workers": "Workers",
        "learner": "ArrayLearner Candidate Learner StackLearner build_stack find_learner list_learners "
        "register_learner",
        "plan": "Choice Plan plan_trials",
        "rerun": "Repeat",
        "run": "BenchmarkRun Where run_benchmark",
        "search": "Proposal Search",
        "task": "RowsInMemory RowsOnDisk Task",
        "trial": "Group Trial",
    },
)
