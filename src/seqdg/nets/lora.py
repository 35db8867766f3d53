"""Low-rank adaptation: of a matrix W of a net, two thin factors are trained in its place, W + scale * B A."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

import torch
from torch import Tensor

from seqdg.base import Params, UsageError, list_some
from seqdg.nets.net import Net

A, B = ".lora_a", ".lora_b"  # after the name of a matrix: its factors (rank, input) and (output, rank)


def list_matrices(net: Net, where: str) -> tuple[str, ...]:
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


def draw_factors(params: Params, matrices: Iterable[str], rank: int, generator: torch.Generator) -> Params:
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


def adapt(net: Net, small: Params, first: Params, scale: float | Tensor) -> Net:
    """Return the net that trains these weights alone, factors among them; all others are constants.

    first: the weights that training starts from, by the net's names.
    """
    other = copy.copy(net)
    own = {n + end for n in net.names for end in ("", A, B)}  # and none of an algorithm's copies of them
    other._initial = {n: w for n, w in small.items() if n in own}
    other.names = tuple(other._initial)
    other._constants = {**net._constants, **{name: w for name, w in first.items() if name not in other._initial}}
    thin = {name.removesuffix(A) for name in other.names if name.endswith(A)}
    layout = [(f"{name}{A}", f"{name}{B}") if name in thin else (name,) for name in net._layout]
    other._layout = tuple(name for names in layout for name in names)
    other._merge = lambda params: merge(params, first, scale)
    return other


def merge(params: Params, first: Params, scale: float | Tensor) -> Params:
    """Return weights with every pair of factors as the matrix W + scale * B A, also below a prefix, of copies for each
    source (source, ...) for example."""
    merged = {name: w for name, w in params.items() if not name.endswith((A, B))}
    for name, a in params.items():
        if name.endswith(A):
            full = name.removesuffix(A)
            whole = first[full] if full in first else first[max((n for n in first if full.endswith(f".{n}")), key=len)]
            merged[full] = whole + scale * (params[full + B] @ a)
    return merged
