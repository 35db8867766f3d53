"""SelfReg: rows of one class are drawn together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, noise, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("selfreg")
@dataclass(frozen=True)
class SelfReg(Algorithm):
    """Self-supervised contrastive regularization (Kim et al., ICCV 2021), with positive pairs alone.

    Each row has two partners a, b, drawn among the rows of its class in all domains. Its logits p = head(z) are drawn
    to a partner's and to a mixture of both; and so are its features z, to the partners' features behind a projector c:

        pull(u, v) = g * ||u - v_a||^2 + (1 - g) * ||u - (g * v_a + (1 - g) * v_b)||^2
        L(w, c) = l + min(stop(l), 1) * (logit * pull(p, p) + feature * pull(z, c(z)))

    where l = 1/N * sum over i of l(D_i, w), g ~ Beta(1/2, 1/2) is drawn for the step, and norms are means of squares.
    As in DomainBed, there are no averaged weights and no curriculum; the projector's normalization uses the step's own
    rows alone. It has two hidden layers of twice the features' width, at most 2048. Here it is trained with the rest;
    DomainBed's optimizer does not hold it, so that it stays as it was drawn.

    logit: weight of the pull on logits.
    feature: weight of the pull on features.
    """

    logit: Number = setting(1.0, least=0.0, search=Range(0.1, 10.0))
    feature: Number = setting(0.3, least=0.0, search=Range(0.03, 3.0))
    hard_labels: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        return {**params, **projector_params(head.shape[1], generator, head)}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        logits = net.head(params, z)
        label = net.losses_from_logits(logits, episode.y).mean()
        rows, outputs, y = z.flatten(0, 1), logits.flatten(0, 1), episode.y.flatten()
        mix = (
            torch.sin(0.5 * math.pi * noise.uniform(noise.fold(episode.key, 0), (), z.dtype)) ** 2
        )  # is Beta(1/2, 1/2)
        partners = [draw_partners(noise.fold(episode.key, k), y).to(z.dtype) for k in (1, 2)]

        def pull(here: Tensor, there: Tensor) -> Tensor:
            first, second = (matrix @ there for matrix in partners)
            mixed = mix * first + (1.0 - mix) * second
            return mix * ((here - first) ** 2).mean() + (1.0 - mix) * ((here - mixed) ** 2).mean()

        pulls = self.logit * pull(outputs, outputs) + self.feature * pull(rows, project(params, rows))
        return label + label.detach().clamp(max=1.0) * pulls

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(params, "projector.")


def projector_params(width: int, generator: torch.Generator, like: Tensor) -> Params:
    hidden = min(2 * width, 2048)
    made: Params = {}
    for k, (inputs, outputs) in enumerate(((width, hidden), (hidden, hidden), (hidden, width)), 1):
        drawn = layers.linear_params("", inputs, outputs, generator, like)  # a bias would be taken off with the mean
        start = {"weight": drawn["weight"], "scale": torch.ones_like(drawn["bias"])}
        made |= tree.with_prefix({**start, "shift": torch.zeros_like(drawn["bias"])}, f"projector.{k}.")
    return made


def project(params: Params, rows: Tensor) -> Tensor:
    """Three linear layers, each normalized over the rows, with ReLU between them."""
    for k in (1, 2, 3):
        rows = rows @ params[f"projector.{k}.weight"].T
        rows = (rows - rows.mean(0)) / torch.sqrt(rows.var(0, unbiased=False) + 1e-5)
        rows = rows * params[f"projector.{k}.scale"] + params[f"projector.{k}.shift"]
        rows = torch.relu(rows) if k < 3 else rows
    return rows


def draw_partners(key: Tensor, y: Tensor) -> Tensor:
    """Return (row, row) a permutation, as a matrix, that is uniform among those which keep every label."""
    rows = len(y)
    indices = torch.arange(rows, device=y.device)
    chance = noise.uniform(key, (rows,), torch.float64).argsort().argsort()
    there, here = (y * rows + chance).argsort(), (y * rows + indices).argsort()  # both list the rows class by class
    partner = there.index_select(0, here.argsort())
    return partner.unsqueeze(1) == indices
