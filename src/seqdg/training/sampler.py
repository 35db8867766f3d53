"""Everything random of a trial, drawn from its own seed: the same integers alone, in a stack, on any device.

Paths, minibatches and keys are functions of the seed and the number of the step (`seqdg.base.noise`), computed for all
trials of a stack and many steps at once, on its device. Any stretch of steps can be drawn without those before it, so a
resumed trial meets the same episodes.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqdg.base import noise, shuffle

AHEAD = 64, 256  # steps drawn at once: at least, and at most where that many are one block
BLOCK = {"cpu": 2**16, "cuda": 2**22}  # row numbers computed at once; those of a CPU stay in its cache
STEPS, CHOICES, ROWS = range(3)  # what random numbers are for
_Ranges = tuple[tuple[int, int], ...]  # where the rows of every source begin, and how many there are


def make_stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Make a generator of random numbers; those of another seed or purpose are independent of them."""
    words = [zlib.crc32(p.encode()) if isinstance(p, str) else p for p in purpose]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *words])))


def make_generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Make a generator of torch, seeded from the stream of this purpose."""
    return torch.Generator().manual_seed(int(make_stream(seed, *purpose).integers(2**62)))


class Draws(NamedTuple):
    """A stretch of steps."""

    domain: Tensor  # (step, trial, domain) which source is met first, second, ...: the path p
    rows: Tensor  # (step, trial, domain, batch) row numbers of the data set, in the order of the path
    key: Tensor  # (step, trial)


class Sampler:
    """Paths, minibatches and keys of the trials of a stack.

    A source is drawn in reshuffled epochs that wrap. Where a step has k of M sources, they are drawn in rounds of
    M // k steps: in a round no source is met twice, and M % k of them, drawn at random, are not met.

    seeds: of every trial.
    rows: the training rows of every source of every trial.
    batch: rows of a minibatch.
    domains: how many sources a step has; 0: all.
    path: `random` shuffles the sources of a step; `fixed` leaves them in the order of the data set. The rows that a
        step draws of a source are the same.
    purpose: samplers of another purpose draw independently.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        rows: Sequence[Sequence[Tensor]],
        batch: int,
        domains: int = 0,
        device: torch.device | str = "cpu",
        path: str = "random",
        purpose: str = "episodes",
    ) -> None:
        self.batch, self.sources, self.device = batch, len(rows[0]), torch.device(device)
        self.is_fixed = path == "fixed"
        self.domains = domains or self.sources
        self.round = self.sources // self.domains
        table, ranges = _concatenate(rows)
        which: dict[tuple[int, _Ranges], int] = {}  # trials that differ in settings alone see the same
        self._which = torch.tensor([which.setdefault(pair, len(which)) for pair in zip(seeds, ranges, strict=True)])
        roots = {seed: int(make_stream(seed, purpose).integers(2**62)) for seed in dict.fromkeys(seeds)}
        root = torch.tensor([[roots[seed]] for seed, _ in which])  # (trial, 1)
        first, length = torch.tensor([ranges for _, ranges in which]).unbind(-1)  # (trial, source)
        self._epochs = 2 + (batch - 2) // int(length.min())  # a minibatch meets at most so many
        source_key = noise.fold(noise.fold(root, ROWS), torch.arange(self.sources))
        ranges_of_sources = (t.to(torch.int32) for t in (first, length, _take_root(length)))
        self._of_source = [t.flatten().to(device) for t in (*ranges_of_sources, source_key)]
        self._first_source = (torch.arange(len(which)) * self.sources).unsqueeze(1).to(device)
        self._step_key, self._choice_key = (noise.fold(root, purpose).to(device) for purpose in (STEPS, CHOICES))
        self._table, self._which = table.to(device), self._which.to(device)
        self._block = max(1, BLOCK[self.device.type] // (len(which) * self.domains * batch))  # steps
        self.ahead = max(AHEAD[0], min(AHEAD[1], self._block))

    def draw(self, start: int, stop: int) -> Draws:
        """Draw steps start, ..., stop - 1."""
        step = torch.arange(start, stop, device=self.device).reshape(-1, 1, 1)
        key, order = self._draw_keys(step)
        domain = order if self.domains == self.sources else self._choose_domains(step, order)
        domain = domain.sort(dim=-1).values if self.is_fixed else domain
        parts = map(self._draw_rows, torch.split(step, self._block), torch.split(domain, self._block))
        drawn = Draws(domain, torch.cat(list(parts)), key)
        if len(self._which) == len(self._first_source):
            return drawn
        return Draws(*(t.index_select(1, self._which) for t in drawn))

    def _draw_keys(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Return the key (step, trial) and an order (step, trial, domain) of as many numbers as a step has domains:
        that of random bits; equal ones, which are rare, as they come."""
        count = torch.arange(self.domains + 1, device=self.device)
        key = noise.fold(self._step_key, step * len(count) + count)
        return key[..., 0], (key[..., 1:] >> 32).sort(dim=-1, stable=True).indices

    def _choose_domains(self, step: Tensor, order: Tensor) -> Tensor:
        """Return the sources (step, trial, domain) that are met, in this order."""
        number = step.div(self.round, rounding_mode="floor")
        index = order + (step - number * self.round) * self.domains
        n = torch.tensor(self.sources, dtype=torch.int32, device=self.device)
        key = noise.fold(self._choice_key, number).expand(index.shape)
        return shuffle(index.to(torch.int32), n, _take_root(n), key).long()

    def _draw_rows(self, step: Tensor, domain: Tensor) -> Tensor:
        """Return rows (step, trial, domain, batch) of domains (step, trial, domain)."""
        source = (domain + self._first_source).flatten()
        first, n, width, key = (t.index_select(0, source).reshape(*domain.shape, 1) for t in self._of_source)
        before = (step.div(self.round, rounding_mode="floor") * self.batch).unsqueeze(-1)  # rows drawn in rounds before
        epoch = before.div(n, rounding_mode="floor")
        index = (before - epoch * n).to(torch.int32) + torch.arange(self.batch, dtype=torch.int32, device=self.device)
        begun = index.div(n, rounding_mode="floor")  # epochs, in this minibatch
        keys = noise.fold(key, epoch + torch.arange(self._epochs, device=self.device))
        number = shuffle(index.sub_(begun * n), n, width, keys.gather(-1, begun.long()))
        return self._table.index_select(0, number.add_(first).flatten()).reshape(number.shape).long()


class Upcoming:
    """What the next steps of a stack of trials will see, (step, trial, ...), drawn before it is needed."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._start, self._drawn = 0, sampler.draw(0, 0)

    def take(self, first: int, last: int) -> Draws:
        """Return the draws of steps first, ..., last - 1."""
        self.prepare(first, last)
        return Draws(*(d[first - self._start : last - self._start] for d in self._drawn))

    def prepare(self, first: int, last: int) -> None:
        """Draw those of these steps that are not drawn yet, with some that follow, and forget the steps before."""
        end = self._start + len(self._drawn.key)
        if not self._start <= first <= end:
            self._start, end = first, first
            self._drawn = self.sampler.draw(first, first)
        if last > end:
            new = self.sampler.draw(end, max(last, end + self.sampler.ahead))
            kept = (d[first - self._start :] for d in self._drawn)
            self._start, self._drawn = first, Draws(*(torch.cat(pair) for pair in zip(kept, new, strict=True)))


def _concatenate(rows: Sequence[Sequence[Tensor]]) -> tuple[Tensor, list[_Ranges]]:
    """Return all row numbers one after the other, and where those of each source of each trial are: sources with the
    same rows share them."""
    begins: dict[bytes, int] = {}
    parts, ranges, end = [torch.empty(0, dtype=torch.int32)], [], 0
    for sources in rows:
        of_trial = []
        for numbers in sources:
            name = numbers.numpy().tobytes()
            if name not in begins:
                begins[name] = end
                parts.append(numbers.to(torch.int32))
                end += len(numbers)
            of_trial.append((begins[name], len(numbers)))
        ranges.append(tuple(of_trial))
    return torch.cat(parts), ranges


def _take_root(n: Tensor) -> Tensor:
    """Return floor(sqrt(n)) of numbers below 2^52: float64 is exact enough for it."""
    return n.double().sqrt().to(n.dtype)


@contextmanager
def lend_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let the process's own generators draw from a seed, for code that uses these; afterwards they go on as before."""
    before = read_generators(device)
    seed_generators(seed, device)
    try:
        yield
    finally:
        restore_generators(before, device)


def seed_generators(seed: int, device: torch.device | None = None) -> None:
    """Seed the generators of torch, numpy and Python."""
    seeds = [int(word) for word in make_stream(seed, "domainbed").integers(2**32, size=3)]
    torch.default_generator.manual_seed(seeds[0])
    if device is not None and device.type == "cuda":
        torch.cuda.manual_seed(seeds[0])
    np.random.seed(seeds[1])
    random.seed(seeds[2])


def read_generators(device: torch.device | None = None) -> dict[str, Any]:
    """Return the states of all generators of the process, as plain values."""
    of_numpy: Any = np.random.get_state()
    name, words, *rest = of_numpy
    version, numbers, gauss = random.getstate()
    states = {"torch": torch.get_rng_state().tolist(), "numpy": [name, words.tolist(), *rest]}
    if device is not None and device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device).tolist()
    return {**states, "python": [version, list(numbers), gauss]}


def restore_generators(states: Mapping[str, Any], device: torch.device | None = None) -> None:
    """Put all generators back into states that were read."""
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    np.random.set_state(tuple(states["numpy"]))
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "cuda" in states:
        torch.cuda.set_rng_state(torch.tensor(states["cuda"], dtype=torch.uint8), device or "cuda")
