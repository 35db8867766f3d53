"""Evaluate a stack in training: predict the rows of every domain, and measure the predictions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqdg.base import Params
from seqdg.results import LOSSES, Evaluation, choose_loss
from seqdg.training.metrics import Groups, compute_metrics
from seqdg.training.splits import Split
from seqdg.training.stack import Stack, State

DEVIATION = 0.5  # of the prior of log T, of which T is the temperature of softmax(z / T)
LARGEST = 20.0  # T is between 1 / LARGEST and LARGEST
HALVINGS = 40


class DomainPredictions(NamedTuple):
    """Predictions of a stack for one domain of each trial, with the labels. Only rows that the mask keeps count."""

    logits: Tensor  # (trial, row, class); (trial, row, 1) of numbers, in the user's units
    y: Tensor  # (trial, row)
    mask: Tensor  # (trial, row) bool
    rows: Tensor | None = None  # (trial, row) their numbers in the data set
    fifth: Tensor | None = None  # (trial, row) bool, of a held-out domain: whether `oracle-split` chooses by the row
    groups: Groups | None = None  # where the data have them
    weight: Tensor | None = None  # (trial, row) how much each row counts; None: all the same


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
    inputs = stack.inputs
    return [
        DomainPredictions(part, y, mask, rows, fifth, inputs.find_groups(rows), inputs.find_weights(rows))
        for part, y, rows, mask, fifth in zip(*split, masks, fifths, strict=True)
    ]


# ---------------------------------------------------------------------------- predictions


def list_seeds(seed: int, members: int) -> tuple[int, ...]:
    """List the seeds of the members of a trial: those of no two trials overlap, and a member alone has the trial's."""
    return tuple(range(seed * members, (seed + 1) * members))


def pool_outputs(outputs: Tensor, members: int) -> Tensor:
    """Return what the members of each trial, a deep ensemble, say together (trial, row, class): the logarithm of the
    mean of their probabilities (Lakshminarayanan et al., 2017), or the mean of their numbers, where a net gives one
    number per row (regression).

    outputs: (trial x member, row, class); those of one member each are returned as they are.
    """
    if members == 1:
        return outputs
    each = outputs.double().reshape(len(outputs) // members, members, *outputs.shape[1:])
    if outputs.shape[-1] == 1:
        return each.mean(1)
    return each.log_softmax(-1).logsumexp(1) - math.log(members)


def fit_temperature(logits: Tensor, y: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the temperature of every trial (trial,), 1 where no row counts or a logit is not finite.

    Temperature scaling (Guo et al., 2017): probabilities softmax(z / T). T minimizes the log loss summed over the rows
    plus (log T)^2 / (2 d^2): log T has a normal prior of deviation d = 0.5, so that few rows, or rows that are all
    predicted right, do not make a net arbitrarily sure. The most probable class stays the most probable.

    Where rows have weights w, their losses are summed with w * sum(w) / sum(w^2), which add up to the number of rows
    that would say as much (Kish, 1965): a few heavy rows do not outweigh the prior.

    logits: (trial, row, class)   y: (trial, row)   mask: (trial, row) bool, the rows that count
    weight: (trial, row) how much; None: all the same
    """
    if weight is not None:
        mask = mask & (weight > 0)
        weight = torch.where(mask, weight.double(), 0.0)
        weight = weight * (weight.sum(1) / (weight**2).sum(1).clamp(min=1e-300))[:, None]
    z = logits.double().masked_fill(~mask[..., None], 0.0)
    z = z - z.gather(-1, y[..., None])  # of the true class 0: the log loss is logsumexp(z)
    weighed = z if weight is None else z * weight[..., None]
    low = torch.full((len(z),), -math.log(LARGEST), dtype=torch.float64, device=z.device)  # of -log T
    high = -low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        sharper = middle.exp()
        p = (z * sharper[:, None, None]).softmax(-1)
        slope = sharper * (p * weighed).sum((1, 2)) + middle / DEVIATION**2
        low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
    known = mask.any(1) & z.isfinite().all(-1).all(-1)
    return torch.where(known, (-(low + high) / 2).exp(), 1.0)


# ---------------------------------------------------------------------------- measuring


def measure_predictions(
    predictions: Sequence[DomainPredictions],
    sources: int,
    step: int,
    at_once: int | None = None,
    criteria: Collection[str] = (),
) -> list[Evaluation]:
    """Measure the predictions of every trial; the first `sources` domains are sources, the others held out.

    at_once: how many are held out by a fixed split; those after them are validation domains. None: it is not fixed.
    """
    last = len(predictions) if at_once is None else sources + at_once
    held_out, outside = predictions[sources:last], predictions[last:]
    split = [(p, p.fifth) for p in held_out if p.fifth is not None]
    parts = (  # the fields of an Evaluation, in their order
        predictions[:sources],
        held_out,
        [p._replace(mask=p.mask & fifth) for p, fifth in split],
        [p._replace(mask=p.mask & ~fifth) for p, fifth in split],
        outside,
        [] if at_once is None else [_join(domains, 1) for domains in (held_out, outside) if domains],
    )
    measured = _measure([domain for part in parts for domain in part], criteria)
    values, names, trials = iter(measured), list(measured[0]), range(len(predictions[0].y))

    def take(count: int, is_needed: bool) -> list[dict[str, list[float]]]:
        """Return of every trial by criterion a value for each of the next domains."""
        if not count:
            return [{name: [] for name in names} if is_needed else {} for _ in trials]
        domains = list(islice(values, count))
        by_trial = zip(*(zip(*(domain[name] for domain in domains), strict=True) for name in names), strict=True)
        return [dict(zip(names, map(list, each), strict=True)) for each in by_trial]

    taken = [take(len(part), i < 2) for i, part in enumerate(parts)]  # sources and held-out domains are always there
    return [Evaluation(step, *each) for each in zip(*taken, strict=True)]


def list_losses(evaluation: Evaluation) -> list[float]:
    """Return the loss on each source's validation rows: the log-loss, or the mean squared error of numbers."""
    name = choose_loss(evaluation.source)
    return [value if name == "log_loss" else value**2 for value in evaluation.source[name]]


def is_finite(evaluation: Evaluation, split: Split) -> bool:
    """Whether the loss is finite on every domain that has rows to evaluate."""
    losses = evaluation.list_values(choose_loss(evaluation.source))
    return all(math.isfinite(loss) for loss, rows in zip(losses, split.evaluated, strict=True) if len(rows))


def _measure(predictions: Sequence[DomainPredictions], criteria: Collection[str]) -> list[dict[str, list[float]]]:
    """Return of every domain by criterion a value for each trial, over the rows that its mask keeps.

    Domains of about the same length are measured together, and all numbers leave the device at once.
    """
    lengths = [domain.y.shape[1] for domain in predictions]
    order = sorted((k for k, length in enumerate(lengths) if length), key=lambda k: lengths[k]) or [0]
    groups: list[list[int]] = []
    for k in order:
        if groups and lengths[k] <= 1.5 * lengths[groups[-1][0]]:  # at most half as long again as the shortest
            groups[-1].append(k)
        else:
            groups.append([k])
    wanted = {*criteria, *LOSSES} if criteria else ()
    joined = [_join([predictions[k] for k in group], 0) for group in groups]
    measured = [compute_metrics(p.logits, p.y, p.mask, p.groups, p.weight, wanted) for p in joined]
    names, trials = list(measured[0]), len(predictions[0].y)
    together = torch.cat([torch.stack([values[name] for name in names]) for values in measured], 1)
    numbers = together.reshape(len(names), -1, trials).transpose(0, 1).tolist()  # (domain, criterion, trial)
    by_domain = {k: dict(zip(names, values, strict=True)) for k, values in zip(order, numbers, strict=True)}
    nothing = dict.fromkeys(names, [math.nan] * trials)  # is known of a domain without rows
    return [by_domain.get(k, nothing) for k in range(len(predictions))]


def _join(domains: Sequence[DomainPredictions], axis: int) -> DomainPredictions:
    """Return several domains as one: with the rows of all (axis 1), or as one of as many more trials (axis 0), which
    rows that do not count fill up."""
    most = max(domain.y.shape[1] for domain in domains)

    def join(values: Sequence[Tensor]) -> Tensor:
        missing = [(0, 0) * (v.dim() - 2) + (0, most - v.shape[1]) for v in values]
        full = [pad(v, m) if axis == 0 and any(m) else v for v, m in zip(values, missing, strict=True)]
        return torch.cat(full, axis)

    groups = [domain.groups for domain in domains if domain.groups is not None]
    weights = [domain.weight for domain in domains if domain.weight is not None]
    return DomainPredictions(
        logits=join([domain.logits for domain in domains]),
        y=join([domain.y for domain in domains]),
        mask=join([domain.mask for domain in domains]),
        groups=groups[0]._replace(number=join([g.number for g in groups])) if groups else None,
        weight=join(weights) if weights else None,
    )
