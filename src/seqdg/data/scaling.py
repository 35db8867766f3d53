"""Columns of numbers on one scale: the median fills gaps, then (value - mean) / deviation, within LIMIT deviations.

A column that never varies says nothing and becomes 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LIMIT = 1000.0


class Scaling(NamedTuple):
    """Constants of every column, (column,) of one table or (trial, column) of a stack."""

    fill: Tensor  # stands in for what is missing
    mean: Tensor
    factor: Tensor  # 1 / deviation; 0 where the column never varies

    def __call__(self, x: Tensor) -> Tensor:
        """Scale rows (..., row, column); one table's constants, or a first axis of trials in both."""
        fill, mean, factor = self
        if fill.dim() == 2:
            fill, mean, factor = (c.reshape(len(c), *(1,) * (x.dim() - 2), -1) for c in self)
        scaled = (torch.where(torch.isnan(x), fill, x) - mean) * factor
        return torch.where(factor == 0, 0.0, scaled).clamp(-LIMIT, LIMIT)

    def without_limit(self, x: Tensor) -> Tensor:
        """Scale rows, but keep gaps as NaN and values however far away."""
        return torch.where((self.factor == 0) & ~torch.isnan(x), 0.0, (x - self.mean) * self.factor)


def learn_scaling(x: Tensor) -> Scaling:
    """Learn the constants of rows (row, column), NaN where a number is missing.

    The median is the lower one of two; mean and deviation are taken once it has filled the gaps.
    """
    x = x.double()
    gaps = torch.isnan(x)
    present = ~gaps.all(0)
    low = x.masked_fill(gaps, float("inf")).amin(0)
    high = x.masked_fill(gaps, float("-inf")).amax(0)
    varies = present & (high > low)
    size = torch.where(varies, torch.maximum(low.abs(), high.abs()), 1.0)  # so that squares of huge numbers are finite
    scaled = x / size
    median = scaled.nanmedian(0).values
    filled = torch.where(gaps, median, scaled)
    factor = 1 / (filled.std(0, correction=0) * size)
    varies &= torch.isfinite(factor)
    nothing = torch.zeros_like(size)
    return Scaling(
        fill=torch.where(present, median * size, nothing),
        mean=torch.where(varies, filled.mean(0) * size, nothing),
        factor=torch.where(varies, factor, nothing),
    )
