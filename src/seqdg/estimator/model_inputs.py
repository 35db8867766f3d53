"""How a model reads its inputs: a table, images, or arrays of one shape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqdg.base import MOST_NAMES, UsageError, count_things, find_similar, list_some
from seqdg.data import (
    PARTS,
    STANDARD,
    Column,
    Frame,
    Scaling,
    drop_missing,
    expect_dates,
    expect_numbers,
    expect_words,
    join_columns,
    learn_scaling,
    make_frame,
    make_standard,
    take_parts,
)
from seqdg.data import prepare as prepare_images
from seqdg.nets import Normalization

MOST_CATEGORIES = 1000  # of one column; more is an identifier
TOGETHER = 2**23  # numbers that enter the net at once


@dataclass(frozen=True)
class TableInput:
    """Rows of a table, in double precision, so that a row's prediction does not depend on the rows beside it."""

    names: tuple[str, ...]  # of all columns, as they were in training
    named: bool  # whether the user gave them
    numeric: tuple[str, ...]  # columns of numbers, and after them the parts of dates, such as `admitted.year`
    vocabulary: Mapping[str, tuple[str, ...]]  # the categories of each other column
    scaling: Scaling  # of the columns of numbers
    dates: Mapping[str, str] = field(default_factory=dict)  # columns of dates: the order of day and month in text
    na: tuple[str, ...] = ()  # text and numbers that mean missing, besides the usual ones

    dtype = torch.float64

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as the net reads it."""
        return (len(self.numeric) + sum(len(known) for known in self.vocabulary.values()),)

    def read(self, x: Any) -> tuple[Tensor, list[str]]:
        """Return the net's inputs, and notes on what differs from the training data."""
        return self._read(x if isinstance(x, Frame) else make_frame(x), self.scaling.in_blocks)

    def read_with_missing(self, frame: Frame) -> tuple[Tensor, list[str]]:
        """Return the same inputs, but with NaN where a number is missing, and without the limit."""
        return self._read(frame, self.scaling.without_limit)

    def read_raw(self, x: Any) -> tuple[Tensor, list[str]]:
        """Return the same inputs, but with numbers as they are in the table: what `scale` takes."""
        return self._read(x if isinstance(x, Frame) else make_frame(x), lambda raw: raw)

    def scale(self, raw: Tensor) -> Tensor:
        """Return the net's inputs, of inputs that `read_raw` returned."""
        k = len(self.numeric)
        return torch.cat([self.scaling.in_blocks(raw[:, :k]), raw[:, k:]], dim=1)

    def _read(self, frame: Frame, scale: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[str]]:
        """Put the scaled numbers and an input per category side by side."""
        raw, codes, notes = self.encode(frame)
        inputs = torch.zeros((len(codes), *self.shape), dtype=torch.float64)
        k = len(self.numeric)
        inputs[:, :k] = scale(torch.from_numpy(raw))
        for indices, known in zip(codes.T, self.vocabulary.values(), strict=True):
            seen = np.flatnonzero(indices >= 0)
            inputs[seen, k + indices[seen]] = 1.0
            k += len(known)
        return inputs, notes

    def encode(self, frame: Frame) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
        """Return raw numbers (row, column of numbers), the indices of categories in their vocabularies, -1 for one that
        is in none, and notes."""
        columns = dict(zip(self._match_names(frame), frame.columns, strict=True))
        if any(name not in columns for name in self.names):
            raise make_missing_error(self.names, columns)
        columns = {name: drop_missing(columns[name], self.na) for name in self.names}
        raw, rows = np.empty((len(frame), len(self.numeric))), frame.row_numbers
        plain = len(self.numeric) - len(PARTS) * len(self.dates)
        for i, name in enumerate(self.numeric[:plain]):
            raw[:, i] = check_finite(name, expect_numbers(name, columns[name], rows), rows)
        for i, (name, order) in enumerate(self.dates.items()):
            start = plain + len(PARTS) * i
            raw[:, start : start + len(PARTS)] = take_parts(expect_dates(name, columns[name], order, rows))
        codes = np.empty((len(frame), len(self.vocabulary)), dtype=np.int64)
        notes = []
        for i, (name, known) in enumerate(self.vocabulary.items()):
            text = pd.Series(expect_words(columns[name], known), dtype=object)
            codes[:, i] = pd.Index(known, dtype=object).get_indexer(text)
            if strange := text[codes[:, i] < 0].dropna().unique().tolist():
                notes.append(
                    f"Column '{name}' has categories that were not in the training data: {list_some(strange)}."
                )
        return raw, codes, notes

    def list_columns(self, frame: Frame) -> dict[str, Column]:
        """Return by name the columns of numbers, nan where one is missing, and of categories, None where."""
        columns = dict(zip(self._match_names(frame), frame.columns, strict=True))
        numbers = [name for name in self.names if name in self.numeric]
        kept = {name: drop_missing(columns[name], self.na) for name in (*numbers, *self.vocabulary)}
        read = {name: expect_numbers(name, kept[name], frame.row_numbers) for name in numbers}
        return read | {name: expect_words(kept[name], known) for name, known in self.vocabulary.items()}

    def prepare(self, x: Tensor) -> Tensor:
        return x

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "table", "columns": list(self.names), "named": self.named, "numeric": list(self.numeric),
            "vocabulary": [[name, list(known)] for name, known in self.vocabulary.items()],
            **({"dates": dict(self.dates)} if self.dates else {}), **({"na": list(self.na)} if self.na else {}),
        }  # fmt: skip

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: c for name, c in self.scaling._asdict().items() if c.dim() == 1 or c.shape[1]}

    def _match_names(self, frame: Frame) -> Sequence[str]:
        """Name the frame's columns: by name where both have names, else by position."""
        if self.named and frame.named:
            return frame.names
        if len(frame.names) != len(self.names):
            raise UsageError(
                f"The input has {len(frame.names)} columns where the model was fitted on {len(self.names)}."
            )
        return self.names


def learn_table_input(frame: Frame, scaling: str = STANDARD) -> TableInput:
    """Learn the constants and vocabularies of these rows."""
    pairs = list(zip(frame.names, frame.columns, strict=True))
    numbers = [(name, values) for name, values in pairs if values.dtype.kind == "f"]
    dates = {name: values for name, values in pairs if values.dtype.kind == "M"}
    parts = [
        (f"{name}.{part}", column)
        for name, values in dates.items()
        for part, column in zip(PARTS, take_parts(values).T, strict=True)
    ]
    # Column by column, so that only one at a time is copied.
    columns = [
        learn_scaling(torch.tensor(check_finite(name, values, frame.row_numbers)[:, None]), scaling)
        for name, values in (*numbers, *parts)
    ]
    none = learn_scaling(torch.zeros(1, 0), scaling)
    orders = {t.name: t.order for t in frame.types or ()}
    return TableInput(
        names=frame.names,
        named=frame.named,
        numeric=tuple(name for name, _ in (*numbers, *parts)),
        vocabulary={name: _list_categories(name, values) for name, values in pairs if values.dtype == object},
        scaling=join_columns([none, *columns]),
        dates={name: orders.get(name, "") for name in dates},
        na=frame.na,
    )


def _list_categories(name: str, values: Column) -> tuple[str, ...]:
    known = sorted({v for v in values.tolist() if v is not None})
    if len(known) > MOST_CATEGORIES:
        raise UsageError(
            f"Column '{name}' has {len(known)} categories in {len(values)} rows, and at most {MOST_CATEGORIES} "
            f"are told apart: is it an identifier? Then leave it out, on the command line by --id {name}, which writes "
            "it beside the predictions; or merge its rare ones."
        )
    return tuple(known)


def check_finite(name: str, values: Column, row_numbers: NDArray[np.int64]) -> Column:
    """Return the values of a column, or raise a UsageError where one is infinite.

    row_numbers: (row,) in the user's table, for the error message.
    """
    wrong = row_numbers[np.isinf(values)]
    if len(wrong):
        raise UsageError(
            f"Input X contains infinity: column '{name}' in {count_things(len(wrong), 'row')} (from 0: "
            f"{list_some(wrong)}). Leave such cells empty, or give a number."
        )
    return values


def make_missing_error(needed: Sequence[str], columns: Collection[str], owner: str = "The input") -> UsageError:
    """Name the columns that a model needs and its input lacks, and those of the input that look like them.

    columns: those of the input.   owner: the input, at the start of the sentence, such as the name of a file.
    """
    missing = [name for name in needed if name not in columns]
    others = [name for name in columns if name not in needed]
    similar = {name: find_similar(name, others) for name in missing}
    near = ", ".join(f"'{other}' for '{name}'" for name, other in similar.items() if other is not None)
    one = len(missing) == 1
    which = f"column '{missing[0]}'" if one else f"columns {list_some(map(repr, missing), MOST_NAMES)}"
    return UsageError(
        f"{owner} has no {which}: the model was trained with {'it and needs it' if one else 'them and needs them all'}."
        + (f" Did you mean {near}?" if near else "")
        + (f" {owner} has: {list_some(columns, MOST_NAMES)}." if columns else "")
    )


@dataclass(frozen=True)
class RawTableInput(TableInput):
    """Rows of a table with numbers as they are, for several models that scale them each in its own way."""

    def read(self, x: Any) -> tuple[Tensor, list[str]]:
        return self.read_raw(x)


@dataclass(frozen=True)
class ImageInput:
    """Images (row, channel, height, width): bytes, or floats in [0, 1]; resized to the net's size."""

    channels: int
    size: int
    normalization: Normalization
    stored: int  # side to which image files are decoded

    dtype = torch.float32

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
        return TableInput(names, table["named"], numeric, vocabulary, scaling, dates, na)
    if table["kind"] == "image":
        normalization = Normalization(*(tuple(table["normalization"][name]) for name in ("mean", "std")))
        return ImageInput(table["channels"], table["size"], normalization, table["stored"])
    return ArrayInput(tuple(table["shape"]))


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
