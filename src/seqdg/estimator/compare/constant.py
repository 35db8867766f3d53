"""The baseline that costs nothing: predict what is most frequent among the sources, or their mean."""

from __future__ import annotations

import torch
from torch import Tensor

from seqdg.data import Dataset
from seqdg.training import compute_metrics

MAJORITY, MEAN = "majority-class", "mean"


def score_constant(data: Dataset) -> dict[str, dict[str, float]]:
    """Return by held-out domain and criterion what a constant of the other domains reaches: the shares of their
    classes, of which the largest is predicted, or the mean of their numbers."""
    weight = torch.ones(len(data.y), dtype=torch.float64) if data.weight is None else data.weight.double()
    found = {}
    for i, domain in enumerate(data.domains):
        rows, sources = data.rows(domain), data.domain != i
        y, weighs = data.y[rows][None], None if data.weight is None else weight[rows][None]
        said = _find_constant(data, sources, weight).expand(1, len(rows), -1)
        metrics = compute_metrics(said, y, torch.ones_like(y, dtype=torch.bool), weight=weighs)
        found[domain] = {name: float(value) for name, value in metrics.items()}
    return found


def _find_constant(data: Dataset, sources: Tensor, weight: Tensor) -> Tensor:
    """Return the logarithm of the share of each class (class,), or the mean (1,)."""
    if data.is_regression:
        return ((data.y * weight)[sources].sum() / weight[sources].sum())[None]
    shares = torch.bincount(data.y[sources], weights=weight[sources], minlength=len(data.classes)).double()
    return (shares / shares.sum()).clamp(min=1e-12).log()
