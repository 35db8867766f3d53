"""Plan, train and repeat trials: tasks, learners, plans, executors and benchmark files."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.bench.array_learner import ArrayLearner, Packed, Predict, as_outputs
    from seqdg.bench.benchmark import Benchmark, Request, list_benchmarks, load_benchmark, split_settings
    from seqdg.bench.calling import FailedTrials, describe_failures, run
    from seqdg.bench.console import count_files, show_progress
    from seqdg.bench.contract import Candidate, Draft, Learner, OnStep
    from seqdg.bench.cost import estimate_makespan, sort_longest_first, time_groups
    from seqdg.bench.estimator_learner import (
        BYTES,
        FittedEstimator,
        OwnEstimator,
        OwnEstimatorLearner,
        OwnSettings,
        is_estimator,
        name_estimator,
        pack_estimator,
        unpack_estimator,
    )
    from seqdg.bench.execution import MemorySink, Sink, TrainingFailed, execute, remove_checkpoints
    from seqdg.bench.executors.choice import SHORT, ExecutorChoice, choose_executor, is_short
    from seqdg.bench.executors.local import InProcess
    from seqdg.bench.executors.process import prepare_process
    from seqdg.bench.executors.session import Executor, Session
    from seqdg.bench.executors.workers import Workers
    from seqdg.bench.learner import find_learner, find_learner_of, list_learners, register_learner
    from seqdg.bench.own_code import check_code, read_code, read_codes, refuse_changed
    from seqdg.bench.plan import Choice, Plan, choose_compiled, plan_trials
    from seqdg.bench.progress import Progress
    from seqdg.bench.reruns import Repeat, pick_records, refuse_changed_code, rerun
    from seqdg.bench.reuse import write_settings
    from seqdg.bench.running import BenchmarkRun, Where, check_versions, default_directory, run_benchmark
    from seqdg.bench.search import RATE, Fixed, Optuna, Proposal, Search, Target, draw_proposals, list_ranges, make_grid
    from seqdg.bench.soup import MixtureChoice, mix_run
    from seqdg.bench.stack_learner import STACK, StackLearner, build_stack, check_domains_per_step, check_weights
    from seqdg.bench.task import RowsInMemory, RowsOnDisk, Task, find_target_scale, weigh_rows
    from seqdg.bench.trial import Group, Trial

__getattr__, __dir__ = open_front(__name__)
