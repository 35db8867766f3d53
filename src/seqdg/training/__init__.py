"""Train trials on one device: protocol, inputs, stacks of trials, metrics, and the records that come of them."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.training.device import (
        find_commit,
        list_versions,
        measure_peak_memory,
        name_device,
        name_origin,
        reset_peak_memory,
        set_precision,
    )
    from seqdg.training.inputs import (
        Groups,
        Inputs,
        TargetScale,
        fits_on,
        gather_rows,
        learn_target_scale,
        move_to_device,
    )
    from seqdg.training.metrics import (
        FLOOR,
        DomainPredictions,
        as_outputs,
        calibrate,
        fit_temperature,
        floor_log,
        is_finite,
        list_seeds,
        measure_predictions,
        measure_rows,
        pool_outputs,
        spread,
    )
    from seqdg.training.optimizers import OPTIMIZERS, Rates
    from seqdg.training.protocol import (
        AUTO,
        NumberLoss,
        Protocol,
        RowWeighted,
        WeightedCrossEntropy,
        choose_optimizer,
        count_steps,
        end_stages,
        find_number_loss,
        list_evaluation_steps,
        make_loss,
    )
    from seqdg.training.sampler import (
        Draws,
        Sampler,
        lend_randomness,
        make_generator,
        make_stream,
        read_generators,
        restore_generators,
        seed_generators,
    )
    from seqdg.training.splits import (
        Split,
        check_rule,
        count_filled,
        fill_cyclically,
        fix_split,
        list_sources,
        mark_fifth,
        shuffle_order,
        split_rows,
    )
    from seqdg.training.stack import Job, Stack, State, View
    from seqdg.training.step import split_by_pace
    from seqdg.training.trainer import (
        CHOSEN,
        FOLDER,
        OnEvaluation,
        Saving,
        decode_checkpoint,
        encode_checkpoint,
        hash_weights,
        name_checkpoint,
        read_header,
        read_predictions,
        run_stack,
        save_step,
        save_weights,
    )

__getattr__, __dir__ = open_front(__name__)
