"""MTL: marginal transfer learning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.algorithms import _branches as branches
from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, register, setting
from seqdg.nets import Net

WEIGHT, EMBEDDING = "mean.weight", "embedding"


@register("mtl")
@dataclass(frozen=True)
class MTL(Algorithm):
    """Marginal transfer learning (Blanchard, Lee and Scott, NeurIPS 2011; Blanchard et al., JMLR 2021).

    The head reads, beside a row's features z, the mean of the features of its domain: a domain is known by the
    distribution of its inputs, without labels.

        e_i = ema * (mean of z over the minibatch of D_i) + (1 - ema) * (e_i of the step before)
        L(w) = 1/N * sum over i of l(D_i, head([z, e_i]))

    where the e_i of the step before is a constant, and zero at the start. An unseen domain's e is the mean over the
    rows that are predicted together: it is transductive. (DomainBed's MTL overwrites every embedding with noise before
    the head reads it, so that it never sees the domain; this one does.)

    ema: how much of a domain's embedding is the minibatch at hand; 1: all of it.
    """

    ema: Number = setting(0.99, least=0.0, most=1.0, search=(0.5, 0.9, 0.99, 1.0))
    together: ClassVar[int] = 64

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        layers.check_head(net, "MTL")

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        """Add the part of the head that reads the mean; drawn as torch draws a layer of twice as many inputs."""
        head = params[net.head_names[0]]
        bound = 1.0 / math.sqrt(2 * head.shape[1])
        return {**params, WEIGHT: ((2.0 * torch.rand(*head.shape, generator=generator) - 1.0) * bound).to(head)}

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        weight = params[WEIGHT]
        return {EMBEDDING: weight.new_zeros(sources, weight.shape[1])}

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        before = memory[EMBEDDING].index_select(0, episode.domain)

        def loss(weights: Params) -> tuple[Tensor, Tensor]:
            z = net.domain_features(weights, episode)
            embedding = self.ema * z.mean(1) + (1.0 - self.ema) * before
            logits = net.head(weights, z) + (embedding @ weights[WEIGHT].T).unsqueeze(1)
            return net.losses_from_logits(logits, episode.y).mean(), embedding

        direction, (value, embedding) = grad_and_value(loss, has_aux=True)(params)
        return (
            direction,
            value,
            {EMBEDDING: branches.replace_met(memory[EMBEDDING], embedding.detach(), episode.domain)},
        )

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        z = net.features(deployed, x)
        return net.head(deployed, z) + z.mean(0, keepdim=True) @ deployed[WEIGHT].T
