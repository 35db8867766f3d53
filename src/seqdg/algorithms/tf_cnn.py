"""TF-CNN: weights of every domain and of none, in one tensor of low rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _branches as branches
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, register, setting
from seqdg.nets import Net

PREFIX = "tucker."


@register("tf-cnn")
@dataclass(frozen=True)
class TFCNN(Algorithm):
    """Deeper, broader and artier domain generalization (Li, Yang, Song and Hospedales, ICCV 2017).

    Of the chosen weights, source domain i has W_i = V_i + V_0. The slices V_1, ..., V_N of the domains and V_0, which
    is agnostic of them, are one tensor with an axis more than the weights, in Tucker's form: a core G of low rank times
    a matrix along each axis,

        V = G x_0 U_0 x_1 U_1 x_2 ... x_k U_k
        L(G, U) = 1/N * sum over i of l(D_i, V_i + V_0)

    V_0 alone is deployed. With rank = 1 the form holds any tensor, and the W_i are as free as one net per domain;
    what ties them is V_0, which learns from all. Vectors, such as biases, are factored along the axis of domains only.

    The start is ours: V_0 is the net's own weight, projected on the leading singular vectors along each axis, and V_i
    is 0. So are the ranks and the default, to factor the head alone. Where all layers are factored, the
    learning rate must be lower: on the rotated digits 0.2 diverges, 0.02 trains. V_0 alone is evaluated, and does not
    reach AGG on validation rows of the sources: 86.8 % on the rotated digits, where AGG has 87.6 %, and 63.7 % on
    Office-Caltech10, where AGG has 68.5 %, with rank 1 and the best rate tried; rank 0.5 is 2 and 6 points worse.

    rank: of every axis, as a share of its length (that of domains: at least 2).
    branches: which weights are factored: all, those of the head, or those whose name matches.
    """

    rank: float = setting(0.5, above=0.0, most=1.0, static=True, search=(0.25, 0.5, 0.75, 1.0))
    branches: str = setting("head")
    needs: ClassVar[int] = 2

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        branches.select_names(net, self.branches)

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        chosen = branches.select_names(net, self.branches)
        rest = {name: w for name, w in params.items() if name not in chosen}
        for name in chosen:
            rest |= tree.with_prefix(factor(params[name], sources, self.rank, generator), f"{PREFIX}{name}.")
        return rest

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        copies = {}
        for name, factors in group_factors(params).items():
            sources = len(factors["0"]) - 1
            is_source = episode.domain.unsqueeze(1) == torch.arange(sources, device=episode.domain.device)
            slices = factors["0"].narrow(0, 0, sources), factors["0"].narrow(0, sources, 1)
            copies[name] = multiply(factors, is_source.to(slices[0].dtype) @ slices[0] + slices[1])
        return branches.compute_losses(net, tree.without_prefix(params, PREFIX), copies, episode).mean()

    def deploy(self, params: Params, memory: Params) -> Params:
        deployed = tree.without_prefix(params, PREFIX)
        for name, factors in group_factors(params).items():
            deployed[name] = multiply(factors, factors["0"].narrow(0, len(factors["0"]) - 1, 1)).squeeze(0)
        return deployed


def factor(weight: Tensor, sources: int, rank: float, generator: torch.Generator) -> Params:
    """Return the core and the matrices of a tensor whose last slice is the weight, projected, and the others are 0."""
    domains = min(sources + 1, max(2, math.ceil(rank * (sources + 1))))
    drawn = torch.linalg.qr(torch.randn(sources, sources, generator=generator, dtype=torch.float64))[0].to(weight)
    across = weight.new_zeros(sources + 1, domains)
    across[:-1, 1:], across[-1, 0] = drawn[:, : domains - 1], 1.0
    factors, core = {"0": across}, weight
    for axis in range(weight.dim() if weight.dim() > 1 else 0):
        unfolded = weight.movedim(axis, 0).flatten(1).double()
        leading = torch.linalg.eigh(unfolded @ unfolded.mT)[1].flip(1)  # the left singular vectors
        basis = leading[:, : math.ceil(rank * len(unfolded))].to(weight)
        factors[str(axis + 1)] = basis
        core = torch.tensordot(core, basis, ([0], [0]))
    return {"core": torch.cat([core.unsqueeze(0), core.new_zeros(domains - 1, *core.shape)]), **factors}


def multiply(factors: Params, slices: Tensor) -> Tensor:
    """Return (row, *weight) the core times rows (row, rank) along the axis of domains and its matrices along others."""
    product: Tensor = torch.tensordot(
        factors["core"], slices, ([0], [1])
    )  # takes the first axis off, puts the new one last
    for axis in range(1, len(factors) - 1):
        product = torch.tensordot(product, factors[str(axis)], ([0], [1]))
    return product if len(factors) > 2 else product.movedim(-1, 0)


def group_factors(params: Params) -> dict[str, Params]:
    """Return the factors of each weight, by its name."""
    grouped: dict[str, Params] = {}
    for full, value in tree.under_prefix(params, PREFIX).items():
        name, _, part = full.rpartition(".")
        grouped.setdefault(name, {})[part] = value
    return grouped
