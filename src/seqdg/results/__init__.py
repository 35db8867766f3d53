"""The results of a run: records, where they are kept, which evaluation counts, and summaries. No torch."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.results.archive.layout import EVALUATIONS, TRIALS
    from seqdg.results.archive.reading import open_run
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
    from seqdg.results.pooling import Pooled, SetDifference
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
        describe_difference,
        describe_wins,
        format_p,
    )
    from seqdg.results.status import Status, estimate_seconds_left, format_duration, read_status
    from seqdg.results.store import FILE, Store, pause_garbage_collection
    from seqdg.results.study.answers import Answer, Answers, Pooling, Rivals, answer_study, count_wanted
    from seqdg.results.study.file import (
        AVERAGES,
        COSINE,
        COSINE_FOLDER,
        LEADER,
        PLAIN,
        SEARCH,
        Comparison,
        Part,
        Study,
        load_study,
    )
    from seqdg.results.study.outcomes import CRITERION, USUAL, collect_records, find_runs, make_lean
    from seqdg.results.study.publishing import publish_parts
    from seqdg.results.study.steadiness import LAST, Steadiness
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
