"""A data set from one table: a column for the domain, one for the label, and features in all others.

A feature is a number; a category, which becomes a column of 0 and 1 for each value of `categories`; or free text, which
becomes hashed n-grams, or what an encoder of the user's makes of it. The numbers come first, then the categories, then
the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, list_some, unknown
from seqdg.core import import_function
from seqdg.data.checks import Problem
from seqdg.data.contents import Contents, DomainRows, Matrix, RowsByDomain, collect_rows, split_by_domain
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.tables.columns import Column, parse_column, parse_truth, to_words
from seqdg.data.tables.table_files import TableFormat, is_table, open_table

EXACT = 2.0**53  # above it, whole numbers of a column can no longer be told apart

Columns = dict[str, NDArray[Any]]
Encoder = Callable[[list[str]], Any]  # texts to numbers, (row, feature)


def recognizes(path: Path) -> bool:
    return path.is_file() and is_table(path)


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    named = (spec.domain_column, spec.label_column, spec.validation_column, spec.group_column, spec.split_column)
    roles = list(dict.fromkeys(name for name in named if name))
    words = (*spec.categories, *spec.text)
    columns = read_columns(path, (*roles, *words), spec.ignore, get_table_format(spec), spec.text)
    notes = _drop_unlabelled(columns, spec)
    problems = _find_empty_cells(columns, (spec.domain_column, spec.label_column))
    labels = "" if spec.is_regression else spec.label_column
    exact = [name for name in (spec.domain_column, labels, spec.group_column) if name]
    problems += _find_inexact(columns, exact)
    if spec.cuts:
        columns[spec.label_column], classes = cut_labels(columns[spec.label_column], spec)
        spec = replace(spec, classes=classes)
    features = {name: values for name, values in columns.items() if name not in (*roles, *words)}
    x = stack_columns(features, len(columns[spec.label_column]), path.name, problems, may_be_empty=bool(words))
    whole = DomainRows(
        _add_words(x, columns, spec),
        columns[spec.label_column],
        columns[spec.validation_column] == 1 if spec.validation_column else None,
        columns[spec.group_column] if spec.group_column else None,
        columns[spec.split_column] if spec.split_column else None,
    )
    rows = split_by_domain(whole, columns[spec.domain_column], spec, str(path))
    return collect_rows(spec, RowsByDomain(rows.rows, problems + rows.problems, notes + rows.notes, x.shape[1]))


def _add_words(x: Matrix, columns: Columns, spec: DataSpec) -> Matrix:
    """Return the numbers, and beside them the categories and the text as numbers."""
    parts = [x, *(split_words(columns[name]) for name in spec.categories)]
    if spec.text:
        texts = [" ".join(cells) for cells in zip(*(columns[name] for name in spec.text), strict=True)]
        parts.append(encode_text(texts, spec.encode, spec.hash_size, (spec.ngrams[0], spec.ngrams[1])))
    return np.concatenate(parts, axis=1) if len(parts) > 1 else x


def get_table_format(spec: DataSpec) -> TableFormat:
    return TableFormat(spec.separator, spec.na, spec.columns)


def read_columns(
    path: Path,
    roles: Sequence[str] = (),
    ignore: Sequence[str] = (),
    form: TableFormat | None = None,
    text: Sequence[str] = (),
) -> Columns:
    """Read the columns of a table that may lack a header. A gap is NaN among numbers and '' among words; true is 1.

    roles: columns that must be there and are no features, so that they may hold dates.   ignore: columns to leave out.
    text: columns whose cells stay text, whatever they look like.
    """
    table = open_table(path, form, may_lack_header=True)
    for name in (*roles, *ignore):
        if name not in table.names:
            raise unknown("column", name, table.names, owner=path.name)
    frame = table.read(but=set(ignore) - set(roles))
    by_name = dict(zip(frame.names, frame.columns, strict=True))
    return {
        name: _to_text(values) if name in text else _to_plain(parse_truth(parse_column(values)), name in roles)
        for name, values in by_name.items()
    }


def _to_text(values: Column) -> NDArray[Any]:
    """Return words as objects: an array of numpy's own would give every text the room of the longest."""
    return np.array(["" if v is None else v for v in to_words(values)], dtype=object)


def _to_plain(values: Column, is_role: bool) -> NDArray[Any]:
    values = to_words(values) if is_role and values.dtype.kind == "M" else values
    return values if values.dtype != object else np.array(["" if v is None else v for v in values], dtype=str)


def stack_columns(
    columns: Mapping[str, NDArray[Any]], rows: int, place: str, problems: list[Problem], may_be_empty: bool = False
) -> Matrix:
    """Return the columns of numbers side by side; columns of words are added to the problems."""
    text = [name for name, values in columns.items() if values.dtype.kind not in "iufb"]
    if text:
        cure = "name them in `categories`, `text` or `ignore`, or make numbers of them"
        problems.append(Problem(f"{place} has columns that are not numbers: {list_some(text)}; {cure}."))
    numbers = [values.astype(np.float32) for name, values in columns.items() if name not in text]
    if not numbers and may_be_empty:
        return np.empty((rows, 0), np.float32)
    if not numbers:
        problems.append(Problem(f"{place} has no column of features."))
        return np.empty((rows, 0), np.float32)
    return np.stack(numbers, axis=1)


def split_words(values: NDArray[Any]) -> Matrix:
    """Return a column of 0 and 1 for each word, in the order of the alphabet; a gap is 0 in all of them."""
    words, number = np.unique(values.astype(str) if values.dtype.kind != "f" else values, return_inverse=True)
    named = [i for i, word in enumerate(words) if str(word) not in ("", "nan")]
    result: Matrix = (number[:, None] == np.array(named, dtype=np.int64)).astype(np.float32)
    return result


def cut_labels(values: NDArray[Any], spec: DataSpec) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Make classes of measurements: class k has those above cut k - 1, up to and including cut k. Return the class of
    each row and the names of all classes."""
    if values.dtype.kind != "f":
        raise UsageError(f"cuts makes classes of numbers, but the column '{spec.label_column}' holds words.")
    cuts = [f"{cut:g}" for cut in spec.cuts]
    between = [f"{low} to {high}" for low, high in pairwise(cuts)]
    names = spec.classes or (f"up to {cuts[0]}", *between, f"above {cuts[-1]}")
    return np.array(names)[np.digitize(values, spec.cuts, right=True)], tuple(names)


def _drop_unlabelled(columns: Columns, spec: DataSpec) -> list[str]:
    """Leave out rows without a label, where the benchmark leaves out those of other classes."""
    keep = ~find_gaps(columns[spec.label_column])
    if not spec.drop_other_labels or keep.all():
        return []
    for name, values in columns.items():
        columns[name] = values[keep]
    return [f"{count_things(int((~keep).sum()), 'row')} without a label left out."]


def find_gaps(values: NDArray[Any]) -> NDArray[np.bool_]:
    gaps: NDArray[np.bool_] = np.isnan(values) if values.dtype.kind == "f" else values == ""
    return gaps


def _find_empty_cells(columns: Columns, names: Sequence[str]) -> list[Problem]:
    problems = []
    for name in names:
        empty = find_gaps(columns[name])
        if empty.any():
            problems.append(
                Problem(f"The column '{name}' has {count_things(int(empty.sum()), 'empty cell')}: fill in every one.")
            )
    return problems


def _find_inexact(columns: Columns, names: Sequence[str]) -> list[Problem]:
    return [
        Problem(
            f"The column '{name}' has numbers of more than 15 digits, which cannot be told apart: make words of them."
        )
        for name in names
        if columns[name].dtype.kind == "f" and (np.abs(columns[name]) >= EXACT).any()
    ]


def encode_text(texts: Sequence[str], encode: str, size: int, ngrams: tuple[int, int]) -> Matrix:
    """Return numbers for every text. encode: `hash`, or where to import an encoder from."""
    if encode == "hash":
        return hash_ngrams(texts, size, ngrams)
    return _apply(import_function(encode, "encode"), encode, list(texts))


def hash_ngrams(texts: Sequence[str], size: int = 2048, ngrams: tuple[int, int] = (1, 2)) -> Matrix:
    """Mark which of `size` buckets of n-grams of words occur, in a row of length 1 (scikit-learn's hashing).

    Nothing is fitted to the texts, so that nothing of a held-out domain leaks.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    hasher = HashingVectorizer(n_features=size, ngram_range=ngrams, binary=True, norm="l2", alternate_sign=False)
    result: Matrix = hasher.transform(texts).astype(np.float32).toarray()
    return result


def _apply(encoder: Encoder, place: str, texts: list[str]) -> Matrix:
    try:
        returned = encoder(texts)
        x = np.asarray(returned.toarray() if hasattr(returned, "toarray") else returned, dtype=np.float32)
    except Exception as error:  # it is the user's code
        raise UsageError(f"The encoder '{place}' failed ({type(error).__name__}: {error}).") from error
    if x.ndim != 2 or len(x) != len(texts):
        raise UsageError(
            f"The encoder '{place}' returned shape {list(x.shape)} for {len(texts)} texts: a row of numbers for each "
            "is needed."
        )
    return x
