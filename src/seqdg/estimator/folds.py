"""Stacks of trials with different domains held out, each preprocessed by what its own sources say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.bench.executors.context import Context
from seqdg.bench.trial import Trial
from seqdg.data.augment import ImageTransform
from seqdg.estimator.inputs import TableInput
from seqdg.estimator.loss import loss_of
from seqdg.estimator.material import Material
from seqdg.estimator.preprocessing import LIMIT
from seqdg.estimator.recipe import Recipe
from seqdg.nets import BuiltNet, Criterion
from seqdg.training.inputs import Inputs
from seqdg.training.place import Place
from seqdg.training.protocol import sources

READY = 2**26  # numbers: a quarter of a GiB, for rows that are preprocessed before training


class Constants(NamedTuple):
    """What a table is preprocessed with, (input,) of one trial or (trial, input) of several."""

    fill: Tensor
    mean: Tensor
    factor: Tensor


class FoldInputs(Inputs):
    """Rows with gaps, preprocessed for every trial by constants of its own."""

    def __init__(self, x: Tensor, y: Tensor, device: torch.device, constants: Constants, gaps: bool = True) -> None:
        super().__init__(x, y, device)
        self.factor, self.fill, self.shift = (
            c.to(device, torch.float32) for c in (constants.factor, constants.fill, -constants.mean * constants.factor)
        )
        self.gaps = gaps

    def _gather(self, rows: Tensor) -> Tensor:
        x = super()._gather(rows)  # (trial, ..., input), a copy: what follows may change it
        fill, factor, shift = (
            c.reshape(len(c), *(1,) * (x.dim() - 2), -1) for c in (self.fill, self.factor, self.shift)
        )
        if self.gaps:
            x = torch.where(torch.isnan(x), fill, x)
        return x.mul_(factor).add_(shift).clamp_(-LIMIT, LIMIT)


class ReadyFolds(Inputs):
    """The same, preprocessed beforehand for every kind of trial: those with the same domains held out are of a kind."""

    def __init__(
        self, x: Tensor, y: Tensor, device: torch.device, constants: Constants, kind: Tensor, gaps: bool
    ) -> None:
        kinds, rows = len(constants.fill), len(x)
        every = torch.arange(rows, device=x.device).expand(kinds, rows)
        ready = FoldInputs(x, y, device, constants, gaps)._gather(every)  # (kind, row, input)
        super().__init__(ready.flatten(0, 1), y, device)
        self.first = (kind * rows).to(device)  # (trial,) its first row

    def _gather(self, rows: Tensor) -> Tensor:
        return super()._gather(rows + self.first.reshape(-1, *(1,) * (rows.dim() - 1)))


@dataclass(frozen=True)
class FoldPlace(Place):
    """A user's material on a device."""

    material: Material
    recipe: Recipe

    @cached_property
    def _constants(self) -> dict[tuple[str, ...], Constants]:
        return {}

    @cached_property
    def _has_gaps(self) -> bool:
        return bool(torch.isnan(self.dataset.x).any())

    def net(self, trial: Trial) -> BuiltNet:
        return self.recipe.built(self.material.input.shape, len(self.dataset.classes), trial.seed)

    def loss(self, trial: Trial) -> Criterion:
        """Class weights follow from the sources of the trial, which those of a stack share where it matters."""
        dataset = self.dataset
        labels = [dataset.y[dataset.rows(name)] for name in sources(dataset, trial.held_out)]
        return loss_of(self.recipe.class_weight, labels, self.material.classes.tolist(), self.device)

    def inputs(self, trials: Sequence[Trial], transform: ImageTransform | None) -> Inputs:
        if not isinstance(self.material.input, TableInput):
            return super().inputs(trials, transform)
        numbers = len(self.material.input.preprocessing.numeric)
        for held_out in {t.held_out for t in trials} - self._constants.keys():
            rows = torch.cat([self.dataset.rows(name) for name in sources(self.dataset, held_out)])
            self._constants[held_out] = constants_of(self.dataset.x[rows], numbers, self._has_gaps)
        kinds = list(dict.fromkeys(t.held_out for t in trials))
        kind = torch.tensor([kinds.index(t.held_out) for t in trials])
        constants = Constants(*(torch.stack(c) for c in zip(*(self._constants[k] for k in kinds), strict=True)))
        if len(kinds) * self.dataset.x.numel() <= READY:
            return ReadyFolds(self.x, self.dataset.y, self.device, constants, kind, self._has_gaps)
        each = Constants(*(c.index_select(0, kind) for c in constants))
        return FoldInputs(self.x, self.dataset.y, self.device, each, self._has_gaps)


@dataclass(frozen=True)
class FoldContext(Context):
    """What an executor needs to run trials on a user's material."""

    material: Material | None = None
    recipe: Recipe | None = None

    def place(self) -> Place:
        return self._place

    @cached_property
    def _place(self) -> Place:
        assert self.material is not None
        assert self.recipe is not None
        return FoldPlace(self.material.dataset, torch.device(self.device), self.material, self.recipe)

    __hash__ = Context.__hash__


def constants_of(x: Tensor, numbers: int, fills: bool = True) -> Constants:
    """Of rows (row, input) with gaps, whose first `numbers` inputs are numbers and whose others stand for words.

    The median fills; then mean and deviation. A word that these rows do not have is as unknown to them as any other.
    """
    wide, words = x[:, :numbers].double(), x[:, numbers:]
    fill = wide.nanmedian(0).values.nan_to_num() if fills else wide.new_zeros(numbers)
    filled = torch.where(torch.isnan(wide), fill, wide)
    mean = filled.mean(0)
    deviation = (filled - mean).pow(2).mean(0).sqrt()
    varies = (filled.amax(0) > filled.amin(0)) & (deviation > 0)
    factor = torch.where(varies, 1 / deviation.clamp(min=1e-30), 0.0)
    none = words.new_zeros(words.shape[1])
    return Constants(
        torch.cat([fill, none]), torch.cat([mean, none]), torch.cat([factor, (words.amax(0) > 0).double()])
    )
