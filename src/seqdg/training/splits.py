"""Which rows of a data set a trial trains on, validates on and is tested on, and how those of a stack are laid out.

A split is fixed where the benchmark or its data say which domains are trained on, which validate and which are tested.
WILDS (Koh et al., 2021) and TableShift (Gardner et al., 2023) split so: all test domains are held out at once, and
domains that are neither trained on nor tested choose the step and the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.base import UsageError, list_some, unknown
from seqdg.data import Dataset, derive
from seqdg.training.protocol import Protocol
from seqdg.training.sampler import make_stream

REMEMBERED = 512  # splits of a domain, the latest of them


class Split(NamedTuple):
    """Row numbers of one trial."""

    train: tuple[Tensor, ...]  # of every source
    validation: tuple[Tensor, ...]  # of every source
    test: tuple[Tensor, ...]  # of every held-out domain
    fifth: tuple[Tensor, ...] = ()  # of the test rows, by which the rule `oracle-split` chooses settings
    outside: tuple[Tensor, ...] | None = None  # of every validation domain; None: the split is not fixed

    @property
    def evaluated(self) -> tuple[Tensor, ...]:
        """All rows that are evaluated: of every source, of every held-out domain, of every validation domain."""
        return (*self.validation, *self.test, *(self.outside or ()))

    @property
    def held_out_at_once(self) -> int | None:
        """How many domains a fixed split tests; None: the split is not fixed."""
        return None if self.outside is None else len(self.test)


def list_sources(dataset: Dataset, held_out: tuple[str, ...], protocol: Protocol | None = None) -> tuple[str, ...]:
    """List the domains that a trial learns from: those of a fixed split, or else all that are not held out."""
    for name in held_out:
        dataset.index(name)
    if protocol is not None and protocol.is_fixed:
        return protocol.train_domains
    return tuple(name for name in dataset.domains if name not in held_out)


def split_rows(dataset: Dataset, protocol: Protocol, held_out: tuple[str, ...], seed: int) -> Split:
    """Say which rows a trial trains, validates and tests on. A domain is split alike whatever is held out."""
    chosen = list_sources(dataset, held_out, protocol)
    whole = protocol.test == "whole"
    needed = chosen if protocol.is_fixed and whole else dataset.domains
    parts = {name: _split_domain(dataset, protocol, name, seed) for name in needed}
    test, outside = (
        tuple(dataset.rows(name) if whole else parts[name][1] for name in names)
        for names in (held_out, protocol.validation_domains)
    )
    return Split(
        train=tuple(parts[name][0] for name in chosen),
        validation=tuple(parts[name][1] for name in chosen),
        test=test,
        fifth=tuple(draw_fifth(rows, name, seed) for rows, name in zip(test, held_out, strict=True)),
        outside=outside if protocol.is_fixed else None,
    )


def draw_fifth(rows: Tensor, domain: str, seed: int) -> Tensor:
    """Draw a fifth of a held-out domain's test rows, the same for every algorithm and all settings of a seed."""
    count = min(max(1, round(0.2 * len(rows))), len(rows) - 1) if len(rows) > 1 else 0
    order = torch.from_numpy(make_stream(seed, "fifth", domain).permutation(len(rows)))
    return rows[order[:count]].sort().values


def _split_domain(dataset: Dataset, protocol: Protocol, domain: str, seed: int) -> tuple[Tensor, Tensor]:
    """Split the rows of one domain, once for all trials that split it alike."""
    fields = protocol.split, protocol.validation, protocol.test, bool(protocol.validation_domains)
    key, known = (domain, seed, fields), derive(dataset, "splits", dict)
    if key not in known:
        while len(known) >= REMEMBERED:
            known.pop(next(iter(known)))
        known[key] = _draw_split(dataset, protocol, domain, seed)
    split: tuple[Tensor, Tensor] = known[key]
    return split


def _draw_split(dataset: Dataset, protocol: Protocol, domain: str, seed: int) -> tuple[Tensor, Tensor]:
    """Split the rows of one domain into those for training and those for validation."""
    rows = dataset.rows(domain)
    if protocol.split == "official":
        if dataset.validation is None and protocol.validation_domains and protocol.test == "whole":
            return rows, rows[:0]  # the validation domains choose, and all rows of the sources are trained on
        if dataset.validation is None:
            raise UsageError(f"{dataset.name} has no official split. Choose split = 'random'.")
        validates = dataset.validation[rows]
        return rows[~validates], rows[validates]
    if len(rows) < 2:
        raise UsageError(f"Domain '{domain}' of {dataset.name} has {len(rows)} rows, too few to split.")
    count = min(max(1, round(protocol.validation * len(rows))), len(rows) - 1)
    shuffled = rows[torch.from_numpy(make_stream(seed, "split", domain).permutation(len(rows)))]
    return shuffled[count:].sort().values, shuffled[:count].sort().values


# ---------------------------------------------------------------------------- fixed splits


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
    if dataset.parts:  # of each domain, by the split column
        pairs = list(zip(dataset.domains, dataset.parts, strict=True))
        split = FixedSplit(*(tuple(name for name, its in pairs if its == part) for part in FixedSplit._fields))
    else:
        split = _complete(dataset, named)
    _check_fixed_split(dataset, protocol, split)
    return replace(protocol, train_domains=split.train, validation_domains=split.validation), split.test


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


def _check_fixed_split(dataset: Dataset, protocol: Protocol, split: FixedSplit) -> None:
    """Refuse a split in which nothing is trained on or tested, nothing can choose, or rows that should choose are
    trained on."""
    for part, use in (("train", "to learn from"), ("test", "to test on")):
        if not getattr(split, part):
            raise UsageError(
                f"The fixed split of {dataset.name} leaves no domain {use}: name some in {part}_domains of [protocol], "
                f"or call their rows {part} in the split column."
            )
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


# ---------------------------------------------------------------------------- evaluated rows


class EvaluatedRows(NamedTuple):
    """The validation rows of every source, then the rows of every held-out and validation domain, on the device."""

    rows: Tensor  # (trial, row) of all domains, one after the other
    counts: list[int]  # rows of each domain
    masks: list[Tensor]  # of each domain: (trial, row) bool, whether the row counts or only fills
    fifths: list[Tensor | None]  # of each held-out domain: (trial, row) bool, whether `oracle-split` chooses by the row


def lay_out_rows(splits: Sequence[Split], together: int, device: torch.device) -> EvaluatedRows:
    """Lay out the rows of all trials alike.

    Where a trial has fewer rows of a domain than another, or than whole batches of `together` rows of a transductive
    algorithm, its own rows fill it up, from the first on.
    """
    columns = [list(split.evaluated) for split in splits]
    if together:
        columns = [[rows[shuffle_order(len(rows))] for rows in domains] for domains in columns]
    lengths = [torch.tensor([len(rows) for rows in domain])[:, None] for domain in zip(*columns, strict=True)]
    counts = [count_filled(int(length.max()), together) for length in lengths]
    rows = torch.stack([torch.cat([fill_cyclically(r, n) for r, n in zip(c, counts, strict=True)]) for c in columns])
    parts, sources = torch.split(rows, counts, 1), len(splits[0].validation)
    fifths = [None] * sources + [
        mark_fifth(part, [split.fifth[k] for split in splits if k < len(split.fifth)], device)
        for k, part in enumerate(parts[sources:])
    ]
    masks = [(torch.arange(count) < length).to(device) for count, length in zip(counts, lengths, strict=True)]
    return EvaluatedRows(rows.to(device), counts, masks, fifths)


def mark_fifth(rows: Tensor, fifths: Sequence[Tensor], device: torch.device) -> Tensor | None:
    """Return (trial, row) whether each row is in the fifth of its trial; None where the trials have none.

    rows: (trial, row) their numbers in the data set.   fifths: of every trial, row numbers.
    """
    if not fifths:
        return None
    return torch.stack([torch.isin(r, f) for r, f in zip(rows, fifths, strict=True)]).to(device)


def count_filled(count: int, together: int) -> int:
    """Count the rows of the whole batches of `together` rows that hold so many; 0: any number of rows is whole."""
    return -(-count // together) * together if together else count


def fill_cyclically(rows: Tensor, count: int) -> Tensor:
    """Return so many rows: all of these, then again from the first on. Where there are none, zeros."""
    if count == len(rows):
        return rows
    if not len(rows):
        return rows.new_zeros(count, *rows.shape[1:])
    return rows.index_select(0, torch.arange(count, device=rows.device) % len(rows))


def repeat_by_class(rows: Tensor, y: Tensor) -> Tensor:
    """Return the rows of a domain, those of rarer classes several times, so that every class that it has is drawn as
    often as the most frequent one; where that is no multiple, the first rows of a class once more.

    rows: row numbers.   y: the class of every row of the data set.
    """
    of_class = [rows[y[rows].cpu() == label] for label in sorted(set(y[rows].tolist()))]
    most = max(map(len, of_class), default=0)
    return torch.cat([rows[:0], *(fill_cyclically(own, most) for own in of_class)])


def shuffle_order(count: int) -> Tensor:
    """Return the order in which so many rows of a domain are put into batches, always the same. Data sets list their
    rows class by class, and a batch of one class would not show what the domain is like."""
    return torch.from_numpy(make_stream(0, "together", str(count)).permutation(count))
