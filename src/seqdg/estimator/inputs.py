"""The inputs of a model: a table, images, or arrays of one shape, each turned into the inputs of its net."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqdg.base import UsageError
from seqdg.data import Frame, Scaling, make_frame, make_standard
from seqdg.data import prepare as prepare_images
from seqdg.estimator.preprocessing import Preprocessing
from seqdg.nets import Normalization

TOGETHER = 2**23  # numbers that enter the net at once


@dataclass(frozen=True)
class TableInput:
    """Rows of a table, in double precision, so that a row's prediction does not depend on the rows beside it."""

    preprocessing: Preprocessing

    dtype = torch.float64

    @property
    def width(self) -> int:
        """Number of columns of the table."""
        return len(self.preprocessing.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as the net reads it."""
        return (self.preprocessing.width,)

    def read(self, x: Any) -> tuple[Tensor, list[str]]:
        """Read all rows, and return notes on what differs from the training data."""
        matrix, notes = self.preprocessing.apply(x if isinstance(x, Frame) else make_frame(x))
        return torch.from_numpy(matrix), notes

    def prepare(self, x: Tensor) -> Tensor:
        return x

    def describe(self) -> dict[str, Any]:
        p = self.preprocessing
        vocabulary = [[name, list(known)] for name, known in p.vocabulary.items()]
        return {
            "kind": "table", "columns": list(p.names), "named": p.named, "numeric": list(p.numeric),
            "vocabulary": vocabulary,
            **({"dates": dict(p.dates)} if p.dates else {}), **({"na": list(p.na)} if p.na else {}),
        }  # fmt: skip

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: c for name, c in self.preprocessing.scaling._asdict().items() if c.dim() == 1 or c.shape[1]}


@dataclass(frozen=True)
class ImageInput:
    """Images (row, channel, height, width): bytes, or floats in [0, 1]; resized to the net's size."""

    channels: int
    size: int
    normalization: Normalization
    stored: int  # side to which image files are decoded

    dtype = torch.float32

    @property
    def width(self) -> int:
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    def read(self, x: Any) -> tuple[Tensor, list[str]]:
        images = _to_tensor(x)
        if images.dim() != 4 or images.shape[1] != self.channels:
            raise UsageError(
                f"The model reads images (row, {self.channels}, height, width), but the input has shape "
                f"{list(images.shape)}."
            )
        if images.is_floating_point():
            _check_finite(images)
            images = images.to(torch.float32)
        elif images.dtype != torch.uint8:
            raise UsageError(f"Images are bytes, or floats from 0 to 1, but these are {images.dtype}.")
        if images.shape[2:].numel() == 0:
            raise UsageError(f"The images have no pixels: the input has shape {list(images.shape)}.")
        return images, []

    def prepare(self, x: Tensor) -> Tensor:
        return prepare_images(x, self.size, self.normalization)

    def describe(self) -> dict[str, Any]:
        return {"kind": "image", **asdict(self)}

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class ArrayInput:
    """Arrays (row, *shape) of any other shape, taken as they are."""

    shape: tuple[int, ...]

    dtype = torch.float32

    @property
    def width(self) -> int:
        return math.prod(self.shape)

    def read(self, x: Any) -> tuple[Tensor, list[str]]:
        array = _to_tensor(x)
        if tuple(array.shape[1:]) != self.shape:
            raise UsageError(
                f"The model reads arrays (row, {', '.join(map(str, self.shape))}), not {list(array.shape)}."
            )
        array = array.to(torch.float32)
        _check_finite(array)
        return array, []

    def prepare(self, x: Tensor) -> Tensor:
        return x

    def describe(self) -> dict[str, Any]:
        return {"kind": "array", "shape": list(self.shape)}

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {}


Input = TableInput | ImageInput | ArrayInput


def rebuild_input(table: dict[str, Any], tensors: dict[str, Tensor]) -> Input:
    """Rebuild an input from what `describe` and `tensors` return."""
    if table["kind"] == "table":
        scaling = make_standard(*(tensors[name] for name in Scaling._fields[:3]))
        scaling = scaling._replace(**{name: tensors[name] for name in Scaling._fields[3:] if name in tensors})
        vocabulary = {name: tuple(known) for name, known in table["vocabulary"]}
        names, numeric = tuple(table["columns"]), tuple(table["numeric"])
        dates, na = table.get("dates", {}), tuple(table.get("na", ()))
        return TableInput(Preprocessing(names, table["named"], numeric, vocabulary, scaling, dates, na))
    if table["kind"] == "image":
        normalization = Normalization(*(tuple(table["normalization"][name]) for name in ("mean", "std")))
        return ImageInput(table["channels"], table["size"], normalization, table["stored"])
    if table["kind"] == "array":
        return ArrayInput(tuple(table["shape"]))
    raise KeyError(table["kind"])


def _to_tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach().cpu()
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"Arrays of more than two dimensions hold numbers, but these hold {array.dtype}.")
    if array.dtype.kind == "f":
        array = array.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(array))


def _check_finite(x: Tensor) -> None:
    if not bool(torch.isfinite(x).all()):
        raise UsageError("Input X contains infinity or NaN: give finite numbers.")
