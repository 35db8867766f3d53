"""Columns of numbers on one scale: the median fills missing values, and then one of

- `standard`: (value - mean) / deviation, within LIMIT deviations;
- `quantile`: the normal score of the value's rank among the values seen, linear between KNOTS quantiles and constant
  beyond the first and the last, so that neither the shape of a column nor values far away matter;
- `open`: as `standard`, but what is missing stays NaN, for trees that learn where it goes.

A column that never varies says nothing and becomes 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

LIMIT = 1000.0
STANDARD, QUANTILE, OPEN = "standard", "quantile", "open"
SCALINGS = (STANDARD, QUANTILE, OPEN)
KNOTS = 33
AT_A_TIME = 8  # knots, where operations are to be few
BLOCK = 2**19  # numbers that are scaled at a time, so that they stay in a CPU's cache from one piece to the next
SAMPLE = 10_000  # rows that quantiles are found in
TAIL = 0.005  # the least share of values that a quantile is taken to have below it, and above it


class Scaling(NamedTuple):
    """Constants of every column, (column,) of one table or (trial, column) of a stack."""

    fill: Tensor  # stands in for what is missing
    mean: Tensor
    factor: Tensor  # 1 / deviation; 0 where the column never varies
    knots: Tensor  # (..., column, knot) values, ascending; no knots: the scaling is standard
    scores: Tensor  # (..., column, knot) what they become

    def __call__(self, x: Tensor) -> Tensor:
        """Scale rows (..., row, column); one table's constants, or a first axis of trials in both."""
        fill, mean, factor, knots, scores = self
        if fill.dim() == 2:
            between = (1,) * (x.dim() - 2)
            fill, mean, factor = (c.reshape(len(c), *between, -1) for c in self[:3])
            knots, scores = (c.reshape(len(c), *between, *c.shape[1:]) for c in self[3:])
        filled = torch.where(torch.isnan(x), fill, x)
        if not knots.shape[-1]:
            return torch.where(factor == 0, 0.0, (filled - mean) * factor).clamp(-LIMIT, LIMIT)
        widths, slopes = _measure_pieces(knots, scores)
        scaled = scores[..., 0].expand_as(filled)
        for k in range(knots.shape[-1] - 1):
            beyond = torch.minimum((filled - knots[..., k]).clamp(min=0.0), widths[..., k])
            scaled = scaled + beyond * slopes[..., k]
        return scaled

    def in_blocks(self, x: Tensor) -> Tensor:
        """Scale rows as a call does, to the bit, some at a time: several times as fast on a CPU, where they are
        many."""
        rows = max(1, BLOCK * x.shape[-2] // max(1, x.numel()))
        if x.device.type != "cpu" or rows >= x.shape[-2]:
            return self(x)
        return torch.cat([self(some) for some in torch.split(x, rows, dim=-2)], dim=-2)

    def in_few_operations(self, x: Tensor) -> Tensor:
        """Scale rows of one table as a call does, up to rounding: several knots at a time, which needs more memory and
        makes a graph that is traced an eighth as long."""
        fill, _, _, knots, scores = self
        if not knots.shape[-1]:
            return self(x)
        filled = torch.where(torch.isnan(x), fill, x)
        widths, slopes = _measure_pieces(knots, scores)
        scaled = scores[..., 0].expand_as(filled)
        for k in range(0, widths.shape[-1], AT_A_TIME):
            some = slice(k, min(k + AT_A_TIME, widths.shape[-1]))
            beyond = torch.minimum((filled[..., None] - knots[..., some]).clamp(min=0.0), widths[..., some])
            scaled = scaled + (beyond * slopes[..., some]).sum(-1)
        return scaled

    def without_limit(self, x: Tensor) -> Tensor:
        """Scale rows by mean and deviation, but keep missing values as NaN and values however far away."""
        return torch.where((self.factor == 0) & ~torch.isnan(x), 0.0, (x - self.mean) * self.factor)


def _measure_pieces(knots: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the width and the slope of every piece between two knots."""
    widths = knots[..., 1:] - knots[..., :-1]
    return widths, torch.where(widths > 0, (scores[..., 1:] - scores[..., :-1]) / widths, 0.0)


def make_standard(fill: Tensor, mean: Tensor, factor: Tensor) -> Scaling:
    """Make the constants of a standard scaling."""
    nothing = mean.new_zeros(*mean.shape, 0)
    return Scaling(fill, mean, factor, nothing, nothing)


def join_columns(parts: list[Scaling]) -> Scaling:
    """Return the constants of columns side by side."""
    return Scaling(*(torch.cat([part[i] for part in parts]) for i in range(len(Scaling._fields))))


def learn_scaling(x: Tensor, kind: str = STANDARD) -> Scaling:
    """Learn the constants of rows (row, column), NaN where a number is missing.

    The median is the lower one of two; mean, deviation and quantiles are taken once it has filled what is missing.
    """
    x = x.double()
    if not x.shape[1]:
        nothing, knots = x.new_zeros(0), x.new_zeros(0, KNOTS if kind == QUANTILE else 0)
        return Scaling(nothing, nothing, nothing, knots, knots)
    missing = torch.isnan(x)
    present = ~missing.all(0)
    low = x.masked_fill(missing, float("inf")).amin(0)
    high = x.masked_fill(missing, float("-inf")).amax(0)
    varies = present & (high > low)
    size = torch.where(varies, torch.maximum(low.abs(), high.abs()), 1.0)  # so that squares of huge numbers are finite
    scaled = x / size
    median = scaled.nanmedian(0).values
    filled = torch.where(missing, median, scaled)
    factor = 1 / (filled.std(0, correction=0) * size)
    varies &= torch.isfinite(factor)
    nothing = torch.zeros_like(size)
    standard = make_standard(
        fill=torch.where(present, median * size, nothing),
        mean=torch.where(varies, filled.mean(0) * size, nothing),
        factor=torch.where(varies, factor, nothing),
    )
    if kind == OPEN:
        return standard._replace(fill=torch.full_like(standard.fill, torch.nan))
    if kind == STANDARD:
        return standard
    knots, scores = x.new_zeros(len(size), KNOTS), x.new_zeros(len(size), KNOTS)
    share = torch.linspace(0, 1, KNOTS, dtype=x.dtype, device=x.device)
    for i, quantiles in enumerate((_find_quantiles(filled, share) * size).T):
        if varies[i]:
            knots[i], scores[i] = _score_quantiles(quantiles, share)
    return standard._replace(knots=knots, scores=scores)


def keep_as_is(known: Tensor, like: Scaling) -> Scaling:
    """Make the constants that leave inputs from 0 to 1 as they are where they are known, and else make them 0, with as
    many knots as another scaling has."""
    known = known.to(like.mean.dtype)
    standard = make_standard(torch.zeros_like(known), torch.zeros_like(known), known)
    count = like.knots.shape[-1]
    if not count:
        return standard
    rising = (torch.arange(count, device=known.device) > 0).to(known.dtype)
    return standard._replace(knots=rising.expand(len(known), count), scores=known[:, None] * rising)


def _find_quantiles(x: Tensor, share: Tensor) -> Tensor:
    """Return the values (share, column) below which these shares of the rows lie, linear between two rows; of many
    rows, those of SAMPLE that are drawn, always the same."""
    if len(x) > SAMPLE:
        drawn = np.random.Generator(np.random.Philox(0)).choice(len(x), SAMPLE, replace=False)
        x = x[torch.from_numpy(drawn).to(x.device)]
    ordered = x.sort(0).values
    position = share * (len(ordered) - 1)
    below = position.floor().long().clamp(max=len(ordered) - 1)
    above = (below + 1).clamp(max=len(ordered) - 1)
    return torch.lerp(ordered[below], ordered[above], (position - below)[:, None])


def _score_quantiles(quantiles: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return knots and their normal scores. Where several quantiles are the same value, it is one knot, whose score is
    that of the middle of their shares; the last knot is repeated for those that are left."""
    knots, which, count = torch.unique_consecutive(quantiles, return_inverse=True, return_counts=True)
    middle = torch.zeros_like(knots).index_add_(0, which, share) / count
    scores = torch.special.ndtri(middle.clamp(TAIL, 1 - TAIL))
    rest = len(quantiles) - len(knots)
    return torch.cat([knots, knots[-1:].expand(rest)]), torch.cat([scores, scores[-1:].expand(rest)])
