"""The results of a run: records, where they are kept, which evaluation counts, and summaries. No torch."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.results.archive.layout import EVALUATIONS, TRIALS
    from seqdg.results.archive.reading import has_run, open_run
    from seqdg.results.archive.writing import pack
    from seqdg.results.commands import add_command, read_commands
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
    from seqdg.results.curves import LOSS_POINTS, thin
    from seqdg.results.directory import is_locked, lock_directory, make_directory
    from seqdg.results.imported_trials import IMPORTED, UNPAIRED, describe_imports, is_imported
    from seqdg.results.joined_runs import drop_label, open_runs
    from seqdg.results.next_domain import NextDomain, predict_next_domain
    from seqdg.results.pooling import PairKey, Pooled, SetDifference, average_set, find_levels, pool_sets, pool_sizes
    from seqdg.results.predictions import write_predictions
    from seqdg.results.record import DIVERGED, DONE, FAILED, Evaluation, Record, make_key
    from seqdg.results.run import (
        CLASSES,
        DOMAINS,
        Analysis,
        RecordSource,
        RunningGroup,
        RunProgress,
        find_usual_criterion,
        find_usual_criterion_in,
    )
    from seqdg.results.salvaging import salvage
    from seqdg.results.select import (
        RULES,
        InnerTrials,
        Outcome,
        average_finite,
        count_candidates,
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
        LEVEL,
        PairedDifference,
        compare_pairs,
        compare_with_each,
        correct_by_holm,
        describe_difference,
        describe_wins,
        format_p,
    )
    from seqdg.results.status import Status, estimate_seconds_left, format_duration, read_status
    from seqdg.results.store import FILE, Store, pause_garbage_collection
    from seqdg.results.summary import (
        AVERAGE,
        SUMMARIES,
        TOGETHER,
        WORST,
        Cell,
        format_cell,
        mean_and_error,
        name_row,
        summarize,
    )
    from seqdg.results.tracking import TOOLS, open_trackers
    from seqdg.results.tracking.tracker import Tracker, describe_trial, make_table
    from seqdg.results.versions import (
        VERSION,
        describe_versions,
        find_versions,
        name_commit,
        name_release,
        read_version,
    )

__getattr__, __dir__ = open_front(__name__)
