"""The results of a run: records, where they are kept, which evaluation counts, and summaries. No torch."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.results.criteria import (
        CRITERIA,
        LOSSES,
        Unit,
        choose_loss,
        choose_usual,
        find_unit,
        name_criterion,
        score,
    )
    from seqdg.results.export import count_confusions, pack, write_predictions
    from seqdg.results.next_domain import NextDomain, predict_next_domain
    from seqdg.results.record import (
        CLASSES,
        COMMANDS,
        DIVERGED,
        DOMAINS,
        DONE,
        EVALUATIONS,
        FAILED,
        FILES,
        IMPORTED,
        LOSS_POINTS,
        TRIALS,
        VERSION,
        Analysis,
        Evaluation,
        Outcome,
        Record,
        RecordSource,
        RunningGroup,
        RunProgress,
        describe_versions,
        find_usual_criterion,
        find_usual_criterion_in,
        find_versions,
        list_ends,
        make_key,
        name_commit,
        summarize_trials,
        thin,
    )
    from seqdg.results.runs import (
        Status,
        drop_label,
        estimate_seconds_left,
        has_run,
        open_run,
        open_runs,
        read_status,
    )
    from seqdg.results.select import (
        RULES,
        UNPAIRED,
        InnerTrials,
        average_finite,
        count_candidates,
        describe_imports,
        find_best,
        find_mixtures,
        find_reuse,
        has_validation,
        name_candidate,
        score_candidate,
        select_evaluation,
        select_outcomes,
        select_step,
    )
    from seqdg.results.statistics import (
        AVERAGE,
        LEVEL,
        SUMMARIES,
        TOGETHER,
        WORST,
        Cell,
        PairedDifference,
        PairKey,
        Pooled,
        SetDifference,
        Spread,
        average_set,
        compare_pairs,
        compare_with_each,
        correct_by_holm,
        describe_difference,
        describe_wins,
        estimate_spread,
        find_levels,
        format_cell,
        format_p,
        mean_and_error,
        name_row,
        pool_sets,
        pool_sizes,
        summarize,
    )
    from seqdg.results.store import (
        FILE,
        Store,
        add_command,
        is_locked,
        lock_directory,
        make_directory,
        pause_garbage_collection,
    )

__getattr__, __dir__ = open_front(__name__)
