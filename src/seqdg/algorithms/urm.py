"""URM: features that look uniform to an adversary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, noise, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("urm")
@dataclass(frozen=True)
class URM(Algorithm):
    """Uniform risk minimization (Krishnamachari, Ng and Foo, TMLR 2024): features that are uniformly distributed.

    The head classifies u = tanh(z) of the features z. A discriminator G of one hidden layer learns to separate u from
    draws of a uniform distribution, and the features learn to be taken for such draws:

        L(w) = 1/N * sum over i of l(D_i, u) - adversary * log G(u)
        L(G) = -log G(uniform) - adversary * log(1 - G(u))

    both at once, each with the other held fixed.

    adversary: how strongly features learn to look uniform, and how much they weigh for the discriminator.
    lowest: where the uniform distribution begins; it ends at 1. -1 as published, or 0 for features that are never
        below 0, as behind a ReLU.
    hidden: units of the discriminator's hidden layer.
    """

    adversary: Number = setting(0.1, least=0.0, search=Range(0.01, 0.2))
    lowest: Number = setting(-1.0, least=-1.0, most=0.0)
    hidden: int = setting(100, least=1)
    needs_features: ClassVar[bool] = True

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        return {**params, **layers.two_layer_params("discriminator.", head.shape[1], self.hidden, 1, generator, head)}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        u = torch.tanh(net.domain_features(params, episode))
        uniform = self.lowest + (1.0 - self.lowest) * noise.uniform(episode.key, u.shape, u.dtype)
        real = layers.two_layer(params, "discriminator.", uniform)
        fake = layers.two_layer(params, "discriminator.", u.detach())
        posing = layers.two_layer(tree.detach(params), "discriminator.", u)
        return (
            layers.label_loss(net, params, u, episode.y)
            + self.adversary * softplus(-posing).mean()
            + softplus(-real).mean()
            + self.adversary * softplus(fake).mean()
        )

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(params, "discriminator.")

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        return net.head(deployed, torch.tanh(net.features(deployed, x)))
