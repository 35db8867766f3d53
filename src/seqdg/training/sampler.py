"""Everything random of a trial, drawn from its own seed before the device sees it.

Any stretch of steps can be drawn without those before it, so a resumed trial meets the same episodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def make_stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Make a generator of random numbers; those of another seed or purpose are independent of them."""
    words = [zlib.crc32(p.encode()) if isinstance(p, str) else p for p in purpose]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *words])))


def make_generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Make a generator of torch, seeded from the stream of this purpose."""
    return torch.Generator().manual_seed(int(make_stream(seed, *purpose).integers(2**62)))


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
        self._places = _Series(lambda: make_stream(seed, "order"), lambda g, count: g.random((count, len(rows))))
        self._keys = _Series(lambda: make_stream(seed, "key"), lambda g, count: g.integers(2**62, size=count))
        self._epochs: list[dict[int, NDArray[np.int64]]] = [{} for _ in rows]  # the last ones used

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Samplers with the same identity draw the same."""
        return self.seed, self.batch, *(rows.tobytes() for rows in self.rows)

    def draw(self, start: int, stop: int) -> Draws:
        """Draw steps start, ..., stop - 1; this is fastest where the last stretch ended at `start`."""
        order = np.argsort(self._places(start, stop), axis=1)
        by_source = np.stack([self._draw_minibatches(d, start, stop) for d in range(len(self.rows))], axis=1)
        rows = np.take_along_axis(by_source, order[:, :, None], axis=1)
        return Draws(torch.from_numpy(order), torch.from_numpy(rows), torch.from_numpy(self._keys(start, stop)))

    def _draw_minibatches(self, source: int, start: int, stop: int) -> NDArray[np.int64]:
        rows, first, last = self.rows[source], start * self.batch, stop * self.batch
        epochs = range(first // len(rows), (last - 1) // len(rows) + 1)
        old = self._epochs[source]
        self._epochs[source] = {e: old[e] if e in old else self._shuffle(source, e) for e in epochs}
        skip = first - epochs[0] * len(rows)
        drawn: NDArray[np.int64] = np.concatenate(list(self._epochs[source].values()))[skip : skip + last - first]
        return drawn.reshape(stop - start, self.batch)

    def _shuffle(self, source: int, epoch: int) -> NDArray[np.int64]:
        rows = self.rows[source]
        return rows[make_stream(self.seed, "epoch", source, epoch).permutation(len(rows))]


class Upcoming:
    """What the next steps of a stack of trials will see, (step, trial, ...), drawn before it is needed."""

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        self.samplers = samplers
        same: dict[tuple[object, ...], int] = {}  # trials that differ in settings alone see the same
        self._which = [same.setdefault(s.identity, len(same)) for s in samplers]
        self._distinct = list({s.identity: s for s in samplers}.values())
        self._start, self._drawn = 0, self._draw(0, 0)

    def take(self, first: int, last: int) -> Draws:
        """Return the draws of steps first, ..., last - 1."""
        self.prepare(first, last)
        return Draws(*(d[first - self._start : last - self._start] for d in self._drawn))

    def prepare(self, first: int, last: int) -> None:
        """Draw those of these steps that are not drawn yet, and forget the steps before them."""
        end = self._start + len(self._drawn.key)
        if not self._start <= first <= end:
            self._start, end = first, first
            self._drawn = self._draw(first, first)
        if last > end:
            new = self._draw(end, last)
            kept = (d[first - self._start :] for d in self._drawn)
            self._start, self._drawn = first, Draws(*(torch.cat(pair) for pair in zip(kept, new, strict=True)))

    def _draw(self, start: int, stop: int) -> Draws:
        if start == stop:
            sources, batch = len(self.samplers[0].rows), self.samplers[0].batch
            shapes = ((sources,), (sources, batch), ())
            return Draws(*(torch.empty((0, len(self.samplers), *shape), dtype=torch.int64) for shape in shapes))
        each = [sampler.draw(start, stop) for sampler in self._distinct]
        which = torch.tensor(self._which)
        return Draws(*(torch.stack(column, 1).index_select(1, which) for column in zip(*each, strict=True)))


class _Series:
    """The numbers of one stream. Any stretch can be drawn; one that follows the last is the fastest."""

    def __init__(
        self, begin: Callable[[], np.random.Generator], draw: Callable[[np.random.Generator, int], NDArray[Any]]
    ) -> None:
        self._begin, self._draw = begin, draw
        self._generator, self._at = begin(), 0

    def __call__(self, start: int, stop: int) -> NDArray[Any]:
        if start < self._at:
            self._generator, self._at = self._begin(), 0
        self._draw(self._generator, start - self._at)
        self._at = stop
        return self._draw(self._generator, stop - start)
