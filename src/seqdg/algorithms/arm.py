"""ARM: adaptive risk minimization, by a context net."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, UsageError
from seqdg.core import Algorithm, register, setting
from seqdg.nets import Net

KERNEL = 5


@register("arm")
@dataclass(frozen=True)
class ARM(Algorithm):
    """Adaptive risk minimization by contextual meta-learning, ARM-CML (Zhang et al., NeurIPS 2021).

    A context network c reads the unlabelled rows of a domain; the mean of its outputs is added to the input.
    Both learn to do well after this adaptation:

        context_i = mean of c(x) over the minibatch of D_i
        L(w, c) = 1/N * sum over i of l(D_i, f(x + context_i, w))

    In the paper the context is one more channel of the input. Here it has the form of the input and is added to it, so
    that it enters any net, a pretrained one too. The last layer of c begins at zero, so the training begins as AGG's.
    For images c has three convolutions of 5 x 5, as in DomainBed but without BatchNorm; for vectors one hidden layer.
    An unseen domain's context is the mean over the rows that are predicted together: it is transductive.

    width: channels, or units, of the hidden layers of the context net.
    """

    width: int = setting(64, least=1)
    together: ClassVar[int] = 32

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        if not any(_reads_input(name, w) for name, w in net.params().items()):
            raise UsageError(
                "ARM adds a context to the input of the first linear or convolutional layer, but this net trains none: "
                "let it be trained, or choose another algorithm, such as agg."
            )

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        first = next(w for name, w in params.items() if _reads_input(name, w))
        inputs, kernel = first.shape[1], (KERNEL,) * (first.dim() - 2)
        sizes = [inputs, self.width, self.width, inputs] if kernel else [inputs, self.width, inputs]
        extra: Params = {}
        for i, (into, out) in enumerate(pairwise(sizes)):
            drawn = layers.linear_params(f"context.{i}.", into * KERNEL ** len(kernel), out, generator, first)
            extra |= {name: w.reshape(out, into, *kernel) if w.dim() > 1 else w for name, w in drawn.items()}
        last = f"context.{len(sizes) - 2}."
        return {**params, **{n: torch.zeros_like(w) if n.startswith(last) else w for n, w in extra.items()}}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        context = compute_context(params, episode.x.flatten(0, 1)).reshape(episode.x.shape)
        return net.losses(params, episode._replace(x=episode.x + context.mean(1, keepdim=True))).mean()

    def statistics(self, net: Net, deployed: Params, x: Tensor) -> Params:
        return net.statistics(deployed, adapt(deployed, x))

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        return net(deployed, adapt(deployed, x))


def adapt(params: Params, x: Tensor) -> Tensor:
    """Return rows of one domain with their context."""
    return x + compute_context(params, x).mean(0, keepdim=True)


def compute_context(params: Params, x: Tensor) -> Tensor:
    """Return what the context net says of each row, in the form of the row."""
    weights = [params[name] for name in sorted(params) if name.startswith("context.") and name.endswith("weight")]
    biases = [params[name] for name in sorted(params) if name.startswith("context.") and name.endswith("bias")]
    out = x.flatten(1) if weights[0].dim() == 2 else x
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        out = torch.relu(out) if i else out
        out = out @ w.T + b if w.dim() == 2 else conv2d(out, w, b, padding=KERNEL // 2)
    return out.reshape(x.shape)


def _reads_input(name: str, weight: Tensor) -> bool:
    return name.endswith("weight") and weight.dim() in (2, 4)
