"""What one training step sees: a minibatch per source domain, in the order in which the domains are met."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.base import noise

Params = dict[str, Tensor]


class Minibatch(NamedTuple):
    """What one domain contributes to a step."""

    x: Tensor  # (batch, *input)
    y: Tensor  # (batch,)
    key: Tensor | None = None  # () for noise, such as dropout's: that of the step and the source


class Episode(NamedTuple):
    """Order is data: row i is the i-th domain of the path p. Everything random about a step is in the episode."""

    x: Tensor  # (domain, batch, *input), domains in the order in which they are met
    y: Tensor  # (domain, batch)
    domain: Tensor  # (domain,) the number of each row's source
    progress: Tensor  # () from 0 to 1 over the training, or over its stage; for schedules
    key: Tensor = torch.zeros((), dtype=torch.int64)  # for noise: seqdg.noise.uniform(key, shape)

    @property
    def domains(self) -> int:
        return self.x.shape[0]

    @property
    def keys(self) -> Tensor:
        """(domain,) the key of each domain: another in every step and for every source, wherever it is on the path."""
        return noise.select(self.key, self.domain)

    @property
    def minibatches(self) -> Minibatch:
        """Those of all domains, each tensor with a first axis of domains: for `torch.func.vmap`."""
        return Minibatch(self.x, self.y, self.keys)

    def minibatch(self, i: int) -> Minibatch:
        """Return (x, y, key) of the i-th domain of the path."""
        return Minibatch(self.x.select(0, i), self.y.select(0, i), noise.select(self.key, self.domain.select(0, i)))

    def part(self, start: int, stop: int) -> Episode:
        """Return the same step with only the domains start, ..., stop - 1 of the path."""
        return self._replace(
            x=self.x.narrow(0, start, stop - start),
            y=self.y.narrow(0, start, stop - start),
            domain=self.domain.narrow(0, start, stop - start),
        )

    def by_source(self) -> Episode:
        """Return the same step with the domains in the order of the sources, each of which must occur once."""
        order = self.domain.argsort()
        x, y, domain = (t.index_select(0, order) for t in (self.x, self.y, self.domain))
        return self._replace(x=x, y=y, domain=domain)
