"""A user's data in a file or folder as rows, labels and domains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base.errors import UsageError, unknown
from seqdg.data.cells import Column, to_words
from seqdg.data.checks import check_domain_sizes, check_labels
from seqdg.data.load import load_dataset
from seqdg.data.readers import ProgressCallback, guess_format
from seqdg.data.spec import DataSpec
from seqdg.data.tables import is_table, open_table

MOST_NUMBERS = 20  # that a column of labels may hold; more are a measurement


class LabeledRows(NamedTuple):
    x: Any  # a table, or images (row, channel, height, width)
    y: NDArray[Any]
    domains: NDArray[Any] | None


def read_rows(
    path: Path,
    label: str | None,
    domain: str | None,
    ignore: Sequence[str] = (),
    progress: ProgressCallback | None = None,
) -> LabeledRows:
    """A table with columns for label and domain, or pictures in <domain>/<class>/."""
    if not path.exists():
        raise UsageError(
            f"There is no {path}. Give a table, such as a .csv or .parquet file, or a folder or .zip of images."
        )
    if is_table(path):
        return _read_table(path, label, domain, ignore)
    if guess_format(path) != "images":
        raise UsageError(f"{path} holds feature files: read them in Python and give DomainClassifier arrays.")
    spec = DataSpec(path.stem, path=(path.name,), format="images")
    dataset = load_dataset(spec, path.parent, progress=progress, held_out=())
    for option, value in (("--label", label), ("--domain", domain), ("--ignore", ignore)):
        if value:
            raise UsageError(f"{option} is of a table, and {path} holds pictures: their folders say it. Leave it out.")
    classes, domains = (np.array(names, dtype=object) for names in (dataset.classes, dataset.domains))
    return LabeledRows(dataset.x, classes[dataset.y.numpy()].astype(str), domains[dataset.domain.numpy()])


def _read_table(path: Path, label: str | None, domain: str | None, ignore: Sequence[str]) -> LabeledRows:
    if label is None:
        raise UsageError("Which column holds the labels? Give it with --label.")
    table = open_table(path)
    if domain is None:
        raise UsageError(
            "Which column says where a row is from, such as the hospital or the device? Give it with --domain."
        )
    for name in (label, domain, *ignore):
        if name not in table.names:
            raise unknown(f"column of {path.name}", name, table.names)
    if label == domain:
        raise UsageError(
            f"'{label}' is the column of labels and of domains: give --domain the one that says where from."
        )
    frame = table.read(but=set(ignore) - {label, domain})
    by_name = dict(zip(frame.names, frame.columns, strict=True))
    x = frame.without([label, domain])
    if not x.names:
        raise UsageError(f"{path.name} has no column beside those of label and domain: there is nothing to learn from.")
    check_classes(label, by_name[label])
    domains = to_words(by_name[domain])
    check_domain_sizes(f"Column '{domain}'", len(set(domains.tolist())), len(domains))
    return LabeledRows(x, make_labels(by_name[label]), domains)


def check_classes(name: str, column: Column) -> None:
    """Raise a UsageError if a column of labels is a measurement: numbers, of which there are many different ones."""
    if column.dtype == object:
        return
    different = len(np.unique(column[np.isfinite(column)]))
    if different > MOST_NUMBERS:
        raise UsageError(
            f"Column '{name}' has {different} different numbers in {len(column)} rows, but labels name classes: make "
            "words of them, such as low and high, or give another --label."
        )


def make_labels(column: Column) -> NDArray[Any]:
    """The labels of a column: whole numbers, or words."""
    check_labels(column.tolist())
    if column.dtype == object:
        return column.astype(str)
    whole = np.isfinite(column).all() and (column == np.floor(column)).all()
    return column.astype(np.int64) if whole else to_words(column).astype(str)
