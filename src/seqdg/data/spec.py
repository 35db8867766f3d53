"""What a benchmark says about its data: the `[data]` table of its TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seqdg.base.errors import UsageError, unknown
from seqdg.base.toml_table import read_fields

# The module that reads each format; it is imported when it is first used. The last that recognizes a path reads it.
READERS = {
    "images": "seqdg.data.images",
    "features": "seqdg.data.features",
    "table": "seqdg.data.domain_table",
}
NORMALIZATIONS = ("none", "l1", "l2", "zscore")


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
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)  # published rows of each domain
    validation_counts: Mapping[str, int] = field(default_factory=dict, hash=False)  # of its official validation set
    # images
    size: int | None = None  # side of the stored square; None: the largest side found, at most 256
    splits: str = ""  # folder below the root with the official {domain}_{train,crossval}_kfold.txt
    # features and tables
    files: tuple[str, ...] = ()  # a domain's files, such as "{domain}_SURF_L10.mat"; empty: found by name
    x_key: str = ""
    y_key: str = ""  # "last-column": the labels are the last column of x
    label_base: int | None = None  # the number of the first class; None: told from the labels
    drop_other_labels: bool = False  # leave out rows of other classes, instead of calling them wrong
    normalize: str = "none"  # of each row by itself: by its sum, its length, or to mean 0 and deviation 1
    domain_column: str = "domain"
    label_column: str = "label"
    validation_column: str = ""
    group_column: str = ""  # divides the rows in another way than the domain: results are also judged by group
    split_column: str = ""  # the part of a fixed split: train, validation, test; id_val for rows of train domains
    ignore: tuple[str, ...] = ()  # columns of a table that are no features

    def __post_init__(self) -> None:
        if self.format and self.format not in READERS:
            raise unknown("data format", self.format, READERS)
        if self.normalize not in NORMALIZATIONS:
            raise unknown("normalization", self.normalize, NORMALIZATIONS)
        if self.label_base not in (None, 0, 1):
            raise UsageError(f"{self.name}: label_base is {self.label_base}. Give 0 or 1, or leave it out to find it.")
        if self.size is not None and self.size < 1:
            raise UsageError(f"{self.name}: size is {self.size}. Give the side of the stored images in pixels.")
        for template in self.files:
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
                raise unknown(f"domain of {self.name}", domain, self.domains)

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> DataSpec:
        """Make one from a TOML `[data]` table, and check every key and type."""
        return cls(name=name, **read_fields(cls, table, f"the [data] table of {name}", but=("name",)))
