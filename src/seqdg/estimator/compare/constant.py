"""The baseline that costs nothing: predict what is most frequent among the sources, or their mean."""

from __future__ import annotations

import torch
from torch import Tensor

from seqdg.data import Dataset
from seqdg.training import measure_rows

MAJORITY, MEAN = "majority-class", "mean"


def score_constant(data: Dataset) -> dict[str, dict[str, float]]:
    """Return by held-out domain and criterion what a constant of the other domains reaches: the shares of their
    classes, of which the largest is predicted, or the mean of their numbers."""
    weight = torch.ones(len(data.y), dtype=torch.float64) if data.weight is None else data.weight.double()
    found = {}
    for i, domain in enumerate(data.domains):
        rows, sources = data.rows(domain), data.domain != i
        said = _find_constant(data, sources, weight).expand(len(rows), -1)
        found[domain] = measure_rows(said, data.y[rows], None if data.weight is None else weight[rows])
    return found


def _find_constant(data: Dataset, sources: Tensor, weight: Tensor) -> Tensor:
    """Return the logarithm of the share of each class (class,), or the mean (1,)."""
    if data.is_regression:
        return ((data.y * weight)[sources].sum() / weight[sources].sum())[None]
    shares = torch.bincount(data.y[sources], weights=weight[sources], minlength=len(data.classes)).double()
    return (shares / shares.sum()).clamp(min=1e-12).log()
