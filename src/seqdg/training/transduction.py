"""Fill up whole batches with one domain's rows, for algorithms that predict many rows of a domain at once."""

from __future__ import annotations

import torch
from torch import Tensor

from seqdg.training.sampler import make_stream


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


def shuffle_order(count: int) -> Tensor:
    """Return the order in which so many rows of a domain are put into batches, always the same. Data sets list their
    rows class by class, and a batch of one class would not show what the domain is like."""
    return torch.from_numpy(make_stream(0, "together", str(count)).permutation(count))
