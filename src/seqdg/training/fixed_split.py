"""Fixed splits: which domains are trained on, which validate and which are tested, as a benchmark or its data say.

WILDS (Koh et al., 2021) and TableShift (Gardner et al., 2023) split so: all test domains are held out at once, and
domains that are neither trained on nor tested choose the step and the settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from seqdg.base import UsageError, list_some, unknown
from seqdg.data import Dataset
from seqdg.training.protocol import Protocol, split_rows


class FixedSplit(NamedTuple):
    """The domains that a file names for each part; those of `train` may be left out: all others."""

    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


def fix_split(dataset: Dataset, protocol: Protocol, test: tuple[str, ...]) -> tuple[Protocol, tuple[str, ...]]:
    """Write the fixed split out: the protocol with all its domains, and the domains to test. As they are, where neither
    the lists of the benchmark's file nor a split column of the data fix it.

    test: the test domains that the file names.
    """
    named = FixedSplit(protocol.train_domains, protocol.validation_domains, test)
    if not any(named) and not dataset.parts:
        return protocol, ()
    if any(named) and dataset.parts:
        raise UsageError(
            f"{dataset.name} has a split column, and its [protocol] names domains too. Leave out split_column, or "
            "train_domains, validation_domains and test_domains."
        )
    split = _read_parts(dataset) if dataset.parts else _complete(dataset, named)
    _check_parts(dataset, split)
    _check_validation(dataset, protocol, split)
    return replace(protocol, train_domains=split.train, validation_domains=split.validation), split.test


def _read_parts(dataset: Dataset) -> FixedSplit:
    """Read the part of each domain that the split column gives."""

    def pick(part: str) -> tuple[str, ...]:
        return tuple(name for name, its in zip(dataset.domains, dataset.parts, strict=True) if its == part)

    return FixedSplit(pick("train"), pick("validation"), pick("test"))


def _complete(dataset: Dataset, named: FixedSplit) -> FixedSplit:
    """Check the names, and train on all domains that are in no part where none is named for that. The order is that of
    the data set, so that lists and a split column give the same trials."""
    seen: dict[str, str] = {}
    for part, names in zip(FixedSplit._fields, named, strict=True):
        for name in names:
            if name not in dataset.domains:
                raise unknown("domain", name, dataset.domains, owner=f"{part}_domains: {dataset.name}")
            if name in seen:
                twice = (
                    f"twice in {part}_domains" if seen[name] == part else f"in {seen[name]}_domains and {part}_domains"
                )
                raise UsageError(
                    f"The fixed split of {dataset.name} names the domain '{name}' {twice}: a domain is in one part."
                )
            seen[name] = part
    train = named.train or [name for name in dataset.domains if name not in seen]
    return FixedSplit(*(tuple(d for d in dataset.domains if d in part) for part in (train, *named[1:])))


def _check_parts(dataset: Dataset, split: FixedSplit) -> None:
    for part, use in (("train", "to learn from"), ("test", "to test on")):
        if not getattr(split, part):
            raise UsageError(
                f"The fixed split of {dataset.name} leaves no domain {use}: name some in {part}_domains of [protocol], "
                f"or call their rows {part} in the split column."
            )


def _check_validation(dataset: Dataset, protocol: Protocol, split: FixedSplit) -> None:
    """Refuse a split in which nothing can choose, or in which rows that should choose are trained on."""
    if dataset.parts and dataset.validation is not None and protocol.split != "official":
        raise UsageError(
            f"The split column of {dataset.name} has id_val rows, and split = '{protocol.split}' would train on some "
            "of them: write split = 'official' in [protocol]."
        )
    if split.validation or protocol.split != "official":
        return
    marked = dataset.validation
    if marked is None or not any(bool(marked[dataset.rows(name)].any()) for name in split.train):
        raise UsageError(
            f"The fixed split of {dataset.name} leaves no rows to validate on: {list_some(split.train)} have none in "
            "the official split, and there are no validation domains. Name some in validation_domains, or choose split "
            "= 'random', which draws a share of each train domain."
        )


def check_rule(dataset: Dataset, protocol: Protocol, test: tuple[str, ...], rule: str) -> None:
    """Refuse a selection rule for which the split leaves no rows, before anything is trained."""
    if rule == "domain-val" and not protocol.validation_domains:
        raise UsageError(
            f"{dataset.name} has no validation domains to choose by: name them in validation_domains of [protocol] or "
            "in a split_column of [data], or choose another rule than domain-val."
        )
    blind = protocol.is_fixed and not any(map(len, split_rows(dataset, protocol, test, seed=0).validation))
    if rule in ("source-val", "last") and blind:
        raise UsageError(
            f"All rows of the train domains of {dataset.name} are trained on, so that {rule} has none to choose by: "
            "choose --select domain-val."
        )
