"""What the next steps of a stack of trials will see, drawn before it is needed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqdg.training.sampler import Draws, Sampler


class Upcoming:
    """Draws of all trials, (step, trial, ...), from some step on."""

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
