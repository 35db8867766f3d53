"""Metrics of stacked predictions: every trial of a stack at once."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 15


def compute_metrics(logits: Tensor, y: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """By criterion, (trial,), over the rows that the mask keeps.

    logits: (trial, row, class)   y: (trial, row)   mask: (trial, row) bool
    """
    logits = logits.double()
    log_p = logits.log_softmax(-1)
    confidence, guess = log_p.max(-1)
    weight = mask.double()
    count = weight.sum(1)
    correct = (guess == y).double() * weight
    found = {
        "accuracy": correct.sum(1) / count,
        "balanced_accuracy": _balanced(correct, y, weight, logits.shape[-1]),
        "log_loss": -(log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1) * weight).sum(1) / count,
        "calibration_error": _calibration_error(confidence.exp(), correct, weight),
    }
    if logits.shape[-1] == 2:
        found["auroc"] = _auroc(log_p[..., 1], mask & (y == 1), mask & (y == 0))
    return found


def _balanced(correct: Tensor, y: Tensor, weight: Tensor, classes: int) -> Tensor:
    """Mean over the classes that occur of the share found."""
    zeros = correct.new_zeros(len(y), classes)
    total, hit = zeros.scatter_add(1, y, weight), zeros.scatter_add(1, y, correct)
    present = (total > 0).double()
    return (hit / total.clamp(min=1) * present).sum(1) / present.sum(1)


def _calibration_error(confidence: Tensor, correct: Tensor, weight: Tensor) -> Tensor:
    """Expected calibration error over 15 equal bins (Guo et al. 2017)."""
    place = (confidence * BINS).long().clamp(0, BINS - 1)
    excess = confidence * weight - correct
    # Bin by bin, not by scatter_add: a GPU adds up what is scattered in another order every time.
    gap = sum((excess * (place == i)).sum(1).abs() for i in range(BINS))
    return gap / weight.sum(1)


def _auroc(score: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """(trial,) probability that a positive row scores above a negative one, ties counting half; nan where one kind is
    absent or a score is not a number. All are (trial, row)."""
    score = score.contiguous()
    others = score.masked_fill(~negative, float("inf")).sort(1).values  # the negative ones first: none is infinite
    below = torch.searchsorted(others, score) + torch.searchsorted(others, score, right=True)
    pairs = positive.sum(1) * negative.sum(1)
    unknown = (pairs == 0) | (score.isnan() & (positive | negative)).any(1)
    share = (below.double() * positive).sum(1) / 2 / pairs.clamp(min=1)
    return share.masked_fill(unknown, float("nan"))
