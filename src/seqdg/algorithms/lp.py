"""LP: train the head first, then all weights, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from seqdg.base import Episode, Params, UsageError
from seqdg.core import Algorithm, Wrapper, find_core, list_layers, register, setting
from seqdg.nets import Net


@register("lp")
@dataclass(frozen=True)
class LinearProbingFirst(Wrapper):
    """Linear probing, then fine-tuning (Kumar et al., ICLR 2022): a head that is still random does not spoil features.

    In the first stage only the weights of the head learn, with the base's direction; in what follows all do. A base
    whose first stage trains no head that is deployed, such as MetaReg or D-MTAE, is refused.

    base: the algorithm inside.
    head_share: the share of the steps in which the head learns alone; the base's stages divide the rest.
    """

    head_share: float = setting(0.1, above=0.0, most=0.9, static=True, search=(0.05, 0.1, 0.2, 0.3))
    acts_on: ClassVar[str] = "stages"

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        if not all(layer.trains_head for layer in list_layers(self.base.stages()[0][1])):
            raise UsageError(
                f"lp trains the head first, but the first stage of {type(find_core(self.base)).__name__} trains none "
                "that is deployed: drop +lp, or choose another algorithm, such as agg."
            )
        if not net.has_features:
            raise UsageError(
                "lp trains the head before the rest, but this net has nothing but a head, or none: drop +lp."
            )

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        share, first = self.head_share, self.base.stages()[0][1]
        rest = tuple(((1.0 - share) * part, replace(self, base=stage)) for part, stage in self.base.stages())
        return ((share, HeadOnly(first)), *rest)


@dataclass(frozen=True)
class HeadOnly(Wrapper):
    """The first stage: the base's direction at the head, and at what the algorithm adds to the net.

    base: the first stage of the algorithm inside.
    """

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        direction, value, kept = super().step(net, params, memory, episode)
        return select_head(net, direction), value, kept


def select_head(net: Net, direction: Params) -> Params:
    """Return the direction without the weights of the net below its head, and without an algorithm's copies of them:
    what has a prefix, behind which there are names of the net alone."""
    body, parts = set(net.names) - set(net.head_names), {name: name.partition(".") for name in direction}
    added = {prefix for name, (prefix, _, inner) in parts.items() if name not in net.names and inner not in net.names}
    return {
        name: d
        for name, d in direction.items()
        if name not in body and (name in net.names or parts[name][0] in added or parts[name][2] not in body)
    }
