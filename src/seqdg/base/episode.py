"""What one training step sees: a minibatch per source domain, in the order in which the domains are met."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.base import noise
from seqdg.base.messages import UsageError

Params = dict[str, Tensor]
TARGET, VIEW, GROUP = "target", "view", "group"  # what an algorithm may ask for beside its minibatches


class Minibatch(NamedTuple):
    """What one domain contributes to a step."""

    x: Tensor  # (batch, *input)
    y: Tensor  # (batch,)
    key: Tensor | None = None  # () for noise, such as dropout's: that of the step and the source


class Episode(NamedTuple):
    """What one training step sees: a minibatch per source domain, in the order of the path.

    Order is data: row i is the i-th domain of the path p. Everything random about a step is in the episode.

    Parameters
    ----------
    x : Tensor
        (domain, batch, *input), domains in the order in which they are met.
    y : Tensor
        (domain, batch) labels.
    domain : Tensor
        (domain,) the number of each row's source.
    progress : Tensor
        () from 0 to 1 over the training, or over its stage; for schedules.
    key : Tensor
        () for noise: `seqdg.noise.uniform(key, shape)`.
    rate : Tensor
        () the learning rate of the step, for algorithms that take steps of their own.
    extras : dict of str to Tensor
        What the algorithm's class asks for by `uses`: see `target`, `view` and `group`.

    Examples
    --------
    >>> import torch
    >>> from seqdg import Episode
    >>> x, y = torch.zeros(3, 8, 2), torch.zeros(3, 8, dtype=torch.long)
    >>> episode = Episode(x, y, domain=torch.tensor([2, 0, 1]), progress=torch.tensor(0.5))
    >>> episode.domains, episode.minibatch(0).x.shape
    (3, torch.Size([8, 2]))
    >>> episode.by_source().domain
    tensor([0, 1, 2])
    """

    x: Tensor  # (domain, batch, *input), domains in the order in which they are met
    y: Tensor  # (domain, batch)
    domain: Tensor  # (domain,) the number of each row's source
    progress: Tensor  # () from 0 to 1 over the training, or over its stage; for schedules
    key: Tensor = torch.zeros((), dtype=torch.int64)  # for noise: seqdg.noise.uniform(key, shape)
    rate: Tensor = torch.zeros(())  # the learning rate of the step
    extras: dict[str, Tensor] = {}  # noqa: RUF012  what the algorithm uses beside these; nobody changes it

    @property
    def target(self) -> Tensor:
        """(batch, *input) rows of the domain that is held out, without labels: `uses = ("target",)`."""
        return self._take(TARGET)

    @property
    def view(self) -> Tensor:
        """(domain, batch, *input) the same rows as `x`, augmented once more: `uses = ("view",)`."""
        return self._take(VIEW)

    @property
    def group(self) -> Tensor:
        """(domain, batch) the group of each row, as `group_column` of the data has it: `uses = ("group",)`."""
        return self._take(GROUP)

    def _take(self, name: str) -> Tensor:
        if name not in self.extras:
            raise UsageError(
                f"The algorithm reads episode.{name} and does not say so: write uses = ('{name}',) in its class."
            )
        return self.extras[name]

    @property
    def domains(self) -> int:
        """How many domains the step meets."""
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
        """Return what the i-th domain of the path contributes.

        Parameters
        ----------
        i : int
            A position in the path.

        Returns
        -------
        Minibatch
            x (batch, *input), y (batch,) and a key () of this step and source.
        """
        return Minibatch(self.x.select(0, i), self.y.select(0, i), noise.select(self.key, self.domain.select(0, i)))

    def part(self, start: int, stop: int) -> Episode:
        """Return the same step with some domains of the path.

        Parameters
        ----------
        start, stop : int
            The positions start, ..., stop - 1 are kept.

        Returns
        -------
        Episode
            The part.
        """
        return self._replace(
            x=self.x.narrow(0, start, stop - start),
            y=self.y.narrow(0, start, stop - start),
            domain=self.domain.narrow(0, start, stop - start),
            extras={k: v if k == TARGET else v.narrow(0, start, stop - start) for k, v in self.extras.items()},
        )

    def by_source(self) -> Episode:
        """Return the same step with the domains in the order of the sources, each of which must occur once.

        Returns
        -------
        Episode
            The same minibatches, reordered.
        """
        order = self.domain.argsort()
        x, y, domain = (t.index_select(0, order) for t in (self.x, self.y, self.domain))
        extras = {k: v if k == TARGET else v.index_select(0, order) for k, v in self.extras.items()}
        return self._replace(x=x, y=y, domain=domain, extras=extras)
