"""Train trials on one device: protocol, inputs, stacks of trials, metrics, and the records that come of them."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.training.calibration import fit_temperature
    from seqdg.training.checkpoint import FOLDER, name_checkpoint, place_tensor, read_header
    from seqdg.training.device import choose_device, set_precision
    from seqdg.training.evaluated_rows import mark_fifth
    from seqdg.training.evaluation import predict_domains
    from seqdg.training.fixed_split import check_rule, fix_split
    from seqdg.training.inputs import Inputs, TargetScale, learn_target_scale
    from seqdg.training.loss import AUTO, NumberLoss, RowWeighted, WeightedCrossEntropy, find_number_loss, make_loss
    from seqdg.training.measuring import is_finite, measure_predictions
    from seqdg.training.members import list_seeds, pool_outputs
    from seqdg.training.metrics import Groups, compute_metrics
    from seqdg.training.optimizers import OPTIMIZERS, Rates
    from seqdg.training.predictions import CHOSEN, DomainPredictions
    from seqdg.training.prefetch import count_bytes, fits_on, gather_rows, move_to_device
    from seqdg.training.protocol import (
        Protocol,
        Split,
        choose_optimizer,
        count_steps,
        end_stages,
        list_evaluation_steps,
        list_sources,
        split_rows,
    )
    from seqdg.training.provenance import (
        find_commit,
        list_versions,
        measure_peak_memory,
        name_device,
        reset_peak_memory,
    )
    from seqdg.training.run import OnEvaluation, run_stack
    from seqdg.training.sampler import Draws, Sampler, make_generator, make_stream
    from seqdg.training.saving import Saving, hash_weights, save_step, save_weights
    from seqdg.training.stack import Job, Stack, State, View
    from seqdg.training.step import split_by_pace
    from seqdg.training.transduction import count_filled, fill_cyclically, shuffle_order

__getattr__, __dir__ = open_front(__name__)
