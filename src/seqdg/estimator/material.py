"""A user's rows, labels and domains as a data set, and how new rows are to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqdg.base.errors import UsageError
from seqdg.base.words import count_things, list_some
from seqdg.data import Dataset, checks
from seqdg.data.cells import is_missing, to_word
from seqdg.data.frame import Frame, is_dataframe, make_frame
from seqdg.estimator.inputs import ArrayInput, ImageInput, Input, TableInput
from seqdg.estimator.preprocessing import learn_preprocessing, note_identifiers
from seqdg.estimator.recipe import Recipe
from seqdg.training.sampler import make_stream

LARGEST_FOUND_SIZE = 224


@dataclass(frozen=True)
class Material:
    dataset: Dataset
    input: Input
    classes: NDArray[Any]  # as the user calls them


def prepared(x: Any, y: NDArray[Any], domains: Any, recipe: Recipe, gaps: bool = False) -> Material:
    """y: (row,) labels. domains: (row,) names or numbers, or None for a single domain.

    gaps: leave NaN where a table has no number, for those who fill it from some of the domains only.
    """
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise UsageError(f"There is only one class, {classes[0]}: at least two are needed to learn to tell them apart.")
    if recipe.criterion == "auroc" and len(classes) != 2:
        raise UsageError(f"auroc is defined for two classes, and there are {len(classes)}: choose another criterion.")
    names, domain = _domains(domains, len(y))
    rows, read = _rows(x, recipe, gaps)
    if not len(rows) == len(codes) == len(domain):
        raise UsageError(f"X, y and domains have {len(rows)}, {len(codes)} and {len(domain)} rows: they must agree.")
    labels = {name: codes[domain == i] for i, name in enumerate(names)}
    _, notes = checks.check_class_coverage(labels, [str(c) for c in classes], held_out=())
    if isinstance(read, TableInput):
        notes = [*notes, *note_identifiers(read.preprocessing, len(rows))]
    dataset = Dataset(
        name="the data",
        domains=names,
        classes=tuple(str(c) for c in classes),
        x=rows,
        y=torch.from_numpy(codes.astype(np.int64)),
        domain=torch.from_numpy(domain),
        fingerprint="",
        validation=validation_mask(codes, domain, recipe.validation, recipe.seed),
        notes=tuple(notes),
    )
    return Material(dataset, read, classes)


def _rows(x: Any, recipe: Recipe, gaps: bool) -> tuple[Any, Input]:
    read: Input
    if isinstance(x, Frame) or is_dataframe(x) or _dimensions(x) == 2:
        frame = x if isinstance(x, Frame) else make_frame(x)
        preprocessing = learn_preprocessing(frame)
        matrix = (preprocessing.apply_with_gaps if gaps else preprocessing.apply)(frame)[0]
        if not preprocessing.width:
            raise UsageError("No column of the table holds any value: there is nothing to learn from.")
        return torch.from_numpy(matrix.astype(np.float32)), TableInput(preprocessing)
    shape = tuple(x.shape)
    if len(shape) == 4:
        return _images(x, shape, recipe)
    read = ArrayInput(shape[1:])
    return read.read(x)[0], read


def _images(x: Any, shape: tuple[int, ...], recipe: Recipe) -> tuple[Any, ImageInput]:
    """Bytes in a memory map stay there."""
    size = recipe.image_size or min(max(shape[2:]), LARGEST_FOUND_SIZE)
    normalization = recipe.built((shape[1], size, size), 2, seed=0).normalization
    read = ImageInput(shape[1], size, normalization, stored=max(shape[2:]))
    is_map = isinstance(x, np.ndarray) and x.dtype == np.uint8
    return (x if is_map else read.read(x)[0]), read


def _dimensions(x: Any) -> int:
    return len(x.shape) if hasattr(x, "shape") else np.ndim(x)


def _domains(given: Any, rows: int) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names in order, and which one each row is of."""
    if given is None:
        return ("all",), np.zeros(rows, dtype=np.int64)
    values = given.tolist() if hasattr(given, "tolist") else list(given)
    if np.ndim(np.asarray(values, dtype=object)) != 1:
        raise UsageError("domains must have one entry per row of X.")
    if len(values) != rows:
        raise UsageError(f"There are {rows} labels but {len(values)} domains: give one entry per row.")
    lacking = [i for i, value in enumerate(values) if is_missing(value)]
    if lacking:
        raise UsageError(
            f"There is no domain for {count_things(len(lacking), 'row')} (from 0: {list_some(lacking)}): "
            "name it for every row."
        )
    words = [to_word(value) for value in values]
    names = tuple(dict.fromkeys(sorted(words, key=_order)))
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([index[word] for word in words], dtype=np.int64)


def _order(word: str) -> tuple[int, float, str]:
    """Numbers by size, before words by the alphabet."""
    try:
        return (0, float(word), word)
    except ValueError:
        return (1, 0.0, word)


def validation_mask(
    y: NDArray[np.int64], domain: NDArray[np.int64], share: float, seed: int
) -> Tensor:  # (row,) of bool
    """About a share of every class of every domain, but not all its rows; at least one of a domain that has two."""
    chosen = np.zeros(len(y), dtype=bool)
    for d in np.unique(domain) if share else ():
        mine = np.flatnonzero(domain == d)
        shuffled = mine[make_stream(seed, "validation", int(d)).permutation(len(mine))]
        by_class = [shuffled[y[shuffled] == c] for c in np.unique(y[mine])]
        taken = [rows[: min(round(share * len(rows)), len(rows) - 1)] for rows in by_class]
        if not any(len(rows) for rows in taken) and len(mine) > 1:
            taken = [max(by_class, key=len)[:1]]
        chosen[np.concatenate(taken)] = True
    return torch.from_numpy(chosen)
