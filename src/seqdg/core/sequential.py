"""Sequential learning as a fold along the path."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import ClassVar, cast

from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params, UsageError
from seqdg.core.algorithm import Algorithm, Chainable
from seqdg.core.settings import Settings
from seqdg.core.wrapper import Around
from seqdg.nets import Net


@dataclass(frozen=True)
class Sequential(Around):
    """Sequential learning for domain generalization (Li, Yang, Song, Hospedales 2020), of any chainable base.

    The loss over a path p through the source domains adds, at every step, the base's loss on the next domain given
    a model that has learned the domains before:

        L = sum over d in p of L(D_d | D_[:d))

    Parameters
    ----------
    base : Chainable
        Says how a loss over the past is extended by one domain.

    Examples
    --------
    >>> import seqdg
    >>> from seqdg.algorithms.mldg import MLDG
    >>> seqdg.Sequential(MLDG(alpha=0.2)) == seqdg.build("s-mldg", alpha=0.2)
    True
    """

    base: Chainable
    sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.base, Chainable):
            kind = type(self.base).__name__
            raise UsageError(
                f"{kind} cannot be chained: it does not say how a loss over past domains is extended by one "
                f"(a Chainable with an `extend` method does)."
            )
        if self.base.symmetric:
            kind = type(self.base).__name__
            warnings.warn(
                f"Sequential({kind}) is {kind} itself, times the number of domains, whatever the path: its penalty is "
                f"a symmetric function of the domains. Use {kind}, and report it as that.",
                stacklevel=3,
            )
        if type(self.base).extend is Chainable.extend:
            raise UsageError(f"{type(self.base).__name__} cannot be chained: it has no `extend` method of its own.")
        super().__post_init__()
        object.__setattr__(self, "uses", self.base.uses)

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        for f in fields(self.base):
            if f.name in self.base.alone and getattr(self.base, f.name) != f.default:
                raise UsageError(
                    f"{f.name} is a setting of {type(self.base).__name__} by itself and means nothing along a path: "
                    "leave it out."
                )
        self.base.check_path(net, sources)

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return self.base.memory(net, params, sources) if self.base.follow is not None else {}

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        stages = self.base.stages()  # each of them is chained
        if len(stages) == 1 and stages[0][1] is self.base:
            return ((1.0, self),)
        return tuple((share, replace(self, base=cast("Chainable", stage))) for share, stage in stages)

    def enter(self, net: Net, params: Params, memory: Params) -> tuple[Params, Params]:
        return self.base.enter(net, params, memory)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        total = self.base.begin(net, episode)
        for i in range(1, episode.domains):
            total = self.base.extend(net, total, episode, i)
        return total(params)

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        if self.base.along is not None:
            return self.base.along(net, params, episode)
        if self.base.advance is None:
            return super().gradient(net, params, episode)
        so_far = grad_and_value(self.base.begin(net, episode))(params)
        for i in range(1, episode.domains):
            so_far = self.base.advance(net, params, so_far, episode, i)
        return so_far

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        if self.base.follow is not None:
            return self.base.follow(net, params, memory, episode)
        return super().step(net, params, memory, episode)

    def evaluated(self, memory: Params, losses: Tensor) -> Params:
        return self.base.evaluated(memory, losses)

    def deploy(self, params: Params, memory: Params) -> Params:
        return self.base.deploy(params, memory)


def list_alone(algorithm: Settings) -> set[str]:
    """Return the settings that mean nothing along a path, of every base in it that is chained."""
    inner = [list_alone(v) for f in fields(algorithm) if isinstance(v := getattr(algorithm, f.name), Settings)]
    return set(algorithm.base.alone if isinstance(algorithm, Sequential) else ()).union(*inner)
