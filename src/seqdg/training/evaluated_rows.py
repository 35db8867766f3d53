"""The rows that the trials of a stack are evaluated on, which are the same in every evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.training.protocol import Split
from seqdg.training.transduction import count_filled, fill_cyclically, shuffle_order


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
    fifths: list[Tensor | None] = [None] * sources
    for k, part in enumerate(parts[sources:]):
        fifths.append(mark_fifth(part, [split.fifth[k] for split in splits if k < len(split.fifth)], device))
    masks = [(torch.arange(count) < length).to(device) for count, length in zip(counts, lengths, strict=True)]
    return EvaluatedRows(rows.to(device), counts, masks, fifths)


def mark_fifth(rows: Tensor, fifths: Sequence[Tensor], device: torch.device) -> Tensor | None:
    """Return (trial, row) whether each row is in the fifth of its trial; None where the trials have none.

    rows: (trial, row) their numbers in the data set.   fifths: of every trial, row numbers.
    """
    if not fifths:
        return None
    return torch.stack([torch.isin(r, f) for r, f in zip(rows, fifths, strict=True)]).to(device)
