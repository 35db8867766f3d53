"""From a description of a data set to a `Dataset`, or to one error that lists everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqdg.base import UsageError
from seqdg.data import colored_mnist, rotated_mnist
from seqdg.data.checks import Problem
from seqdg.data.contents import Contents, DomainRows, collect_rows
from seqdg.data.data_check import DataCheck, check_contents
from seqdg.data.dataset import Dataset
from seqdg.data.domain_table import split_by_domain
from seqdg.data.prepared import find_prepared, read_prepared
from seqdg.data.readers import ProgressCallback, find_reader, guess_format
from seqdg.data.spec import DataSpec

BUNDLED = {"rotated-mnist": rotated_mnist.load, "colored-mnist": colored_mnist.load}


def load_data(
    table: Mapping[str, Any],
    root: Path | None,
    allow_partial: bool = False,
    name: str = "data",
    progress: ProgressCallback | None = None,
    held_out: Sequence[str] | None = None,
) -> Dataset:
    """Load the data set of a benchmark's [data] table. Bundled data need no root; all others lie below one, where a
    prepared file comes before the data's own."""
    if table.get("format") in BUNDLED:
        return BUNDLED[table["format"]]()
    spec = DataSpec.from_table(name, table)
    if (prepared := find_prepared(root, name)) is not None:
        return read_prepared(prepared, "" if allow_partial else spec.fingerprint)
    if root is None:
        raise UsageError(f"{name} does not come with seqdg: give the folder that holds {spec.path[0]} with --data DIR.")
    return load_dataset(spec, root, allow_partial, progress, held_out)


def load_dataset(
    spec: DataSpec,
    root: Path,
    allow_partial: bool = False,
    progress: ProgressCallback | None = None,
    held_out: Sequence[str] | None = None,
) -> Dataset:
    """Load a data set if nothing is wrong with it; otherwise raise one error that lists everything.

    Images come as a read-only memory map of uint8, features as a float32 tensor. allow_partial: counts other than
    the published ones become notes. held_out: the domains that will be held out in turn; None: every one.
    """
    contents = _read(spec, root, progress)
    return _make(spec.name, contents, check_contents(spec, contents, allow_partial, held_out))


def check_dataset(
    spec: DataSpec,
    root: Path,
    allow_partial: bool = False,
    progress: ProgressCallback | None = None,
    held_out: Sequence[str] | None = None,
) -> DataCheck:
    """Check what `load_dataset` would load. This decodes every picture, so that a load after it is quick."""
    return check_contents(spec, _read(spec, root, progress), allow_partial, held_out)


def make_dataset(
    x: Any, y: Any, domain: Any, spec: DataSpec | None = None, held_out: Sequence[str] | None = None
) -> Dataset:
    """Make a data set from arrays: features (row, feature), and each row's label and domain, as numbers or names."""
    spec = spec or DataSpec("arrays")
    matrix, labels, domains = np.asarray(x, np.float32), np.asarray(y), np.asarray(domain)
    if matrix.ndim != 2 or labels.shape != matrix.shape[:1] or domains.shape != matrix.shape[:1]:
        shapes = f"{list(matrix.shape)}, {list(labels.shape)} and {list(domains.shape)}"
        raise UsageError(f"x, y and domain have shapes {shapes}: they must be [rows, features], [rows] and [rows].")
    contents = collect_rows(spec, split_by_domain(DomainRows(matrix, labels), domains, spec, "The domain array"))
    return _make(spec.name, contents, check_contents(spec, contents, False, held_out))


def _make(name: str, contents: Contents, check: DataCheck) -> Dataset:
    if not check.ok:
        raise UsageError(check.format_problems())
    return Dataset(
        name=name,
        domains=contents.domains,
        classes=contents.classes,
        x=torch.from_numpy(contents.x) if contents.x.dtype == np.float32 else contents.x,
        y=torch.from_numpy(contents.y),
        domain=torch.from_numpy(contents.domain),
        fingerprint=contents.hash(),
        validation=None if contents.validation is None else torch.from_numpy(contents.validation),
        numbers=contents.numbers,
        notes=check.notes,
        group=None if contents.group is None else torch.from_numpy(contents.group),
        groups=contents.groups,
        parts=contents.parts,
    )


def _read(spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    """Read a data set; a mistake that leaves nothing to read is the only problem."""
    try:
        path = _locate(spec, root)
        return find_reader(spec.format or guess_format(path)).read(path, spec, root, progress)
    except UsageError as error:
        none = np.empty(0, np.int64)
        return Contents((), spec.classes, none, none, problems=[Problem(str(error))])


def _locate(spec: DataSpec, root: Path) -> Path:
    for name in spec.path:
        if (root / name).exists():
            return root / name
    if not root.is_dir():
        raise UsageError(f"There is no folder {root}. Give the one that holds {' or '.join(spec.path)}.")
    names = " nor ".join(f"'{name}'" for name in spec.path)
    raise UsageError(f"There is {'neither' if len(spec.path) > 1 else 'no'} {names} in {root.absolute()}.")
