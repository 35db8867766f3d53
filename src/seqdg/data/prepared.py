"""A data set as one .npz that needs nothing but numpy to be read: for a machine without the packages that read tables.

`DIR/prepared/NAME.npz` is read in place of the benchmark's own files. It has the fingerprint of these, so that trials
keep their keys, and a hash of its own arrays, which reveals damage.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqdg.base import UsageError, replace_file
from seqdg.data.dataset import Dataset

FOLDER = "prepared"
ARRAYS = ("x", "y", "domain", "validation", "group", "weight")
FACTS = ("name", "domains", "classes", "fingerprint", "numbers", "notes", "groups", "parts")


def find_prepared(root: Path | None, name: str) -> Path | None:
    """Find the prepared file of a benchmark below the folder of the data."""
    path = None if root is None else root / FOLDER / f"{name}.npz"
    return path if path is not None and path.is_file() else None


def write_prepared(dataset: Dataset, root: Path, name: str) -> Path:
    """Write a data set below a folder; one of images is refused."""
    if dataset.is_image:
        raise UsageError(f"{name} has images, which are read from their own files anywhere.")
    arrays = {k: np.asarray(getattr(dataset, k)) for k in ARRAYS if getattr(dataset, k) is not None}
    facts = {k: getattr(dataset, k) for k in FACTS}
    path = root / FOLDER / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        stored: dict[str, Any] = {**arrays, "facts": np.array(json.dumps({**facts, "hash": _hash(arrays)}))}
        np.savez_compressed(file, **stored)
    return path


def read_prepared(path: Path, known: str = "") -> Dataset:
    """Read a prepared data set. known: the fingerprint that it must have, where there is one."""
    damaged = UsageError(f"{path} is damaged, or of other data. Prepare it again, or remove it.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            facts: dict[str, Any] = json.loads(str(stored["facts"]))
            arrays = {k: stored[k] for k in ARRAYS if k in stored}
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error):
        raise damaged from None
    if facts.pop("hash") != _hash(arrays) or (known and facts["fingerprint"] != known):
        raise damaged
    tuples = {k: tuple(v) for k, v in facts.items() if isinstance(v, list)}
    return Dataset(**{**facts, **tuples, **{k: torch.from_numpy(v) for k, v in arrays.items()}})


def _hash(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
