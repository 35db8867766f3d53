"""A data set whose rows come from several named domains."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from seqdg.base import UsageError, unknown


@dataclass(frozen=True)
class Dataset:
    """All rows of all domains in one array, so that any minibatch is a list of row numbers.

    `x` is a tensor or, for sets too large for memory, anything that `numpy` indexing reads rows from.
    """

    name: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]  # (): the targets are numbers
    x: Any  # (row, *input) float32 features, or uint8 images (row, channel, height, width)
    y: Tensor  # (row,) int64, index into classes; float64, the numbers themselves, where there are none
    domain: Tensor  # (row,) int64, index into domains
    fingerprint: str  # hash of the content: the same data give the same one
    validation: Tensor | None = None  # (row,) bool, the official split where there is one
    numbers: int | None = None  # how many of the first inputs are numbers that every trial scales by its own sources
    notes: tuple[str, ...] = ()  # what a record should carry: partial counts, classes that some domains lack
    group: Tensor | None = None  # (row,) int64, index into groups: what else divides the rows, such as a region
    groups: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # of each domain, where a split column fixes it: train, validation or test
    weight: Tensor | None = None  # (row,) float64, how much each counts; None: all the same

    def __post_init__(self) -> None:
        n = len(self.y)
        if len(self.x) != n or len(self.domain) != n:
            raise UsageError(f"{self.name}: x, y and domain have {len(self.x)}, {n} and {len(self.domain)} rows.")
        if self.validation is not None and len(self.validation) != n:
            raise UsageError(f"{self.name}: the official split names {len(self.validation)} of {n} rows.")
        if self.group is not None and len(self.group) != n:
            raise UsageError(f"{self.name}: {len(self.group)} of {n} rows have a group.")
        if self.weight is not None and len(self.weight) != n:
            raise UsageError(f"{self.name}: {len(self.weight)} of {n} rows have a weight.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    @property
    def is_regression(self) -> bool:
        """True where numbers are predicted, not classes."""
        return not self.classes

    @property
    def outputs(self) -> int:
        """Number of outputs of a net per row: a logit for each class, or one number."""
        return len(self.classes) or 1

    @property
    def is_image(self) -> bool:
        return len(self.x.shape) == 4

    def index(self, domain: str) -> int:
        if domain not in self.domains:
            raise unknown("domain", domain, self.domains, owner=self.name)
        return self.domains.index(domain)

    def rows(self, domain: str) -> Tensor:
        """Return the row numbers of one domain, ascending. They are found once: do not change them."""
        return self._rows[self.index(domain)]

    @cached_property
    def _rows(self) -> list[Tensor]:
        return [torch.nonzero(self.domain == i).flatten() for i in range(len(self.domains))]

    @cached_property
    def remembered(self) -> dict[Hashable, Any]:
        """Cache of results that were derived from these rows, by what they were derived with."""
        return {}
