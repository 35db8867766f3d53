"""MMD-AAE: an adversarial auto-encoder whose codes have one distribution in all domains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear as affine
from torch.nn.functional import softplus

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, noise, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

CODE = "code."  # prefix of the linear layer, whose weights have the names of the head's
BANDWIDTHS = (1.0, 5.0, 10.0)  # of the kernels; as in a public re-implementation


@register("mmd-aae")
@dataclass(frozen=True)
class MMDAAE(Algorithm):
    """Domain generalization with adversarial feature learning (Li, Pan, Wang and Kot, CVPR 2018).

    The net below its head and a linear layer on it are the encoder Q of the input, h = Q(x), and the head classifies
    the code h. A decoder P restores the input, codes of any two domains have the same distribution by a multi-kernel
    MMD, and a discriminator G learns to distinguish codes from draws p of a Laplace prior, which the encoder learns to
    prevent:

        L(Q, P, head) = 1/N * sum over i of l(D_i, h) + reconstruction * || P(h) - x ||^2
                      + mmd * 1/N^2 * sum over i, j of MMD(h_i, h_j)^2 + adversary * J(h)
        L(G) = -log G(p) - log(1 - G(h))
        MMD(a, b)^2 = mean k(a, a') + mean k(b, b') - 2 * mean k(a, b)
        k(a, b) = mean over s = 1, 5, 10 of exp(-||a - b||^2 / (2 * s * unit))

    The paper's J(h) = log(1 - G(h)) (minimax) has no lower bound: where the encoder gets ahead of G, it sinks without
    end and drowns the other terms. J(h) = -log G(h) (non-saturating), the default, has the same fixed point and is
    never below 0. The paper updates G and the rest in turn; here both take their steps at once.

    The linear layer lets codes be of both signs, as the prior's are: features behind a ReLU are never below 0, and no
    weight of J makes them look like the prior. It starts as the identity, and is folded into the head when the net is
    deployed. `features` is without it.

    The weights and bandwidths are those of a public re-implementation (github.com/YuqiCui/MMD_AAE), not known to be
    the paper's, and so are the linear code, the square of the MMD and the mean over bandwidths. Its classifier has a
    hidden layer on the code, ours has none.

    P and G have one hidden layer. The squared error is a mean over the numbers of an input, as it enters the net. Of
    networks that begin with a convolution, P restores only the image averaged over 8 x 8 equal fields: a decoder of
    whole photographs would be larger than the net. There this is MMD-AAE with a coarse decoder, and not the published
    experiment, which has features as inputs.

    reconstruction: weight of the mean squared error of restored inputs.
    mmd: weight of the discrepancy between domains.
    adversary: weight of J, how strongly codes learn to look like the prior.
    form: of J, non-saturating or minimax.
    code: linear, or the features themselves.
    unit: squared length by which the kernels' bandwidths are measured; codes of a wide layer lie far apart.
    hidden: units of the hidden layers of the decoder and the discriminator.
    """

    reconstruction: Number = setting(0.1, least=0.0, search=Range(0.01, 10.0))
    mmd: Number = setting(2.0, least=0.0, search=Range(0.01, 10.0))
    adversary: Number = setting(0.1, least=0.0, search=Range(0.001, 1.0))
    form: str = setting("non-saturating", choices=("non-saturating", "minimax"))
    unit: Number = setting(1.0, above=0.0, search=Range(1.0, 1000.0))
    hidden: int = setting(100, least=1)
    code: str = setting("linear", choices=("linear", "features"), added="features")
    needs: ClassVar[int] = 2
    needs_features: ClassVar[bool] = True

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        code, restored = head.shape[1], layers.count_restored(params)
        start = {name: torch.eye(code) if name == net.head_names[0] else torch.zeros(code) for name in net.head_names}
        return {
            **params,
            **(
                tree.with_prefix({name: w.to(head) for name, w in start.items()}, CODE) if self.code == "linear" else {}
            ),
            **layers.two_layer_params("decoder.", code, self.hidden, restored, generator, head),
            **layers.two_layer_params("discriminator.", code, self.hidden, 1, generator, head),
        }

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        code = self.encode(params, net.domain_features(params, episode))
        wanted = layers.flatten_input(episode.x, params["decoder.output.bias"].shape[0], "MMD-AAE")
        restored = layers.two_layer(params, "decoder.", code)
        prior = noise.laplace(episode.key, code.shape, code.dtype)
        real = layers.two_layer(params, "discriminator.", prior)
        fake = layers.two_layer(params, "discriminator.", code.detach())
        seen = layers.two_layer(tree.detach(params), "discriminator.", code)  # log(1 - G) = -softplus(seen)
        deceit = softplus(-seen).mean() if self.form == "non-saturating" else -softplus(seen).mean()
        return (
            layers.label_loss(net, params, code, episode.y)
            + self.reconstruction * ((restored - wanted) ** 2).mean()
            + self.mmd * discrepancy(code, self.unit)
            + self.adversary * deceit
            + softplus(-real).mean()
            + softplus(fake).mean()
        )

    def encode(self, params: Params, features: Tensor) -> Tensor:
        if self.code == "features":
            return features
        return affine(features, *sorted(tree.under_prefix(params, CODE).values(), key=lambda w: -w.dim()))

    def deploy(self, params: Params, memory: Params) -> Params:
        kept = params
        for prefix in (CODE, "decoder.", "discriminator."):
            kept = tree.without_prefix(kept, prefix)
        if self.code == "features":
            return kept
        linear = tree.under_prefix(params, CODE)
        weight = next(name for name, w in linear.items() if w.dim() == 2)
        shifts = {name: kept[name] + kept[weight] @ shift for name, shift in linear.items() if name != weight}
        return {**kept, weight: kept[weight] @ linear[weight], **shifts}


def discrepancy(code: Tensor, unit: Number = 1.0) -> Tensor:
    """Return the mean over all pairs of domains of the squared MMD between their codes (domain, batch, width)."""
    domains, batch, _ = code.shape
    rows = code.flatten(0, 1)
    squares = (rows**2).sum(1)
    distances = (squares.unsqueeze(1) + squares.unsqueeze(0) - 2.0 * rows @ rows.T) / unit
    kernel = torch.stack([torch.exp(-distances / (2.0 * s)) for s in BANDWIDTHS]).mean(0)
    means = kernel.reshape(domains, batch, domains, batch).mean((1, 3))
    return 2.0 * (means.diagonal().mean() - means.mean())
