"""Evaluate a stack in training: predict the rows of every domain, and measure the predictions."""

from __future__ import annotations

from collections.abc import Collection

import torch

from seqdg.base import Params
from seqdg.results import Evaluation, choose_loss
from seqdg.training.calibration import fit_temperature
from seqdg.training.measuring import measure_predictions
from seqdg.training.members import pool_outputs
from seqdg.training.predictions import DomainPredictions
from seqdg.training.stack import Stack, State


def evaluate_stack(
    stack: Stack, state: State, deployed: Params, pooled: bool = True, criteria: Collection[str] = ()
) -> list[Evaluation]:
    """Measure every trial on its sources' validation rows, its held-out domains and its validation domains.

    pooled: measure a trial as it predicts, members together and calibrated; else every training by itself.
    criteria: those to measure, beside the losses; none: all.
    """
    split = stack.jobs[0].split
    predictions = predict_domains(stack, deployed, pooled)
    return measure_predictions(predictions, len(split.validation), state.step, split.held_out_at_once, criteria)


def predict_domains(stack: Stack, deployed: Params, pooled: bool = True) -> list[DomainPredictions]:
    """Predict the validation rows of every source, then the rows of every held-out and of every validation domain.

    Where a trial has fewer rows of a domain than another of the stack, or than whole batches of a transductive
    algorithm, rows of its own fill it up, which do not count: so each trial predicts as it would alone.
    pooled: as a trial predicts, the members of an ensemble together and, where the protocol says so, calibrated.
    """
    rows, counts, masks, fifths = stack.evaluated_rows
    if rows.numel():
        logits, y = stack.predict(deployed, rows)
    else:  # a net of the user's own may not take 0 rows
        logits, y = torch.zeros(*rows.shape, 2, device=rows.device), rows.to(stack.inputs.y.dtype)
    if pooled and stack.members > 1:  # the members of an ensemble are evaluated on the same rows
        every = stack.members
        logits, y, rows = pool_outputs(logits, every), y[::every], rows[::every]
        masks = [mask[::every] for mask in masks]
        fifths = [None if fifth is None else fifth[::every] for fifth in fifths]
    if pooled and stack.protocol.calibrate and logits.shape[-1] > 1:
        validation = len(stack.jobs[0].split.validation)
        end, mask = sum(counts[:validation]), torch.cat([*masks[:validation], masks[0][:, :0]], 1)
        temperature = fit_temperature(logits[:, :end], y[:, :end], mask, stack.inputs.find_weights(rows[:, :end]))
        logits = logits / temperature[:, None, None].to(logits.dtype)
    split = (torch.split(values, counts, 1) for values in (logits, y, rows))
    return [
        DomainPredictions(
            part,
            labels,
            mask,
            numbers,
            fifth,
            groups=stack.inputs.find_groups(numbers),
            weight=stack.inputs.find_weights(numbers),
        )
        for part, labels, numbers, mask, fifth in zip(*split, masks, fifths, strict=True)
    ]


def list_losses(evaluation: Evaluation) -> list[float]:
    """Return the loss on each source's validation rows: the log-loss, or the mean squared error of numbers."""
    name = choose_loss(evaluation.source)
    return [value if name == "log_loss" else value**2 for value in evaluation.source[name]]
