"""LoRA: thin factors of a net's matrices learn in their place, around any algorithm."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.base import Episode, Params, UsageError, list_some, tree
from seqdg.core import BASE, Number, Range, Wrapper, register, setting
from seqdg.nets import FACTORS, Net

A, B = FACTORS  # after the name of a matrix: its factors (rank, input) and (output, rank)
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
        return {**first, **_merge(small, first, self._scale)}

    @property
    def _scale(self) -> Number:
        return self.lora_alpha / self.lora_rank

    def _shrink(self, net: Net, params: Params, generator: torch.Generator) -> Params:
        """Return the weights that learn: factors, and the head's."""
        factors = _draw_factors(params, _list_matrices(net, self.lora_where), self.lora_rank, generator)
        return {**factors, **{name: params[name] for name in net.head_names}}

    def _adapt(self, net: Net, params: Params, first: Params) -> Net:
        """Return the net as the base sees it. first: the net's weights before training."""
        own = {n + end for n in net.names for end in ("", A, B)}  # and none of an algorithm's copies of them
        small = {n: w for n, w in params.items() if n in own}
        return net.training_instead(small, first, lambda weights: _merge(weights, first, self._scale))


def _list_matrices(net: Net, where: str) -> tuple[str, ...]:
    """Return the names of a net's trained matrices that are adapted: those of the linear layers below its head, or
    those of them whose names a pattern finds.

    where: "all", or a regular expression, such as `attn` or `qkv|fc1`.
    """
    found = [name for name in net.list_linear_weights() if name in net.names and name not in net.head_names]
    chosen = tuple(name for name in found if where == "all" or re.search(where, name))
    if not found:
        raise UsageError("lora adapts linear layers below the head, and this net trains none: drop +lora.")
    if not chosen:
        layers = list_some([name.removesuffix(".weight") for name in found], most=4)
        raise UsageError(f"No linear layer of the net has '{where}' in its name (lora_where). It has: {layers}.")
    return chosen


def _draw_factors(params: Params, matrices: Iterable[str], rank: int, generator: torch.Generator) -> Params:
    """Return the first factors of matrices: A drawn as a linear layer's weights, B zero, so that nothing changes yet.

    rank: of each, or the smaller side of a matrix that is smaller.
    """
    factors = {}
    for name in matrices:
        outputs, inputs = params[name].shape
        size = min(rank, outputs, inputs)
        drawn = torch.rand((size, inputs), generator=generator, dtype=torch.float64)
        bound = inputs**-0.5
        factors[name + A] = (2 * bound * drawn - bound).to(params[name])
        factors[name + B] = torch.zeros_like(params[name][:, :1]).repeat(1, size)
    return factors


def _merge(params: Params, first: Params, scale: float | Tensor) -> Params:
    """Return weights with every pair of factors as the matrix W + scale * B A, also below a prefix, of copies for each
    source (source, ...) for example."""
    merged = {name: w for name, w in params.items() if not name.endswith((A, B))}
    for name, a in params.items():
        if name.endswith(A):
            full = name.removesuffix(A)
            whole = first[full] if full in first else first[max((n for n in first if full.endswith(f".{n}")), key=len)]
            merged[full] = whole + scale * (params[full + B] @ a)
    return merged
