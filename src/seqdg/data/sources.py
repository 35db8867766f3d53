"""From a `DataSpec` and a root folder to a `Dataset`, or to all that is wrong with what lies there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqdg.base.errors import UsageError
from seqdg.data import cache, domain_table, features, image_folder, splits
from seqdg.data.cache import Progress
from seqdg.data.checks import Problem
from seqdg.data.container import open_container
from seqdg.data.domain import Dataset
from seqdg.data.found import Found, Report, judge
from seqdg.data.rows import collect
from seqdg.data.spec import DataSpec
from seqdg.data.tables import is_table


def load(
    spec: DataSpec,
    root: Path,
    allow_partial: bool = False,
    progress: Progress | None = None,
    held_out: Sequence[str] | None = None,
) -> Dataset:
    """The data set, if nothing is wrong with it; otherwise one error that lists everything.

    Images come as a read-only memory map of uint8, features as a float32 tensor. allow_partial: counts other than
    the published ones become notes. held_out: the domains that will be held out in turn; None: every one.
    """
    found = _read(spec, root, progress)
    return _dataset(spec.name, found, judge(spec, found, allow_partial, held_out))


def check(
    spec: DataSpec,
    root: Path,
    allow_partial: bool = False,
    progress: Progress | None = None,
    held_out: Sequence[str] | None = None,
) -> Report:
    """What `load` would find. Every picture is decoded for it, so a load after it is quick."""
    return judge(spec, _read(spec, root, progress), allow_partial, held_out)


def from_arrays(
    x: Any, y: Any, domain: Any, spec: DataSpec | None = None, held_out: Sequence[str] | None = None
) -> Dataset:
    """Of arrays: features (row, feature), and for each row its label and its domain, as numbers or names."""
    spec = spec or DataSpec("arrays")
    matrix, labels, domains = np.asarray(x, np.float32), np.asarray(y), np.asarray(domain)
    if matrix.ndim != 2 or labels.shape != matrix.shape[:1] or domains.shape != matrix.shape[:1]:
        shapes = f"{list(matrix.shape)}, {list(labels.shape)} and {list(domains.shape)}"
        raise UsageError(f"x, y and domain have shapes {shapes}: they must be [rows, features], [rows] and [rows].")
    found = collect(spec, domain_table.split_by_domain(matrix, labels, domains, spec, "The domain array"))
    return _dataset(spec.name, found, judge(spec, found, False, held_out))


def guess_format(path: Path) -> str:
    """By the ending of a file; a folder with feature files at its top, or one folder below, is one of features."""
    if path.is_file():
        return "table" if is_table(path) else "features" if path.suffix.lower() == ".npz" else "images"
    below = (item for pattern in ("*", "*/*") for item in path.glob(pattern))
    return "features" if any(item.suffix.lower() in features.SUFFIXES for item in below) else "images"


def _dataset(name: str, found: Found, report: Report) -> Dataset:
    if not report.ok:
        raise UsageError(report.complaint())
    return Dataset(
        name=name,
        domains=found.domains,
        classes=found.classes,
        x=torch.from_numpy(found.x) if found.x.dtype == np.float32 else found.x,
        y=torch.from_numpy(found.y),
        domain=torch.from_numpy(found.domain),
        fingerprint=found.fingerprint(),
        validation=None if found.validation is None else torch.from_numpy(found.validation),
        notes=report.notes,
    )


def _read(spec: DataSpec, root: Path, progress: Progress | None) -> Found:
    """A mistake that leaves nothing to read on is the only problem then."""
    try:
        path = _locate(spec, root)
        form = spec.format or guess_format(path)
        if form == "images":
            return _pictures(spec, root, path, progress)
        return collect(spec, (features if form == "features" else domain_table).read(path, spec))
    except UsageError as error:
        none = np.empty(0, np.int64)
        return Found((), spec.classes, none, none, problems=[Problem(str(error))])


def _locate(spec: DataSpec, root: Path) -> Path:
    for name in spec.path:
        if (root / name).exists():
            return root / name
    if not root.is_dir():
        raise UsageError(f"There is no folder {root}. Give the one that holds {' or '.join(spec.path)}.")
    names = " nor ".join(f"'{name}'" for name in spec.path)
    raise UsageError(f"There is {'neither' if len(spec.path) > 1 else 'no'} {names} in {root.absolute()}.")


def _pictures(spec: DataSpec, root: Path, path: Path, progress: Progress | None) -> Found:
    if path.is_file() and path.suffix.lower() != ".zip":
        raise UsageError(f"{path} is neither a folder nor a .zip of pictures.")
    container = open_container(path)
    read = image_folder.read(container, spec.domains, spec.classes, spec.drop_other_labels)
    found = Found(read.domains, read.classes, read.labels(), read.domain_index(), notes=read.notes)
    found.problems += read.problems
    if spec.splits:
        found.validation, wrong = splits.validation(read, root / spec.splits)
        found.problems += wrong
    if read.pictures:
        content = cache.fingerprint(container, read.pictures, cache.cache_folder())
        found.x, broken = cache.open_pictures(container, read.pictures, content, spec.size, progress)
        found.content = "" if found.x is None else f"{content} {found.x.shape}"
        found.problems += broken
    return found
