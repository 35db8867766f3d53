"""From a description of a data set to a `Dataset`, or to one error that lists everything that is wrong.

`DIR/prepared/NAME.npz` is read in place of a benchmark's own files: a file that numpy alone reads. It has the
fingerprint of these, so that trials keep their keys, and a hash of its own arrays, which reveals damage.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqdg.base import UsageError, count_things, replace_file
from seqdg.data.dataset import READERS, Dataset, DataSpec, ProgressCallback
from seqdg.data.domain_rows import (
    TRAIN,
    Contents,
    DomainRows,
    Problem,
    check_class_coverage,
    collect_rows,
    split_by_domain,
)

PREPARED = "prepared"
ARRAYS = ("x", "y", "domain", "validation", "group", "weight")
FACTS = ("name", "domains", "classes", "fingerprint", "numbers", "notes", "groups", "parts")


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
    from seqdg.data.rotated_mnist import BUNDLED

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
    return _make_checked(spec.name, contents, check_contents(spec, contents, allow_partial, held_out))


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
    contents = collect_rows(spec, *split_by_domain(DomainRows(matrix, labels), domains, spec, "The domain array"))
    return _make_checked(spec.name, contents, check_contents(spec, contents, False, held_out))


def _make_checked(name: str, contents: Contents, check: DataCheck) -> Dataset:
    if not check.ok:
        raise UsageError(check.format_problems())
    arrays = {key: getattr(contents, key) for key in ("x", "y", "domain", "validation", "group")}
    tensors = {key: torch.from_numpy(v) for key, v in arrays.items() if v is not None and v.dtype != np.uint8}
    facts = {key: getattr(contents, key) for key in ("domains", "classes", "numbers", "groups", "parts")}
    return Dataset(name=name, fingerprint=contents.hash(), notes=check.notes, **{"x": contents.x, **tensors, **facts})


def _read(spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    """Read a data set; a mistake that leaves nothing to read is the only problem."""
    try:
        path = _locate(spec, root)
        reader = import_module(READERS[spec.format or guess_format(path)])
        contents: Contents = reader.read(path, spec, root, progress)
        return contents
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


def guess_format(path: Path) -> str:
    """Guess the format of a file or folder."""
    return next(name for name in reversed(READERS) if import_module(READERS[name]).recognizes(path))


@dataclass(frozen=True)
class DataCheck:
    """The outcome of a check: what there is, and what is wrong with it."""

    name: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one input
    counts: Mapping[str, int]
    published: Mapping[str, int]
    validation: Mapping[str, int]  # rows of the official validation set
    fingerprint: str  # of what there is; empty where it could not be read
    known: str  # the fingerprint of the known copy, where there is one
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    is_regression: bool = False  # numbers are predicted, and no classes

    @property
    def ok(self) -> bool:
        return not self.problems

    def format_problems(self) -> str:
        """Return the one problem; list several below a line that counts them."""
        if len(self.problems) == 1:
            return self.problems[0]
        return "\n".join((f"{self.name}: {len(self.problems)} things are wrong with the data.", *self._list_problems()))

    def format(self) -> str:
        inputs = " x ".join(map(str, self.shape)) or "unknown"
        what = "a number to predict" if self.is_regression else f"{len(self.classes)} classes"
        lines = [f"{self.name}: {len(self.domains)} domains, {what}, inputs {inputs}"]
        if self.classes:
            lines.append(f"classes: {', '.join(self.classes)}")
        rows = [["domain", "rows", "published", "train", "validation"]]
        for domain in self.domains:
            count, valid = self.counts.get(domain, 0), self.validation.get(domain)
            split = ["-", "-"] if valid is None else [str(count - valid), str(valid)]
            rows.append([domain, str(count), str(self.published.get(domain, "-")), *split])
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for row in rows:
            numbers = "  ".join(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
            lines.append(f"  {row[0].ljust(widths[0])}  {numbers}")
        lines += [f"note: {note}" for note in self.notes]
        wrong = len(self.problems)
        lines.append(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong:" if wrong else "Nothing is wrong.")
        if not wrong:
            lines += self._compare_copies()
        return "\n".join((*lines, *self._list_problems()))

    def _compare_copies(self) -> list[str]:
        """Say whether this is the known copy, or else whether the counts are as published."""
        if self.known:
            same = "the known copy" if self.fingerprint == self.known else "not the known copy"
            return [f"This is {same} (fingerprint {self.fingerprint[:16]})."]
        if not self.published:
            return []
        agree = all(self.counts.get(domain) == count for domain, count in self.published.items())
        return [f"Counts are {'as published' if agree else 'not as published'}. There is no known copy to compare."]

    def _list_problems(self) -> tuple[str, ...]:
        return tuple(f"- {problem}" for problem in self.problems)


def check_contents(
    spec: DataSpec, contents: Contents, allow_partial: bool, held_out: Sequence[str] | None
) -> DataCheck:
    """List everything that is wrong. held_out: the domains that will be held out in turn, None for every one."""
    labels = contents.split(contents.y)
    counts = {domain: len(y) for domain, y in labels.items()}
    problems, notes = list(contents.problems), list(contents.notes)
    validation: dict[str, int] = {}
    if contents.validation is not None:
        validation = {d: int(v.sum()) for d, v in contents.split(contents.validation).items()}
        problems += _compare_counts(validation, spec.validation_counts, "validation row")
        for i, (domain, count) in enumerate(validation.items()):
            if counts[domain] and (not contents.parts or contents.parts[i] == TRAIN):
                what = "train on" if count == counts[domain] else "validate on"
                if count == counts[domain] or not (count or contents.parts):
                    problems.append(Problem(f"The official split leaves {domain} no rows to {what}."))
    problems += [
        Problem(f"The domain '{d}' is empty: fill it or leave it out.") for d, count in counts.items() if not count
    ]
    if len(contents.y):
        problems += _compare_counts(counts, spec.counts, "row")
        held = contents.domains if held_out is None else held_out
        held = () if contents.parts else held  # a fixed split holds none out
        if len(counts) == 1 and held:
            text = f"There is only the domain '{contents.domains[0]}': to hold it out, at least one other is needed."
            problems.append(Problem(text))
        if not spec.is_regression:
            wrong, remarks = check_class_coverage(labels, contents.classes, held)
            problems, notes = problems + wrong, notes + remarks
        if spec.class_count not in (None, len(contents.classes)):
            text = f"The number of classes is {len(contents.classes)} where {spec.class_count} are published."
            problems.append(Problem(text, partial=True))
    fingerprint = contents.hash() if contents.content else ""
    if spec.fingerprint and fingerprint and fingerprint != spec.fingerprint:
        notes.append(
            f"This is another copy than the known one: its fingerprint is {fingerprint[:16]}, not "
            f"{spec.fingerprint[:16]}."
        )
    excused = [p for p in problems if p.partial and allow_partial]
    return DataCheck(
        name=spec.name,
        domains=contents.domains,
        classes=contents.classes,
        shape=() if contents.x is None else tuple(contents.x.shape[1:]),
        counts=counts,
        published=spec.counts,
        validation=validation,
        fingerprint=fingerprint,
        known=spec.fingerprint,
        problems=tuple(dict.fromkeys(p.text for p in problems if p not in excused)),
        notes=tuple(dict.fromkeys(notes + [f"Partial data: {p.text}" for p in excused])),
        is_regression=spec.is_regression,
    )


def _compare_counts(counts: Mapping[str, int], published: Mapping[str, int], what: str) -> list[Problem]:
    return [
        Problem(f"{domain} has {count_things(counts[domain], what)} where {right} are published.", partial=True)
        for domain, right in published.items()
        if counts.get(domain, right) != right
    ]


def find_prepared(root: Path | None, name: str) -> Path | None:
    """Find the prepared file of a benchmark below the folder of the data."""
    path = None if root is None else root / PREPARED / f"{name}.npz"
    return path if path is not None and path.is_file() else None


def write_prepared(dataset: Dataset, root: Path, name: str) -> Path:
    """Write a data set below a folder; one of images is refused."""
    if dataset.is_image:
        raise UsageError(f"{name} has images, which are read from their own files anywhere.")
    arrays = {k: np.asarray(getattr(dataset, k)) for k in ARRAYS if getattr(dataset, k) is not None}
    facts = {k: getattr(dataset, k) for k in FACTS}
    path = root / PREPARED / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        stored: dict[str, Any] = {**arrays, "facts": np.array(json.dumps({**facts, "hash": _hash_arrays(arrays)}))}
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
    if facts.pop("hash") != _hash_arrays(arrays) or (known and facts["fingerprint"] != known):
        raise damaged
    tuples = {k: tuple(v) for k, v in facts.items() if isinstance(v, list)}
    return Dataset(**{**facts, **tuples, **{k: torch.from_numpy(v) for k, v in arrays.items()}})


def _hash_arrays(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
