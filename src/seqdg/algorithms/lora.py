"""LoRA: thin factors of a net's matrices learn in their place, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.base import Episode, Params, tree
from seqdg.core import BASE, Number, Range, Wrapper, register, setting
from seqdg.nets import Net, adapt, draw_factors, list_matrices, merge

FIRST = "first."  # in the memory, before the weights that do not learn


@register("lora")
@dataclass(frozen=True)
class LoRA(Wrapper):
    """Low-rank adaptation (Hu et al., ICLR 2022): of linear layers below the head, two thin factors learn.

        W = W_0 + lora_alpha / lora_rank * B A,   A drawn at random, B = 0 at first

    The head learns as ever; all other weights stay as they are. What is inside sees the factors as the weights of the
    net: look-aheads, sharpness and averages act on them, so that exact S-MLDG of a large net fits into memory. The
    weights W are deployed, with the names of the net.

    base: the algorithm inside.
    lora_rank: of the factors, at most.
    lora_alpha: how far a step of the factors moves the weights; with twice the rank, as far as with half of it.
    lora_where: "all" linear layers, or a regular expression that their names hold, such as attn or qkv|fc1.
    """

    lora_rank: int = setting(8, least=1, search=(4, 8, 16, 32))
    lora_alpha: Number = setting(16.0, above=0.0, search=Range(4.0, 64.0))
    lora_where: str = setting("all")
    acts_on: ClassVar[str] = "net"

    def check(self, net: Net, sources: int) -> None:
        first, generator = net.params(), torch.Generator()
        super().check(self._adapt(net, self._shrink(net, first, generator), first), sources)

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        small = self._shrink(net, params, generator)
        return self.base.init(self._adapt(net, small, params), small, sources, generator)

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        first = net.params()
        kept = self.base.memory(self._adapt(net, params, first), params, sources)
        stays = {name: w for name, w in first.items() if name not in net.head_names}
        return {**tree.with_prefix(kept, BASE), **tree.with_prefix(stays, FIRST)}

    def enter(self, net: Net, params: Params, memory: Params) -> tuple[Params, Params]:
        return super().enter(self._adapt(net, params, tree.under_prefix(memory, FIRST)), params, memory)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        return super().loss(self._adapt(net, params, net.params()), params, episode)

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        return super().step(self._adapt(net, params, tree.under_prefix(memory, FIRST)), params, memory, episode)

    def deploy(self, params: Params, memory: Params) -> Params:
        first, small = tree.under_prefix(memory, FIRST), super().deploy(params, memory)
        return {**first, **merge(small, first, self._scale)}

    @property
    def _scale(self) -> Number:
        return self.lora_alpha / self.lora_rank

    def _shrink(self, net: Net, params: Params, generator: torch.Generator) -> Params:
        """Return the weights that learn: factors, and the head's."""
        factors = draw_factors(params, list_matrices(net, self.lora_where), self.lora_rank, generator)
        return {**factors, **{name: params[name] for name in net.head_names}}

    def _adapt(self, net: Net, params: Params, first: Params) -> Net:
        """Return the net as the base sees it. first: the net's weights before training."""
        return adapt(net, params, first, self._scale)
