"""Losses: cross-entropy in which rows of some classes weigh more, and those of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import cross_entropy

from seqdg.base import UsageError, unknown
from seqdg.nets import Criterion

AUTO = "auto"  # cross-entropy of classes, the squared loss of numbers
NUMBER_LOSSES = ("squared", "absolute", "huber")


@dataclass(frozen=True)
class WeightedCrossEntropy:
    """Mean over rows of weight[y] * cross-entropy."""

    weight: Tensor  # (class,), 1 on average over the rows that are drawn; on the device that trains

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        weight = self.weight.to(logits.dtype).index_select(0, y)
        return (weight * cross_entropy(logits, y, reduction="none")).mean()


@dataclass(frozen=True)
class NumberLoss:
    """Mean over rows of a loss of the difference d = f(x) - y, in units of the sources' deviation.

    squared: d^2     absolute: |d|     huber: d^2 / 2 where |d| < 1, else |d| - 1/2  (Huber, 1964)
    """

    name: str = "squared"
    is_regression: ClassVar[bool] = True  # so that a net knows that it predicts numbers

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """outputs: (row, 1)   y: (row,)"""
        difference = outputs.squeeze(-1) - y
        if self.name == "squared":
            return (difference**2).mean()
        size = difference.abs()
        if self.name == "absolute":
            return size.mean()
        return torch.where(size < 1.0, difference**2 / 2, size - 0.5).mean()


@dataclass(frozen=True)
class RowWeighted:
    """Mean over rows of w * loss, of targets (row, 2): the label or number of each row, and its weight w.

    The mean divides by the number of rows, so that a minibatch of heavy rows counts more than one of light rows.
    """

    criterion: Criterion

    @property
    def is_regression(self) -> bool:
        return bool(getattr(self.criterion, "is_regression", False))

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        y, weight = targets.unbind(-1)
        y = y if self.is_regression else y.long()
        each: Tensor = vmap(lambda row, target: self.criterion(row, target))(outputs.unsqueeze(1), y.unsqueeze(1))
        return (weight * each).mean()


def find_number_loss(name: str) -> NumberLoss:
    """Return the loss of that name; `auto` is the squared one."""
    return NumberLoss("squared" if name == AUTO else name)


def make_loss(
    class_weight: Any, labels: Sequence[Tensor], classes: Sequence[Any], device: torch.device | str = "cpu"
) -> Criterion:
    """Make the loss for a class weight, from the labels (row,) of every source as class numbers.

    None: all rows weigh the same.   "balanced": every class weighs the same over minibatches of equal size from every
    source.   A mapping: classes with their weights, 1 where missing.
    """
    if class_weight is None:
        return cross_entropy
    shares = torch.stack([torch.bincount(y, minlength=len(classes)) / len(y) for y in labels]).double().mean(0)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise unknown("class weight", class_weight, ("balanced",))
        weight = torch.where(shares > 0, 1 / shares.clamp(min=1e-12), 0.0)
    elif isinstance(class_weight, Mapping):
        weight = torch.tensor(_read_weights(class_weight, classes), dtype=torch.float64)
    else:
        raise UsageError(f"class_weight is {class_weight!r}, but it must be None, 'balanced', or a weight by class.")
    mean = (weight * shares).sum()
    if not float(mean) > 0:
        raise UsageError("class_weight gives no weight to any row: give at least one class a positive weight.")
    return WeightedCrossEntropy((weight / mean).float().to(device))


def _read_weights(table: Mapping[Any, Any], classes: Sequence[Any]) -> list[float]:
    names = [str(c) for c in classes]
    by_name = {str(key): value for key, value in table.items()}
    for name, value in by_name.items():
        if name not in names:
            raise unknown("class", name, names)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value < float("inf"):
            raise UsageError(f"The weight of class {name} is {value!r}, but it must be a number of at least 0.")
    return [float(by_name.get(name, 1.0)) for name in names]
