"""MMD-AAE: an adversarial auto-encoder whose codes have one distribution in all domains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from seqdg.algorithms import _layers as layers
from seqdg.base import noise, tree
from seqdg.base.episode import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets.net import Net

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the kernels, in units of the squared length of a code


@register("mmd-aae")
@dataclass(frozen=True)
class MMDAAE(Algorithm):
    """Domain generalization with adversarial feature learning (Li, Pan, Wang and Kot, CVPR 2018).

    The features z that enter the head are encoded, h = Q(z), and the head classifies the code. A decoder P restores
    the features, codes of any two domains have the same distribution by a multi-kernel MMD, and a discriminator G
    that tells codes from draws of a Laplace prior is deceived, through a reversed gradient:

        L = 1/N * sum over i of l(D_i, h) + reconstruction * || P(h) - z ||^2
            + mmd * 1/N^2 * sum over i, j of MMD(h_i, h_j)^2 - log G(prior) - log(1 - G(reverse(h)))
        gradient of reverse = -adversary

    The encoder and the decoder are linear and start as the identity; a code has as many numbers as the features.

    reconstruction: weight of the mean squared error of restored features.
    mmd: weight of the discrepancy between domains.
    adversary: how strongly codes learn to look like the prior.
    hidden: units of the discriminator's hidden layer.
    """

    reconstruction: Number = setting(1.0, least=0.0, search=Range(0.01, 10.0))
    mmd: Number = setting(1.0, least=0.0, search=Range(0.01, 10.0))
    adversary: Number = setting(0.01, least=0.0, search=Range(0.001, 0.02))
    hidden: int = setting(100, least=1)
    needs: ClassVar[int] = 2

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        layers.check_features(net, "MMD-AAE")

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        width = head.shape[1]
        return {
            **params,
            **identity("encoder.", width, head),
            **identity("decoder.", width, head),
            **layers.two_layer_params("discriminator.", width, self.hidden, 1, generator, head),
        }

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        code = layers.linear(params, "encoder.", z)
        restored = layers.linear(params, "decoder.", code)
        prior = noise.laplace(episode.key, code.shape, code.dtype) / math.sqrt(2.0)  # of variance 1
        real = layers.two_layer(params, "discriminator.", prior)
        fake = layers.two_layer(params, "discriminator.", layers.reverse(code, self.adversary))
        return (
            layers.label_loss(net, params, code, episode.y)
            + self.reconstruction * ((restored - z.detach()) ** 2).mean()
            + self.mmd * discrepancy(code)
            + softplus(-real).mean()
            + softplus(fake).mean()
        )

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(tree.without_prefix(params, "decoder."), "discriminator.")

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        return net.head(deployed, layers.linear(deployed, "encoder.", net.features(deployed, x)))


def identity(prefix: str, width: int, like: Tensor) -> Params:
    return {f"{prefix}weight": torch.eye(width).to(like), f"{prefix}bias": torch.zeros(width).to(like)}


def discrepancy(code: Tensor) -> Tensor:
    """Mean over all pairs of domains of the squared MMD between their codes (domain, batch, width), where the kernel
    is the mean of exp(-||a - b||^2 / (2 s width)) over the bandwidths s."""
    domains, batch, width = code.shape
    rows = code.flatten(0, 1)
    squares = (rows**2).sum(1)
    distances = (squares.unsqueeze(1) + squares.unsqueeze(0) - 2.0 * rows @ rows.T) / width
    kernel = torch.stack([torch.exp(-distances / (2.0 * s)) for s in BANDWIDTHS]).mean(0)
    means = kernel.reshape(domains, batch, domains, batch).mean((1, 3))
    return 2.0 * (means.diagonal().mean() - means.mean())
