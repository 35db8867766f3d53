"""Temperature scaling: probabilities softmax(z / T), T chosen on validation rows of the sources (Guo et al., 2017).

T minimizes the log loss summed over the rows plus (log T)^2 / (2 d^2): log T has a normal prior of deviation d = 0.5,
so that few rows, or rows that are all predicted right, do not make a net arbitrarily sure. The most probable class
stays the most probable.

Where rows have weights w, their losses are summed with w * sum(w) / sum(w^2), which add up to the number of rows that
would say as much (Kish, 1965): a few heavy rows do not outweigh the prior.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DEVIATION = 0.5  # of log T
LARGEST = 20.0  # T is between 1 / LARGEST and LARGEST
HALVINGS = 40


def fit_temperature(logits: Tensor, y: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the temperature of every trial (trial,), 1 where no row counts or a logit is not finite.

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
