"""A user's rows, labels, domains and weights as a data set, and how the model reads new rows."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d
from torch import Tensor

from seqdg.base import UsageError, count_things, list_some, measure_free_memory, unknown
from seqdg.data import (
    STANDARD,
    Dataset,
    Features,
    Frame,
    check_class_coverage,
    check_class_sizes,
    check_domain_sizes,
    check_domains,
    check_labels,
    count_present,
    is_dataframe,
    make_frame,
    note_columns,
    note_missing_labels,
    note_spellings,
    rank_word,
    to_word,
)
from seqdg.estimator.model_inputs import ArrayInput, ImageInput, Input, TableInput, learn_table_input
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.shifts import Profile, profile_columns
from seqdg.results import CRITERIA
from seqdg.training import make_stream

LARGEST_SIZE = 224  # of images, where the user names none
LEAST_ROWS = 2  # of every class of every domain that are drawn, where there are as many


@dataclass(frozen=True)
class UserData:
    dataset: Dataset
    input: Input
    classes: NDArray[Any]  # as the user calls them; none for regression
    columns: Mapping[str, str] = field(default_factory=dict)  # what was decided about each column of a table
    frame: Frame | None = None  # the table itself
    profile: Profile = field(default_factory=dict)  # what each domain has of its columns

    def scale(self, scaling: str) -> UserData:
        """Return the same with the numbers of a table scaled, once for all trials, and no value missing."""
        if self.frame is None:
            return self
        rows, read = _read_table(self.frame, scaling, keep_missing=False)
        return replace(self, dataset=replace(self.dataset, x=rows), input=read)

    def take(self, rows: NDArray[np.int64], recipe: Recipe) -> UserData:
        """Return the same of these rows alone. Which of them are validated on is drawn anew."""
        data = self.dataset
        weight = None if data.weight is None else data.weight[rows]
        y, domain = data.y[rows], data.domain[rows]
        validation = draw_validation(
            np.zeros(len(rows), np.int64) if recipe.is_regression else y.numpy(),
            domain.numpy(),
            recipe.validation,
            recipe.seed,
            None if weight is None else (weight > 0).numpy(),
        )
        part = replace(data, x=data.x[rows], y=y, domain=domain, weight=weight, validation=validation)
        return replace(self, dataset=part, frame=None if self.frame is None else self.frame.take(rows))


def read_input(x: Any, wanted: Collection[str] | None = None) -> Any:
    """Read a table or features as a Frame (of named columns only those wanted); return other arrays as they are."""
    if isinstance(x, Frame):
        return x
    if isinstance(x, Features):
        return x.to_frame()
    if is_dataframe(x):
        if not all(x.shape):
            raise UsageError(f"The table has {x.shape[0]} rows and {x.shape[1]} columns: there is nothing to read.")
        return make_frame(x, wanted)
    x = make_dense(x) if issparse(x) else _to_numpy(x)
    if not hasattr(x, "shape"):
        x = np.asarray(x)
    if len(x.shape) > 2:
        return x
    with _refuse_in_a_sentence():
        x = check_array(x, dtype=None, ensure_all_finite=False)
    return make_frame(x)


@contextmanager
def _refuse_in_a_sentence(start: str = "") -> Iterator[None]:
    """Raise what numpy and scikit-learn raise of a user's values as a UsageError."""
    try:
        yield
    except UsageError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(f"{start}{error}") from None


def _to_numpy(x: Any) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def read_labels(y: Any) -> NDArray[Any]:
    """Return labels (row,), or raise a UsageError where a row has none or most rows have one of their own."""
    if y is None:
        raise UsageError("requires y to be passed, but the target y is None: give a label for every row.")
    if isinstance(y, str):
        raise UsageError(f"y is the word '{y}': give one label per row, such as table['{y}'].")
    with _refuse_in_a_sentence():
        labels = np.asarray(column_or_1d(_to_numpy(y), warn=True))
        if labels.dtype.kind not in "iub":
            check_labels(labels.tolist())
        if labels.dtype.kind in "mM" or (labels.dtype == object and any(isinstance(v, date) for v in labels)):
            raise UsageError("The labels are dates: give them as text, such as y.astype(str).")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise UsageError("Input y contains infinity: labels are text or whole numbers.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of many classes, which the next line refuses
            check_classification_targets(labels)
        check_class_sizes("y", labels, "Give other labels, or use DomainRegressor for numeric targets.")
    return labels


def read_numbers(y: Any) -> NDArray[np.float64]:
    """Return numbers (row,), or raise a UsageError where a row has none."""
    if y is None:
        raise UsageError("requires y to be passed, but the target y is None: give a number for every row.")
    with _refuse_in_a_sentence("y must hold a number for every row: "):
        numbers = np.asarray(column_or_1d(_to_numpy(y), warn=True)).astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise UsageError(
            f"Input y contains NaN or infinity in {count_things(len(wrong), 'row')} (from 0: {list_some(wrong)}): give "
            "a number for every row, or leave these rows out."
        )
    return numbers


def _warn_of_order(x: Any, **others: Any) -> None:
    """Warn where the index of X, in pandas, has the entries of another's index in another order."""
    index: Any = getattr(x, "index", None)
    for name, values in others.items():
        other: Any = getattr(values, "index", None)
        if not hasattr(index, "equals") or not hasattr(other, "equals") or index.equals(other):
            continue
        if len(index) == len(other) and index.isin(other).all() and other.isin(index).all():
            warnings.warn(
                f"The index of {name} has the entries of X's in another order. Rows belong together by position, not "
                f"by the index: if the index is right, give {name}.loc[X.index].",
                UserWarning,
                stacklevel=4,
            )


def make_user_data(
    x: Any, y: Any, domains: Any, recipe: Recipe, keep_missing: bool = False, sample_weight: Any = None
) -> UserData:
    """Make the data set of a user's rows, and learn how to read others like them.

    y: (row,) labels, or numbers where the recipe is of these, in any form that `fit` takes.
    domains: (row,) names or numbers, or None for a single domain.
    keep_missing: leave NaN where a table has no number, so that each trial can fill it from its own sources.
    sample_weight: (row,) how much each row counts; None: all the same.
    """
    _warn_of_order(x, y=y, domains=domains, sample_weight=sample_weight)
    x, domains = take_domains(x, domains)
    x = read_input(x)
    y = read_numbers(y) if recipe.is_regression else read_labels(y)
    if len(x) != len(y):
        raise UsageError(f"X has {len(x)} rows and y {len(y)}: inconsistent numbers of samples.")
    classes, codes = (np.empty(0), np.zeros(len(y), dtype=np.int64)) if recipe.is_regression else _encode(y, recipe)
    names, domain = read_domains(domains, len(y))
    weight = read_weights(sample_weight, names, domain)
    validation = draw_validation(codes, domain, recipe.validation, recipe.seed, None if weight is None else weight > 0)
    if isinstance(x, Frame) and x.types is None:
        x = x.decide_types()
    rows, read = _read_rows(x, recipe, keep_missing)
    labels = {name: codes[domain == i] for i, name in enumerate(names)}
    _, notes = check_class_coverage(labels, [str(c) for c in classes], held_out=())
    notes = [*note_spellings("class", map(str, classes)), *note_spellings("domain", names), *notes]
    if isinstance(read, TableInput):
        notes = [*note_missing_labels(y), *notes, *note_columns(x, domain)]
    if weight is not None:
        notes = [*notes, "Rows count by their weights, in training and in every score."]
    dataset = Dataset(
        name="the data",
        domains=names,
        classes=tuple(str(c) for c in classes),
        x=rows,
        y=torch.from_numpy(y.astype(np.float64) if recipe.is_regression else codes.astype(np.int64)),
        domain=torch.from_numpy(domain),
        fingerprint="",
        validation=validation,
        notes=tuple(notes),
        weight=None if weight is None else torch.from_numpy(weight),
    )
    frame = x if isinstance(x, Frame) else None
    types = {} if frame is None else {t.name: t.describe() for t in frame.types or ()}
    made = () if frame is None or frame.source is None else frame.source.names
    profile = {} if frame is None else profile_columns(frame.without(made), domain, names)
    return UserData(dataset, read, classes, types, frame, profile)


def _encode(y: NDArray[Any], recipe: Recipe) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the classes, and each row's index among them."""
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise UsageError(f"There is only one class, {classes[0]}, and a classifier needs at least two.")
    unit = CRITERIA[recipe.criterion]
    if not unit.is_defined(len(classes)):
        here = "here are none" if unit.by_group else f"there are {len(classes)}"
        raise UsageError(f"{recipe.criterion} is defined for {unit.scope}, and {here}: choose another criterion.")
    return classes, codes


def _read_rows(x: Any, recipe: Recipe, keep_missing: bool) -> tuple[Any, Input]:
    if isinstance(x, Frame):
        return _read_table(x, recipe.protocol.scaling, keep_missing)
    shape = tuple(x.shape)
    if len(shape) == 4:
        return _read_images(x, shape, recipe)
    read = ArrayInput(shape[1:])
    return read.read(x)[0], read


def _read_table(frame: Frame, scaling: str, keep_missing: bool) -> tuple[Tensor, TableInput]:
    if not any(count_present(column) for column in frame.columns):
        raise UsageError("No column of the table holds any value: there is nothing to learn from.")
    read = learn_table_input(frame, STANDARD if keep_missing else scaling)
    return (read.read_with_missing if keep_missing else read.read)(frame)[0].to(torch.float32), read


def _read_images(x: Any, shape: tuple[int, ...], recipe: Recipe) -> tuple[Any, ImageInput]:
    """Read images, but leave bytes in a memory map where they are."""
    size = recipe.image_size or min(max(shape[2:]), LARGEST_SIZE)
    normalization = recipe.build_net((shape[1], size, size), 2, seed=0).normalization
    read = ImageInput(shape[1], size, normalization, stored=max(shape[2:]))
    is_map = isinstance(x, np.ndarray) and x.dtype == np.uint8
    return (x if is_map else read.read(x)[0]), read


def take_domains(x: Any, domains: Any) -> tuple[Any, Any]:
    """Return the inputs without the domains, and the domain of every row, where a column of a frame was named."""
    if not isinstance(domains, str) or not is_dataframe(x) or isinstance(x, Frame):
        return x, domains
    if domains not in x.columns:
        raise unknown("column", domains, map(str, x.columns), "X")
    return x[[name for name in x.columns if name != domains]], x[domains]


def join_domains(domains: Any, groups: Any) -> Any:
    """Return the domains of rows by whichever of the two names they were given."""
    if domains is not None and groups is not None and domains is not groups and list(domains) != list(groups):
        raise UsageError("groups is another name of domains, and the two differ: give one of them.")
    return groups if domains is None else domains


def read_domains(domains: Any, rows: int) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names in order, and the index of each row's domain among them."""
    if domains is None:
        return ("all",), np.zeros(rows, dtype=np.int64)
    if isinstance(domains, str):
        raise UsageError(f"domains is the word '{domains}': give one entry per row, such as table['{domains}'].")
    values = domains.tolist() if hasattr(domains, "tolist") else list(domains)
    if np.ndim(np.asarray(values, dtype=object)) != 1:
        raise UsageError("domains must have one entry per row of X.")
    if len(values) != rows:
        raise UsageError(f"There are {rows} labels but {len(values)} domains: give one entry per row.")
    check_domains(values)
    words = [to_word(value) for value in values]
    names = tuple(dict.fromkeys(sorted(words, key=rank_word)))
    check_domain_sizes("The column of domains", len(names), rows)
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([index[word] for word in words], dtype=np.int64)


def draw_validation(
    y: NDArray[np.int64], domain: NDArray[np.int64], share: float, seed: int, weighs: NDArray[np.bool_] | None = None
) -> Tensor:  # (row,) of bool
    """Draw about a share of every class of every domain, never all its rows; at least one of a domain that has two.

    weighs: (row,) whether a row has any weight; only those are drawn. None: all have.
    """
    chosen = np.zeros(len(y), dtype=bool)
    for d in np.unique(domain) if share else ():
        members = np.flatnonzero((domain == d) & (True if weighs is None else weighs))
        shuffled = members[make_stream(seed, "validation", int(d)).permutation(len(members))]
        by_class = [shuffled[y[shuffled] == c] for c in np.unique(y[shuffled])]
        taken = [rows[: min(round(share * len(rows)), len(rows) - 1)] for rows in by_class]
        if not any(len(rows) for rows in taken) and len(shuffled) > 1:
            taken = [max(by_class, key=len)[:1]]
        chosen[np.concatenate(taken)] = True
    return torch.from_numpy(chosen)


def draw_rows(user_data: UserData, most: int, seed: int) -> NDArray[np.int64] | None:
    """Draw about `most` rows, of every class of every domain in proportion, in order; None where there are no more."""
    data = user_data.dataset
    y, domain = data.y.numpy(), data.domain.numpy()
    if len(y) <= most:
        return None
    strata = domain if data.is_regression else domain * len(data.classes) + y
    order = make_stream(seed, "rows to compare on").permutation(len(y))
    order = order[np.argsort(strata[order], kind="stable")]
    first = np.flatnonzero(np.r_[True, np.diff(strata[order]) != 0])
    counts = np.diff(np.r_[first, len(y)])
    wanted = np.minimum(counts, np.maximum(LEAST_ROWS, np.round(counts * most / len(y)).astype(np.int64)))
    return np.sort(np.concatenate([order[f : f + w] for f, w in zip(first, wanted, strict=True)]))


Weights = NDArray[np.float64]


def read_weights(sample_weight: Any, names: Sequence[str], domain: NDArray[np.int64]) -> Weights | None:
    """Return the weights of rows (row,), or None where all weigh the same.

    domain: (row,) the index of each row's domain among the names.
    """
    if sample_weight is None:
        return None
    with _refuse_in_a_sentence("sample_weight must hold a number for every row: "):
        weight = np.array(sample_weight, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(len(domain), float(weight))
    if weight.shape != domain.shape:
        raise UsageError(
            f"sample_weight has shape {list(weight.shape)}, but there are {len(domain)} rows: give one number for each "
            "(Sample weights must be 1D array or scalar)."
        )
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise UsageError(
            f"sample_weight is below 0 or no number in {count_things(len(wrong), 'row')} (from 0: {list_some(wrong)}): "
            "give numbers of at least 0."
        )
    without = [name for i, name in enumerate(names) if not weight[domain == i].sum() > 0]
    if without:
        raise UsageError(
            f"Every row of {list_some(without)} has weight zero: leave its rows out, or give some of them a weight."
        )
    return None if len(np.unique(weight)) == 1 else weight


def count_effective(weight: Weights) -> int:
    """Count the rows of equal weight that would say as much of a mean,  (sum w)^2 / sum w^2  (Kish, 1965)."""
    scaled = weight / weight.max()  # so that squares stay numbers
    return max(1, round(float(scaled.sum() ** 2 / (scaled**2).sum())))


ROOM = 3  # times the size of a dense table in double precision: itself, and what is made of it
TOGETHER = 2**23  # numbers that are made dense at once for predictions


def make_dense(x: Any) -> NDArray[Any]:
    """Make a sparse matrix dense, all at once, after a look at how much memory is free."""
    with _refuse_in_a_sentence():
        x = check_array(x, accept_sparse=True, dtype=None, ensure_all_finite=False)
    needed, free = ROOM * 8 * x.shape[0] * x.shape[1], measure_free_memory()
    if free is not None and needed > free:
        raise UsageError(
            f"X is sparse, and as a dense table of {x.shape[0]} rows and {x.shape[1]} columns it needs about "
            f"{needed / 2**30:.1f} GiB, of which {free / 2**30:.1f} are free: bring it to fewer columns first, as with "
            "sklearn.decomposition.TruncatedSVD."
        )
    return np.asarray(x.toarray())


def split_sparse(x: Any) -> Iterator[Any]:
    """Yield the rows of a sparse matrix, some at a time."""
    rows = x.tocsr()
    count = max(1, TOGETHER // max(1, x.shape[1]))
    for start in range(0, x.shape[0], count):
        yield rows[start : start + count]
