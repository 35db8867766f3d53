"""Rows of a data set as a net's inputs, on its device."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from seqdg.data import stream
from seqdg.data.domain import Dataset


class Transform(Protocol):
    """From stored rows to what enters the net; `train` may draw noise from the key of the step."""

    def train(self, x: Tensor, key: Tensor) -> Tensor: ...

    def serve(self, x: Tensor) -> Tensor: ...


class Inputs:
    """A data set resident on a device, or read row by row from where it lies."""

    def __init__(
        self,
        dataset: Dataset,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        transform: Transform | None = None,
        resident: bool | None = None,
    ) -> None:
        """resident: all rows on the device; None: if they fit there."""
        self.device, self.dtype, self.transform = device, dtype, transform
        self.y = dataset.y.to(device)
        self.classes = len(dataset.classes)
        self.shape = dataset.shape
        stays = stream.fits(dataset.x, device) if resident is None else resident
        self._x: Any = stream.resident(dataset.x, device) if stays else dataset.x
        if isinstance(self._x, Tensor) and self._x.is_floating_point():
            self._x = self._x.to(dtype)

    def train(self, rows: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """x (*rows, *input) and y (*rows) of a training step; rows lead with the axis of the key, if it has one."""
        x = self._gather(rows)
        if self.transform is not None:
            draw = self.transform.train
            x = draw(x, key) if key.dim() == 0 else torch.func.vmap(draw)(x, key)
        return x, self._labels(rows)

    def serve(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """x and y for evaluation."""
        x = self._gather(rows)
        if self.transform is not None:
            x = self.transform.serve(x.flatten(0, rows.dim() - 1))
            x = x.reshape(*rows.shape, *x.shape[1:])
        return x, self._labels(rows)

    def _labels(self, rows: Tensor) -> Tensor:
        return self.y.index_select(0, rows.flatten()).reshape(rows.shape)

    def _gather(self, rows: Tensor) -> Tensor:
        x = stream.gather(self._x, rows, self.device)
        return x.to(self.dtype) if x.is_floating_point() else x
