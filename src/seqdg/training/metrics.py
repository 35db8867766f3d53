"""Metrics of stacked predictions, of every trial of a stack at once: one function for each of the `CRITERIA`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from seqdg.results.criteria import CRITERIA

BINS = 15


@dataclass(frozen=True)
class Predictions:
    """What nets say of rows, and what is true. Only the rows that the mask keeps count."""

    log_p: Tensor  # (trial, row, class) float64
    y: Tensor  # (trial, row)
    mask: Tensor  # (trial, row) bool

    @cached_property
    def weight(self) -> Tensor:
        """(trial, row) 1 for the rows that count."""
        return self.mask.double()

    @cached_property
    def correct(self) -> Tensor:
        """(trial, row) 1 where a row counts and its most probable class is the true one."""
        return (self.log_p.max(-1).indices == self.y).double() * self.weight


Metric = Callable[[Predictions], Tensor]  # (trial,)
METRICS: dict[str, Metric] = {}  # by criterion


def metric(function: Metric) -> Metric:
    """Let a function give the criterion of its name its value."""
    METRICS[function.__name__] = function
    return function


def compute_metrics(logits: Tensor, y: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return (trial,) by criterion, over the rows that the mask keeps; of the criteria defined for so many classes.

    logits: (trial, row, class)   y: (trial, row)   mask: (trial, row) bool
    """
    predictions = Predictions(logits.double().log_softmax(-1), y, mask)
    classes = logits.shape[-1]
    return {name: function(predictions) for name, function in METRICS.items() if CRITERIA[name].is_defined(classes)}


@metric
def accuracy(p: Predictions) -> Tensor:
    """Share of rows whose most probable class is the true one."""
    return p.correct.sum(1) / p.weight.sum(1)


@metric
def balanced_accuracy(p: Predictions) -> Tensor:
    """Mean of the accuracy on each class, over the classes that occur."""
    zeros = p.correct.new_zeros(len(p.y), p.log_p.shape[-1])
    total, hit = zeros.scatter_add(1, p.y, p.weight), zeros.scatter_add(1, p.y, p.correct)
    present = (total > 0).double()
    return (hit / total.clamp(min=1) * present).sum(1) / present.sum(1)


@metric
def log_loss(p: Predictions) -> Tensor:
    """Mean of -log p of the true class."""
    return -(p.log_p.gather(-1, p.y.unsqueeze(-1)).squeeze(-1) * p.weight).sum(1) / p.weight.sum(1)


@metric
def calibration_error(p: Predictions) -> Tensor:
    """Expected calibration error over 15 equal bins (Guo et al. 2017)."""
    confidence = p.log_p.max(-1).values.exp()
    place = (confidence * BINS).long().clamp(0, BINS - 1)
    excess = confidence * p.weight - p.correct
    # Bin by bin, not by scatter_add: a GPU adds up what is scattered in another order every time.
    gap = excess.new_zeros(len(excess))
    for i in range(BINS):
        gap = gap + (excess * (place == i)).sum(1).abs()
    return gap / p.weight.sum(1)


@metric
def auroc(p: Predictions) -> Tensor:
    """Of two classes: the probability that a row of the second has a higher score than one of the first, ties counting
    half; nan where one of them is absent or a score is not a number."""
    score = p.log_p[..., 1].contiguous()
    positive, negative = p.mask & (p.y == 1), p.mask & (p.y == 0)
    others = score.masked_fill(~negative, float("inf")).sort(1).values  # the negative ones first: none is infinite
    below = torch.searchsorted(others, score) + torch.searchsorted(others, score, right=True)
    pairs = positive.sum(1) * negative.sum(1)
    unknown = (pairs == 0) | (score.isnan() & (positive | negative)).any(1)
    share = (below.double() * positive).sum(1) / 2 / pairs.clamp(min=1)
    return share.masked_fill(unknown, float("nan"))
