"""Predictions for a whole file or folder, some rows at a time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from seqdg.base import UsageError, check_output, count_cores, count_things, list_some
from seqdg.data import (
    PICTURE_SUFFIXES,
    STDOUT,
    Column,
    Container,
    Features,
    File,
    Frame,
    Problem,
    ProgressCallback,
    TableFile,
    TableFormat,
    count_present,
    decode_file,
    drop_missing,
    is_table,
    open_container,
    open_table,
    open_writer,
    parse_column,
    read_number,
    replace_text,
    require_pillow,
    to_word,
    to_words,
)
from seqdg.estimator.model import Model, check_features, describe_source, require_backbone
from seqdg.estimator.model_inputs import ImageInput, TableInput, make_missing_error
from seqdg.estimator.shifts import FEWEST, Watch, check_label_shift, correct_label_shift
from seqdg.training import measure_rows

Columns = dict[str, NDArray[Any]]
PREDICTION = "prediction"  # the column of predictions
IMAGES = 64  # that are decoded at once
FEATURES = ".safetensors"  # a file of features


class Part(NamedTuple):
    """Some rows of a table."""

    rows: Tensor  # as the input reads them
    truth: NDArray[Any] | None  # their labels, if they are known
    weight: NDArray[np.float64]  # how much each counts in a score; nan if that is not known
    ids: Mapping[str, Any]  # columns to write beside the predictions, before them


@dataclass
class Tally:
    """Counts and notes of one file's predictions."""

    rows: int = 0
    labelled: int = 0  # rows that came with a label
    weighed: float = 0.0  # the sum of their weights, which by default are 1
    right: float = 0.0  # the sum of the weights of those that were predicted right
    seen: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # sum of weights, by class
    weight: str = ""  # the column of weights
    unweighed: int = 0  # rows without a weight
    numbers: list[tuple[NDArray[np.float64], ...]] = field(default_factory=list)  # truth, prediction, weight
    unknown: Counter[str] = field(default_factory=Counter)  # labels that are no class of the model, or no number
    present: Counter[str] = field(default_factory=Counter)  # cells that hold a value, by column
    notes: dict[str, str] = field(default_factory=dict)  # the first of each kind
    unlike: list[str] = field(default_factory=list)  # which columns are unlike those of every training domain

    def note(self, *sentences: str) -> None:
        for sentence in sentences:
            self.notes.setdefault(sentence.partition(":")[0], sentence)

    def count(self, model: Model, truth: Column, predicted: NDArray[Any], weight: NDArray[np.float64]) -> None:
        """Compare predictions with the labels that the model knows, and count the labels that it does not know."""
        words, weighs = truth.tolist(), np.isfinite(weight)
        if model.is_regression:
            numbers = [None if word is None else read_number(word) for word in words]
            self.unknown.update(word for word, n in zip(words, numbers, strict=True) if word is not None and n is None)
            y = np.array(numbers, dtype=np.float64)
            known = np.isfinite(y) & weighs
            self.numbers.append((y[known], predicted[known], weight[known]))
        else:
            names = {to_word(c) for c in model.classes.tolist()}
            labels = [None if word is None else _spell_like(word, model.classes) for word in words]
            self.unknown.update(word for word in labels if word is not None and word not in names)
            known = np.array([label in names for label in labels], dtype=bool) & weighs
            right = np.array(labels, dtype=object)[known] == predicted.astype(str)[known]
            self.right += float(weight[known][right].sum())
            for i in np.flatnonzero(known):
                self.seen[str(labels[i])] += float(weight[i])
        self.labelled += int(known.sum())
        self.weighed += float(weight[known].sum())
        self.unweighed += int((~weighs).sum())

    def describe_constant(self, model: Model) -> str:
        """Say what always predicting the majority class of the training rows, or their mean, would reach here."""
        constant = model.find_constant()
        if model.is_regression:
            y, _, weight = (np.concatenate(values) for values in zip(*self.numbers, strict=True))
            rmse = math.sqrt(np.average((y - constant) ** 2, weights=weight))
            return f"Always predicting {constant:.4g}, the mean in training: RMSE {rmse:.4g}"
        share = self.seen[to_word(constant)] / self.weighed
        return f"Always predicting '{to_word(constant)}', the majority class in training: {100 * share:.1f} %"

    def measure(self) -> dict[str, float]:
        """Return rmse, mae, r2 and pearson over the rows that came with a number."""
        y, guess, weight = (torch.from_numpy(np.concatenate(v)) for v in zip(*self.numbers, strict=True))
        return measure_rows(guess.unsqueeze(-1), y, weight if self.weight else None)

    def conclude(self, model: Model) -> None:
        """Note what only the whole file shows; raise a UsageError if it holds no value at all."""
        made_of_pictures = model.source is not None and not model.source.text
        reads_table = isinstance(model.input, TableInput) and not made_of_pictures
        rows, labels = self.unknown.total(), list_some(self.unknown)
        have = "1 row has" if rows == 1 else f"{rows} rows have"
        if rows and model.is_regression:
            self.note(f"{have} text in place of a target ({labels}): left out of the error.")
        elif rows and (self.labelled or reads_table):  # else folders do not name classes
            left = "they are left out of the accuracy" if self.labelled else "the accuracy is unknown"
            knows = f"The model knows: {list_some(model.classes.tolist())}."
            self.note(f"{have} a label that the model does not know ({labels}): {left}. {knows}")
        if self.unweighed:
            lost = count_things(self.unweighed, "row")
            self.note(f"'{self.weight}' holds no weight of at least 0 in {lost}: left out of the score.")
        if self.labelled and not self.weighed:
            self.note(f"'{self.weight}' is 0 in every row with a label: there is no score.")
        empty = [name for name, count in self.present.items() if not count]
        if reads_table and len(empty) == len(self.present):
            raise UsageError("No column that the model reads holds any value: there is nothing to predict from.")
        self.note(*(f"Column '{name}' is empty, in all {self.rows} rows: is it the right table?" for name in empty))


def _spell_like(word: str, classes: NDArray[Any]) -> str:
    """Spell a label as the classes are: `1` for `1.0` if they are numbers."""
    number = read_number(word) if classes.dtype.kind in "iuf" else None
    return word if number is None else to_word(number)


def predict_file(
    model: Model,
    data: Path,
    out: Path,
    on_progress: ProgressCallback = lambda done, total: None,
    *,
    force: bool = False,
    ids: Sequence[str] | None = None,
    na: Sequence[str] = (),
    encoding: str = "",
    label_shift: bool = False,
    strict: bool = False,
) -> Tally:
    """Write a row per row of the data: its label and the probability of every class, or the number predicted.

    force: replace a file that is at `out`.   ids: columns to write beside the predictions, as they are; None: those
    that the model remembers and the table has.   na: text and numbers that mean missing, besides those that the model
    remembers.   encoding: of a table of text; empty: told from the file.
    label_shift: correct probabilities for how frequent the classes are among these rows, which are one domain's.
    strict: raise a UsageError, and write nothing, where a column is unlike that of every training domain.
    """
    if label_shift:
        check_label_shift(model.facts.get("priors"), FEWEST)
    if not data.exists():
        raise UsageError(f"There is no {data} to predict.")
    taken = out.exists() and out != STDOUT
    if taken and out.samefile(data):
        raise UsageError(f"--out is the table to predict itself, {data}, and would replace it: give another name.")
    if out != STDOUT:
        check_output(out, force)
    tally = Tally()
    naming: AbstractContextManager[None]
    if data.suffix.lower() == FEATURES:
        parts, naming = _read_features(model, data), nullcontext()
    elif is_table(data):
        table = open_table(data, TableFormat(encoding=encoding))
        tally.note(*table.notes)
        parts, naming = _read_table(model, table, tally, on_progress, ids, na), table.naming_lines()
    elif ids or na or encoding:
        option = "id" if ids else "na" if na else "encoding"
        raise UsageError(f"--{option} is for tables, and {data} is not one: leave it out.")
    else:
        parts, naming = _read_images(model, data, tally, on_progress), nullcontext()
    with naming, open_writer(out) as write:
        for rows, truth, weight, names in _join_parts(parts) if model.together or label_shift else parts:
            if model.together:
                model.check_rows(len(rows))
            logits = model.predict_rows(rows)
            if label_shift:
                logits = _correct(model, logits, tally)
            columns = _make_columns(model, logits)
            if truth is not None:
                tally.count(model, truth, columns[PREDICTION if model.is_regression else "label"], weight)
            tally.rows += len(rows)
            write({**names, **columns})
        if not tally.rows:
            raise UsageError(f"{data} has 0 rows: there is nothing to predict.")
        tally.conclude(model)
        if tally.unlike and strict:
            raise UsageError(f"{' '.join(tally.unlike)} Nothing was written, as --strict refuses such a table.")
        tally.note(*tally.unlike)
    return tally


def _read_table(
    model: Model,
    table: TableFile,
    tally: Tally,
    on_progress: ProgressCallback,
    ids: Sequence[str] | None,
    na: Sequence[str],
) -> Iterator[Part]:
    if not isinstance(model.input, TableInput):
        raise UsageError(f"The model reads {model.input.describe()['kind']}s, and {table.path.name} is a table.")
    read, label = replace(model.input, na=(*model.input.na, *na)), model.facts.get("label")
    kept = _choose_ids(model, table, ids, tally)
    wanted = list(read.names if read.named else [n for n in table.names if n not in kept])
    source = model.source
    if source is not None:
        if not source.text:
            raise UsageError(
                f"The model reads {describe_source(source)}, and {table.path.name} is a table: give the folder of "
                "pictures, or the features that `seqdg features` makes of them."
            )
        wanted = [*(name for name in wanted if name not in source.names), *source.text]
    if any(name not in table.names for name in wanted):
        others = [name for name in table.names if name in wanted or name not in (label, *kept)]
        raise make_missing_error(wanted, others, table.path.name)
    if label in table.names:
        tally.weight = _choose_weight(model, table, tally)
    labels = [label] if label else []
    has_numbers = model.classes.dtype.kind in "iuf"  # an empty array, of floats, for regression
    numeric = [*read.numeric, *(labels if has_numbers and not model.is_regression else []), tally.weight]
    watch = Watch(model.facts.get("profile", {}))
    for frame in table.read_batches([*wanted, *labels, tally.weight], numeric, on_progress, kept):
        truth = to_words(frame.columns[frame.names.index(label)]) if label in frame.names else None
        features = frame.without(name for name in frame.names if name not in wanted)
        if source is not None:
            features = replace_text(features, source, model.device)
        rows, notes = read.read(features)
        tally.note(*notes)
        tally.present.update({n: count_present(c) for n, c in zip(features.names, features.columns, strict=True)})
        watch.add(read.list_columns(features))
        weight = _read_weights(frame, tally.weight)
        yield Part(rows, None if truth is None else drop_missing(truth, read.na), weight, frame.raw)
    tally.unlike += watch.list_unlike()


def _choose_weight(model: Model, table: TableFile, tally: Tally) -> str:
    """Find the column by which rows counted in training; empty if there was none, or if this table does not have it."""
    name: str = model.facts.get("weight") or ""
    if not name or name in table.names:
        return name
    tally.note(f"{table.path.name} has no column '{name}', by which rows counted in training: all count the same.")
    return ""


def _read_weights(frame: Frame, name: str) -> NDArray[np.float64]:
    """Read how much each row counts: 1 if there is no such column, nan if a cell does not say."""
    if not name:
        return np.ones(len(frame))
    column = parse_column(frame.columns[frame.names.index(name)])
    if column.dtype.kind != "f":
        return np.full(len(frame), np.nan)
    return np.where(np.isfinite(column) & (column >= 0), column, np.nan)


def _choose_ids(model: Model, table: TableFile, ids: Sequence[str] | None, tally: Tally) -> list[str]:
    """Choose the columns to write beside the predictions."""
    asked = list(model.facts.get("id", ())) if ids is None else ids
    lacking = [name for name in asked if name not in table.names]
    if ids is not None:
        table.require(ids)
    tally.note(*(f"{table.path.name} has no column '{name}', which named the rows in training." for name in lacking))
    kept = list(dict.fromkeys(name for name in asked if name not in lacking))
    taken = {PREDICTION} if model.is_regression else {"label", *(f"p_{c}" for c in model.classes.tolist())}
    for name in kept:
        if name in taken:
            raise UsageError(
                f"The predictions have a column '{name}' of their own: rename that of the table, or give other --id."
            )
    return kept


def _join_parts(parts: Iterable[Part]) -> Iterator[Part]:
    """Make one part of all: a transductive algorithm takes the whole table as rows of one domain."""
    whole = list(parts)
    if whole:
        known = [part.truth for part in whole if part.truth is not None]
        ids = {name: np.concatenate([np.asarray(part.ids[name]) for part in whole]) for name in whole[0].ids}
        weight = np.concatenate([part.weight for part in whole])
        yield Part(torch.cat([part.rows for part in whole]), np.concatenate(known) if known else None, weight, ids)


def _correct(model: Model, logits: NDArray[np.float64], tally: Tally) -> NDArray[np.float64]:
    """Correct the logits of all rows of a domain for how frequent its classes are, and note how frequent."""
    priors = model.facts["priors"]
    check_label_shift(priors, len(logits))
    p, shares = correct_label_shift(softmax(logits, axis=1), np.array(priors))
    each = zip(model.classes.tolist(), priors, shares, strict=True)
    changes = list_some([f"{c} {100 * before:.1f} to {100 * after:.1f} %" for c, before, after in each])
    tally.note(f"Shares of the classes, in training and estimated for this table: {changes}.")
    return np.log(np.clip(p, 1e-12, 1.0))


def _make_columns(model: Model, logits: NDArray[np.float64]) -> Columns:
    if model.is_regression:
        return {PREDICTION: logits[:, 0]}
    p = softmax(logits, axis=1)
    return {"label": model.choose_classes(logits), **{f"p_{c}": p[:, i] for i, c in enumerate(model.classes.tolist())}}


def _read_features(model: Model, data: Path) -> Iterator[Part]:
    features = Features.load(data)
    rows = model.input.read(check_features(model, features, data.name))[0]
    truth = None if features.y is None or model.is_regression else features.y.astype(object)
    names = {"file": np.array(features.paths, dtype=object)} if features.paths else {}
    yield Part(rows, truth, np.ones(len(rows)), names)


def _read_images(model: Model, data: Path, tally: Tally, on_progress: ProgressCallback) -> Iterator[Part]:
    backbone = None if model.source is None or model.source.text else require_backbone(model.source)
    if backbone is None and not isinstance(model.input, ImageInput):
        raise UsageError(f"The model reads {model.input.describe()['kind']}s, and {data.name} is no .csv or .parquet.")
    if data.is_file() and data.suffix.lower() != ".zip":
        raise UsageError(f"{data} is neither a table, nor a folder or .zip of pictures.")
    require_pillow()
    container = open_container(data)
    if container.problems:
        raise UsageError(container.problems[0].text)
    files = [f for f in container.files if f.name.lower().endswith(PICTURE_SUFFIXES)]
    top = _find_class_of_all(model, data, files, tally)
    pool = ThreadPoolExecutor(count_cores())
    for start in range(0, len(files), IMAGES):
        part = files[start : start + IMAGES]
        if backbone is not None:
            x = backbone.compute_pictures(container, part, torch.device(model.device), pool)
            images = model.input.read(Features(x, backbone.describe()).to_frame())[0]
        else:
            assert isinstance(model.input, ImageInput)
            images = model.input.read(np.stack([_decode(container, file, model.input) for file in part]))[0]
        folders = np.array([f.parts[-2] if len(f.parts) > 1 else top for f in part], dtype=object)  # they name classes
        names = {"file": np.array([f.name for f in part], dtype=object)}
        on_progress(start + len(part), len(files))
        yield Part(images, None if model.is_regression else folders, np.ones(len(part)), names)


def _find_class_of_all(model: Model, data: Path, files: Sequence[File], tally: Tally) -> str | None:
    """Return the name of the folder or .zip itself if pictures are right in it and it is called as a class."""
    name = data.stem if data.is_file() else data.resolve().name if data.name in ("", "..") else data.name  # "": of `.`
    classes = {to_word(c) for c in model.classes.tolist()}
    if model.is_regression or name not in classes or all(len(f.parts) > 1 for f in files):
        return None
    tally.note(f"The pictures right in {data}: their label is taken to be '{name}', as a class of the model is.")
    return name


def _decode(container: Container, file: File, read: ImageInput) -> NDArray[np.uint8]:
    pixels = decode_file(container, file, read.stored)
    if isinstance(pixels, Problem):
        raise UsageError(pixels.text)
    return pixels
