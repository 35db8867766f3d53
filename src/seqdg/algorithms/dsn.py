"""DSN: what domains share and what is private to each, separated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import normalize

from seqdg.algorithms import _branches as branches
from seqdg.algorithms import _layers as layers
from seqdg.algorithms import _penalties as penalties
from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("dsn")
@dataclass(frozen=True)
class DSN(Algorithm):
    """Domain separation networks (Bousmalis, Trigeorgis, Silberman, Krishnan and Erhan, NIPS 2016).

    The net below its head is the shared encoder, s = E(x); every source domain has a private one, p = E_i(x), of one
    hidden layer. The head classifies s, a decoder F restores the input from both, codes s are alike in all domains, and
    p holds what s does not:

        L = 1/N * sum over i of l(D_i, s) + alpha * R_i + beta * D_i,   + gamma * similarity
        R_i = mean over rows of mean of e^2 - (mean of e)^2,   e = F(s + p) - x, over the numbers of an input
        D_i = || S_i' P_i ||_F^2 / batch^2,   rows of S_i and P_i less their mean, then of length 1

    R is blind to an error that is the same for all numbers of an input. D is 0 where shared and private codes vary
    without correlation. The similarity is by an adversary, a classifier of the domains that learns from s by its loss,
    and s against it (dann), or the MMD between domains, with the kernels of `mmd`.

    The paper adapts to one unlabelled target; here all domains are labelled sources. Rows are centred and of length 1
    as in the authors' code (tensorflow/models, domain_separation), where a mean over the entries of S' P stands in
    place of the division by batch^2. The weights are those of a public re-implementation (github.com/fungtion/DSN), not
    known to be the paper's. The similarity acts from the start. Private encoders and decoder are small, with one
    hidden layer; of networks that begin with a convolution they see and restore only the image averaged over 8 x 8
    equal fields.

    alpha: weight of the reconstruction.
    beta: weight of the difference.
    gamma: weight of the similarity.
    similarity: dann or mmd.
    hidden: units of the hidden layers of private encoders, decoder and domain classifier.
    """

    alpha: Number = setting(0.01, least=0.0, search=Range(0.001, 1.0))
    beta: Number = setting(0.075, least=0.0, search=Range(0.001, 1.0))
    gamma: Number = setting(0.25, least=0.0, search=Range(0.01, 1.0))
    similarity: str = setting("dann", choices=("dann", "mmd"))
    hidden: int = setting(100, least=1)
    needs: ClassVar[int] = 2
    needs_features: ClassVar[bool] = True

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head, width = params[net.head_names[0]], layers.count_restored(params)
        code = head.shape[1]
        private = [
            layers.two_layer_params("private.", width, self.hidden, code, generator, head) for _ in range(sources)
        ]
        added = {
            **tree.with_prefix(tree.stack(private), branches.PREFIX),
            **layers.two_layer_params("decoder.", code, self.hidden, width, generator, head),
        }
        if self.similarity == "dann":
            added |= layers.two_layer_params("domain.", code, self.hidden, sources, generator, head)
        return {**params, **added}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        x = layers.flatten_input(episode.x, params["decoder.output.bias"].shape[0], "DSN")
        shared = net.domain_features(params, episode)
        encoders = branches.order_copies(params, episode.domain)
        private = vmap(lambda encoder, rows: layers.two_layer(encoder, "private.", rows))(encoders, x)
        error = layers.two_layer(params, "decoder.", shared + private) - x
        if self.similarity == "dann":
            guess = layers.two_layer(params, "domain.", layers.reverse(shared, 1.0))
            unlike = layers.domain_loss(guess, episode.domain)
        else:
            unlike = penalties.compute_discrepancy(shared)
        return (
            layers.label_loss(net, params, shared, episode.y)
            + self.alpha * error.var(-1, unbiased=False).mean()
            + self.beta * compare_codes(shared, private)
            + self.gamma * unlike
        )

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(tree.without_prefix(branches.select_shared(params), "decoder."), "domain.")


def compare_codes(shared: Tensor, private: Tensor) -> Tensor:
    """Return the mean over domains of D, from codes (domain, batch, code)."""
    one, other = (normalize(code - code.mean(1, keepdim=True), dim=-1) for code in (shared, private))
    return ((one.mT @ other / shared.shape[1]) ** 2).sum((1, 2)).mean()
