"""Measure the predictions of a stack: all criteria of all domains at once, as an evaluation of every trial."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from seqdg.results import LOSSES, Evaluation, choose_loss
from seqdg.training.metrics import Groups, compute_metrics
from seqdg.training.predictions import DomainPredictions
from seqdg.training.protocol import Split


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
    fifths = [p._replace(mask=p.mask & fifth) for p, fifth in split]
    rests = [p._replace(mask=p.mask & ~fifth) for p, fifth in split]
    together = [] if at_once is None else [_join_rows(domains) for domains in (held_out, outside) if domains]
    values = _measure([*predictions, *fifths, *rests, *together], criteria)
    whole, halves, joined = (
        values[: len(predictions)],
        values[len(predictions) : len(values) - len(together)],
        values[len(values) - len(together) :],
    )

    trials, names = len(predictions[0].y), list(values[0])

    def pick(domains: Sequence[dict[str, list[float]]]) -> list[dict[str, list[float]]]:
        """Return of every trial by criterion a value for each of these domains."""
        if not domains:
            return [{name: [] for name in names} for _ in range(trials)]
        by_trial = zip(*(zip(*(domain[name] for domain in domains), strict=True) for name in names), strict=True)
        return [dict(zip(names, map(list, each), strict=True)) for each in by_trial]

    nothing: list[dict[str, list[float]]] = [{} for _ in range(trials)]
    parts = (
        pick(whole[:sources]),
        pick(whole[sources:last]),
        pick(halves[: len(split)]) if split else nothing,
        pick(halves[len(split) :]) if split else nothing,
        pick(whole[last:]) if outside else nothing,
        pick(joined) if joined else nothing,
    )
    return [Evaluation(step, *each) for each in zip(*parts, strict=True)]


def is_finite(evaluation: Evaluation, split: Split) -> bool:
    """Whether the loss is finite on every domain that has rows to evaluate."""
    losses = evaluation.list_values(choose_loss(evaluation.source))
    return all(math.isfinite(loss) for loss, rows in zip(losses, split.evaluated, strict=True) if len(rows))


def _join_rows(domains: Sequence[DomainPredictions]) -> DomainPredictions:
    """Return several domains as one, with the rows of all."""
    groups = [p.groups for p in domains if p.groups is not None]
    weights = [p.weight for p in domains if p.weight is not None]
    return DomainPredictions(
        logits=torch.cat([p.logits for p in domains], 1),
        y=torch.cat([p.y for p in domains], 1),
        mask=torch.cat([p.mask for p in domains], 1),
        groups=Groups(torch.cat([g.number for g in groups], 1), groups[0].total) if groups else None,
        weight=torch.cat(weights, 1) if weights else None,
    )


def _measure(predictions: Sequence[DomainPredictions], criteria: Collection[str]) -> list[dict[str, list[float]]]:
    """Return of every domain by criterion a value for each trial, over the rows that its mask keeps.

    Domains of about the same length are measured together, and all numbers leave the device at once.
    """
    trials, lengths = len(predictions[0].y), [domain.y.shape[1] for domain in predictions]
    groups = _group_by_length({k: n for k, n in enumerate(lengths) if n} or {0: 0})
    wanted = {*criteria, *LOSSES} if criteria else ()
    measured = [compute_metrics(*_join_domains([predictions[k] for k in group]), wanted) for group in groups]
    names = list(measured[0])
    joined = torch.cat([torch.stack([values[name] for name in names]) for values in measured], 1)
    numbers = joined.reshape(len(names), -1, trials).transpose(0, 1).tolist()  # (domain, criterion, trial)
    order = [k for group in groups for k in group]
    by_domain = {k: dict(zip(names, values, strict=True)) for k, values in zip(order, numbers, strict=True)}
    nothing = dict.fromkeys(names, [math.nan] * trials)  # is known of a domain without rows
    return [by_domain.get(k, nothing) for k in range(len(predictions))]


def _group_by_length(lengths: Mapping[int, int]) -> list[list[int]]:
    """Put the domains together that are at most half as long again as the shortest of them."""
    groups: list[list[int]] = []
    for k in sorted(lengths, key=lambda k: lengths[k]):
        if groups and lengths[k] <= 1.5 * lengths[groups[-1][0]]:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _join_domains(
    domains: Sequence[DomainPredictions],
) -> tuple[Tensor, Tensor, Tensor, Groups | None, Tensor | None]:
    """Return logits, labels, masks, groups and weights of domains as those of one domain by as many more trials. Rows
    that fill it up do not count."""
    most = max(domain.y.shape[1] for domain in domains)

    def join(values: Sequence[Tensor]) -> Tensor:
        missing = [(0, 0) * (v.dim() - 2) + (0, most - v.shape[1]) for v in values]
        return torch.cat([torch.nn.functional.pad(v, m) if any(m) else v for v, m in zip(values, missing, strict=True)])

    each = [domain.groups for domain in domains if domain.groups is not None]
    groups = each[0]._replace(number=join([g.number for g in each])) if each else None
    weights = [domain.weight for domain in domains if domain.weight is not None]
    logits, y, mask = (join([getattr(d, name) for d in domains]) for name in ("logits", "y", "mask"))
    return logits, y, mask, groups, join(weights) if weights else None
