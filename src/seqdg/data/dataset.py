"""A data set whose rows come from several named domains: its rows in memory, and the `[data]` table that says how to
read it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from seqdg.base import UsageError, read_fields, unknown

ProgressCallback = Callable[[int, int], None]  # done, of how many

# The module that reads each format; it is imported when it is first used. The last that recognizes a path reads it.
READERS = {
    "images": "seqdg.data.image_folder",
    "rotated-digits": "seqdg.data.rotated_mnist",
    "list": "seqdg.data.image_list",
    "features": "seqdg.data.features.domain_files",
    "table": "seqdg.data.features.domain_files",
    "shards": "seqdg.data.image_shards",
}
TARGETS = ("class", "number")
FEW, FEW_OF_CLASS = 64, 4  # rows of a domain that a trial run needs
NORMALIZATIONS = ("none", "l1", "l2", "zscore")


@dataclass(frozen=True, eq=False)
class Dataset:
    """All rows of all domains in one array, so that any minibatch is a list of row numbers.

    `x` is a tensor or, for sets too large for memory, anything that `numpy` indexing reads rows from.
    """

    name: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]  # (): the targets are numbers
    x: Any  # (row, *input) float32 features, or uint8 images (row, channel, height, width)
    y: Tensor  # (row,) int64, index into classes; float64, the numbers themselves, where there are none
    domain: Tensor  # (row,) int64, index into domains
    fingerprint: str  # hash of the content: the same data give the same one
    validation: Tensor | None = None  # (row,) bool, the official split where there is one
    numbers: int | None = None  # how many of the first inputs are numbers that every trial scales by its own sources
    notes: tuple[str, ...] = ()  # what a record should carry: partial counts, classes that some domains lack
    group: Tensor | None = None  # (row,) int64, index into groups: what else divides the rows, such as a region
    groups: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # of each domain, where a split column fixes it: train, validation or test
    weight: Tensor | None = None  # (row,) float64, how much each counts; None: all the same
    files: tuple[str, ...] = ()  # the name of the file of each row, where rows are pictures

    def __post_init__(self) -> None:
        for name in ("x", "domain", "validation", "group", "weight"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.y):
                raise UsageError(f"{self.name}: {name} has {len(values)} rows where y has {len(self.y)}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    @property
    def is_regression(self) -> bool:
        """True for regression."""
        return not self.classes

    @property
    def outputs(self) -> int:
        """Number of outputs of a net per row: a logit for each class, or one number."""
        return len(self.classes) or 1

    @property
    def is_image(self) -> bool:
        return len(self.x.shape) == 4

    def index(self, domain: str) -> int:
        if domain not in self.domains:
            raise unknown("domain", domain, self.domains, owner=self.name)
        return self.domains.index(domain)

    def rows(self, domain: str) -> Tensor:
        """Return the row numbers of one domain, ascending. They are found once: do not change them."""
        return self._rows[self.index(domain)]

    @cached_property
    def _rows(self) -> list[Tensor]:
        return [torch.nonzero(self.domain == i).flatten() for i in range(len(self.domains))]

    def sample(self, rows: int) -> Dataset:
        """Take so many rows of every domain, always the same ones: of every class, and of official validation rows, in
        proportion, and at least one of each; all rows of a domain that has no more. 0: as few as a trial run needs."""
        wanted = rows or max(FEW, FEW_OF_CLASS * len(self.classes))
        kept = torch.cat([self._sample_domain(domain, wanted) for domain in self.domains]).sort().values
        if len(kept) == len(self.y):
            return self
        note = f"A sample of {len(kept)} of {len(self.y)} rows: its accuracy says nothing about the whole set."

        def take(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[kept]

        return replace(
            self,
            x=self.x[kept] if isinstance(self.x, Tensor) else self.x[kept.numpy()],
            y=self.y[kept],
            domain=self.domain[kept],
            validation=take(self.validation),
            group=take(self.group),
            weight=take(self.weight),
            files=tuple(self.files[i] for i in kept.tolist()) if self.files else (),
            fingerprint=hashlib.sha256(f"{self.fingerprint} {wanted} rows of a domain".encode()).hexdigest(),
            notes=(*self.notes, note),
        )

    def _sample_domain(self, domain: str, wanted: int) -> Tensor:
        own = self.rows(domain)
        if len(own) <= wanted:
            return own
        kinds = torch.zeros_like(own) if self.is_regression else self.y[own]
        if self.validation is not None:
            kinds = 2 * kinds + self.validation[own]
        strata = [own[kinds == kind] for kind in sorted(set(kinds.tolist()))]
        if len(strata) > wanted:
            what = "classes, and training and validation rows," if self.validation is not None else "classes"
            raise UsageError(
                f"{self.name}: {wanted} rows of {domain} cannot hold one of each of its {len(strata)} {what}: take "
                f"--rows {len(strata)} or more."
            )
        # Largest remainders, after one of each; then rows at even distances.
        shares = [(wanted - len(strata)) * (len(stratum) - 1) / (len(own) - len(strata)) for stratum in strata]
        counts = [1 + int(share) for share in shares]
        order = sorted(range(len(strata)), key=lambda i: (int(shares[i]) - shares[i], i))
        for i in order[: wanted - sum(counts)]:
            counts[i] += 1
        return torch.cat([s[torch.arange(n) * len(s) // n] for s, n in zip(strata, counts, strict=True)])


_derived: WeakKeyDictionary[Any, dict[Hashable, Any]] = WeakKeyDictionary()


def derive(owner: Any, key: Hashable, make: Callable[[], Any]) -> Any:
    """Compute something of a data set, or of what trains on one, once per process, as long as that is in use."""
    known = _derived.setdefault(owner, {})
    if key not in known:
        known[key] = make()
    return known[key]


@dataclass(frozen=True)
class DataSpec:
    """Where a data set lies below the root folder, and how to read it.

    Only `name` is needed. What is left out is inferred from the files, or not checked.
    """

    name: str
    path: tuple[str, ...] = (".",)  # below the root; the first that exists is read
    get: str = ""  # where to get it
    format: str = ""  # a key of READERS; empty: told from the path
    domains: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    class_count: int | None = None  # published number of classes, where they are not named
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)  # published rows of each domain
    validation_counts: Mapping[str, int] = field(default_factory=dict, hash=False)  # of its official validation set
    fingerprint: str = ""  # of a known copy
    # images
    size: int | None = None  # side of the stored square; None: the largest side found, at most 256
    crop: bool = False  # keep the aspect ratio: the centre of a picture, as wide as its shorter side
    splits: str = ""  # folder below the root with the official {domain}_{train,crossval}_kfold.txt
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)  # another name of a folder -> domain or class
    exclude: tuple[str, ...] = ()  # text files below the root, each of whose lines names a picture to leave out
    # lists of image files
    file: str = "{file}"  # where a picture lies below `images`: columns of the list in braces, {row} for its number
    prepare: str = ""  # "package:function" of the list and its folder, which adds columns or leaves rows out
    images: tuple[str, ...] = ()  # folder or .zip below the root, the first that exists; empty: the folder of the list
    # features and tables
    files: tuple[str, ...] = ()  # a domain's files, such as "{domain}_SURF_L10.mat"; empty: found by name
    x_key: str = ""  # of features; of shards, the column of pictures
    y_key: str = ""  # "last-column": the labels are the last column of x
    target: str = "class"  # what the labels are: classes, or a `number` to predict
    label_base: int | None = None  # the number of the first class; None: told from the labels
    drop_other_labels: bool = False  # leave out rows of other classes, instead of calling them wrong
    normalize: str = "none"  # of each row by itself: by its sum, its length, or to mean 0 and deviation 1
    scale: bool = False  # fill missing values and scale numbers, in every trial by constants of its own sources
    # tables and lists
    domain_column: str = "domain"
    label_column: str = "label"
    validation_column: str = ""
    group_column: str = ""  # divides the rows in another way than the domain: results are also judged by group
    split_column: str = ""  # the part of a fixed split: train, validation, test; id_val for rows of train domains
    ignore: tuple[str, ...] = ()  # columns of a table that are no features
    separator: str = ""  # between columns, " " for any number of blanks; empty: told from the file
    na: tuple[str, ...] = ()  # text that means missing
    columns: tuple[str, ...] = ()  # names of the columns, where the file does not begin with them
    cuts: tuple[float, ...] = ()  # where one class of a label that is measured ends, and the next begins
    categories: tuple[str, ...] = ()  # columns of categories, each of which becomes a column of 0 and 1
    text: tuple[str, ...] = ()  # columns of free text, which `encode` makes numbers of
    encode: str = "hash"  # hashed n-grams, or the user's "package:function" or "file.py:function"
    hash_size: int = 2048  # columns of hashed n-grams
    ngrams: tuple[int, ...] = (1, 2)  # shortest and longest, in words

    def __post_init__(self) -> None:
        if self.format and self.format not in READERS:
            raise unknown("data format", self.format, READERS)
        if self.normalize not in NORMALIZATIONS:
            raise unknown("normalization", self.normalize, NORMALIZATIONS)
        if self.target not in TARGETS:
            raise unknown("target", self.target, TARGETS)
        if self.is_regression:
            self._check_numbers()
        for key in ("domain_column", "label_column"):
            if not getattr(self, key):
                raise UsageError(f"{self.name}: {key} is empty. Name a column of the table.")
        if self.label_base not in (None, 0, 1):
            raise UsageError(f"{self.name}: label_base is {self.label_base}. Give 0 or 1, or leave it out to find it.")
        if self.size is not None and self.size < 1:
            raise UsageError(f"{self.name}: size is {self.size}. Give the side of the stored images in pixels.")
        if self.scale and self.normalize != "none":
            raise UsageError(f"{self.name}: scale and normalize are two ways to one end. Leave one of them out.")
        if self.cuts and list(self.cuts) != sorted(set(self.cuts)):
            raise UsageError(f"{self.name}: cuts is {list(self.cuts)}. Give numbers that rise.")
        if self.cuts and self.classes and len(self.classes) != len(self.cuts) + 1:
            raise UsageError(
                f"{self.name}: {len(self.cuts)} cuts make {len(self.cuts) + 1} classes, but "
                f"{len(self.classes)} are named."
            )
        if self.hash_size < 2:
            raise UsageError(f"{self.name}: hash_size is {self.hash_size}, but at least 2 columns are needed.")
        if len(self.ngrams) != 2 or not 1 <= self.ngrams[0] <= self.ngrams[1]:
            raise UsageError(
                f"{self.name}: ngrams is {list(self.ngrams)}. Give the shortest and the longest, as [1, 2]."
            )
        if self.encode != "hash" and not self.text:
            raise UsageError(f"{self.name}: encode is '{self.encode}', but `text` names no column to encode.")
        for template in self.files if self.format != "list" else ():
            try:
                template.format(domain="")
            except (KeyError, IndexError, ValueError):
                raise UsageError(
                    f"{self.name}: files has '{template}', in which only {{domain}} may stand for something else."
                ) from None
        if self.split_column and self.validation_column:
            raise UsageError(
                f"{self.name}: split_column and validation_column both say which rows validate. Keep one: in a split "
                "column, rows that validate within a train domain are called id_val."
            )
        for key, names in (("domains", self.domains), ("classes", self.classes)):
            if len(set(names)) < len(names):
                raise UsageError(f"{self.name}: {key} names one of them twice: {', '.join(names)}.")
        for domain in (*self.counts, *self.validation_counts):
            if self.domains and domain not in self.domains:
                raise unknown("domain", domain, self.domains, owner=self.name)

    @property
    def is_regression(self) -> bool:
        """True for regression."""
        return self.target == "number"

    def _check_numbers(self) -> None:
        for key in ("classes", "class_count", "label_base", "cuts"):
            if getattr(self, key):
                raise UsageError(f"{self.name}: {key} is of classes, and target = 'number' has none. Leave one out.")
        if self.format in ("images", "list", "shards"):
            raise UsageError(f"{self.name}: regression works on tables and features, not on images yet.")

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> DataSpec:
        """Make one from a TOML `[data]` table, and check every key and type."""
        return cls(name=name, **read_fields(cls, table, f"the [data] table of {name}", but=("name",)))

    def locate(self, root: Path) -> Path:
        """Find the file or folder below the root folder; raise a UsageError where there is none."""
        for name in self.path:
            if (root / name).is_file() or (root / name).is_dir():  # and no device
                return root / name
        if not root.is_dir():
            raise UsageError(f"There is no folder {root}. Give the one that holds {' or '.join(self.path)}.")
        names = " nor ".join(f"'{name}'" for name in self.path)
        raise UsageError(f"There is {'neither' if len(self.path) > 1 else 'no'} {names} in {root.absolute()}.")


def guess_format(path: Path) -> str:
    """Guess the format of a file or folder."""
    return next(name for name in reversed(READERS) if import_module(READERS[name]).recognizes(path))
