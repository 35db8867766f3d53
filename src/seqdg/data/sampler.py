"""Everything random of a trial, drawn from its own seed before the device sees it.

Any stretch of steps can be drawn without those before it, so a resumed trial meets the same episodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Independent random numbers for each purpose of a seed."""
    words = [zlib.crc32(p.encode()) if isinstance(p, str) else p for p in purpose]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *words])))


def torch_generator(seed: int, *purpose: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(int(stream(seed, *purpose).integers(2**62)))


class Draws(NamedTuple):
    """A stretch of steps of one trial."""

    domain: Tensor  # (step, domain) which source is met first, second, ...: the path p
    rows: Tensor  # (step, domain, batch) row numbers of the data set, in the order of the path
    key: Tensor  # (step,)


class Sampler:
    """Paths, minibatches and keys of one trial. A domain is drawn in reshuffled epochs that wrap."""

    def __init__(self, seed: int, rows: Sequence[Tensor], batch: int) -> None:
        self.seed, self.batch = seed, batch
        self.rows = [r.numpy() for r in rows]  # the training rows of every source

    def draw(self, start: int, stop: int) -> Draws:
        """Steps start, ..., stop - 1."""
        order = np.argsort(stream(self.seed, "order").random((stop, len(self.rows))), axis=1)[start:]
        by_source = np.stack([self._minibatches(d, start, stop) for d in range(len(self.rows))], axis=1)
        rows = np.take_along_axis(by_source, order[:, :, None], axis=1)
        key = stream(self.seed, "key").integers(2**62, size=stop)[start:]
        return Draws(torch.from_numpy(order), torch.from_numpy(rows), torch.from_numpy(key))

    def _minibatches(self, source: int, start: int, stop: int) -> NDArray[np.int64]:
        rows, first, last = self.rows[source], start * self.batch, stop * self.batch
        epochs = range(first // len(rows), (last - 1) // len(rows) + 1)
        shuffled = [rows[stream(self.seed, "epoch", source, epoch).permutation(len(rows))] for epoch in epochs]
        skip = first - epochs[0] * len(rows)
        drawn: NDArray[np.int64] = np.concatenate(shuffled)[skip : skip + last - first]
        return drawn.reshape(stop - start, self.batch)
