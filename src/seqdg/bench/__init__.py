"""Plan, train and repeat trials: tasks, learners, plans, executors and benchmark files."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.bench.benchmark import (
        Benchmark,
        Request,
        list_benchmarks,
        load_benchmark,
        load_requested,
        split_settings,
    )
    from seqdg.bench.execution import (
        Executor,
        InProcess,
        MemorySink,
        Progress,
        TrainingFailed,
        execute,
        remove_checkpoints,
        show_progress,
    )
    from seqdg.bench.executors import ExecutorChoice, choose_executor, is_short
    from seqdg.bench.executors.workers import Workers
    from seqdg.bench.learners.array_learner import ArrayLearner, Packed, Predict
    from seqdg.bench.learners.contract import Candidate, Draft, Learner, OnStep, register_learner
    from seqdg.bench.learners.estimators import (
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
    from seqdg.bench.learners.stack_learner import (
        STACK,
        StackLearner,
        build_stack,
        check_domains_per_step,
        check_uses,
        check_weights,
        find_learner,
        find_learner_of,
        list_learners,
    )
    from seqdg.bench.merging import describe_merge, merge_shards
    from seqdg.bench.planning import Plan, choose_compiled, plan_trials, time_groups
    from seqdg.bench.reruns import (
        Repeat,
        check_code,
        make_session,
        pick_records,
        read_code,
        read_codes,
        refuse_changed,
        refuse_changed_code,
        rerun,
    )
    from seqdg.bench.running import (
        FailedTrials,
        check_versions,
        describe_failures,
        preview_run,
        run,
        run_benchmark,
    )
    from seqdg.bench.search import (
        RATE,
        Fixed,
        Optuna,
        Proposal,
        Search,
        Target,
        draw_proposals,
        draw_value,
        list_ranges,
        make_grid,
        write_settings,
    )
    from seqdg.bench.soup import mix_run
    from seqdg.bench.task import (
        HARMONIZATIONS,
        Group,
        RowsInMemory,
        RowsOnDisk,
        Session,
        Task,
        Trial,
        draw_examples,
        find_target_scale,
        weigh_rows,
    )

__getattr__, __dir__ = open_front(__name__)
