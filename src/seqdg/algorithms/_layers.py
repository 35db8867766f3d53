"""Layers that algorithms add to a net, and what they do between its layers.

Added layers are entries of the dictionary of weights under a prefix of their own. A decoder restores inputs as vectors:
whole, or of images their means over equal fields. The style of what passes a point of a net is the mean and deviation
of each channel of each row over its positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy
from torch.nn.functional import linear as affine

from seqdg.base import Episode, Params, UsageError, noise
from seqdg.core import Number
from seqdg.nets import Net

FIELDS = 8  # along a side of an image, over which it is averaged before it is restored
EPSILON = 1e-6


def linear_params(prefix: str, inputs: int, outputs: int, generator: torch.Generator, like: Tensor) -> Params:
    """Draw the first weights of a linear layer by torch's rule, uniform within ±1/√inputs; made like `like`."""
    bound = 1.0 / math.sqrt(inputs)

    def draw(*shape: int) -> Tensor:
        return ((2.0 * torch.rand(*shape, generator=generator) - 1.0) * bound).to(like)

    return {f"{prefix}weight": draw(outputs, inputs), f"{prefix}bias": draw(outputs)}


def linear(params: Params, prefix: str, z: Tensor) -> Tensor:
    return affine(z, params[f"{prefix}weight"], params[f"{prefix}bias"])


def two_layer_params(
    prefix: str, inputs: int, hidden: int, outputs: int, generator: torch.Generator, like: Tensor
) -> Params:
    """Draw the first weights of a net with one hidden layer."""
    return {
        **linear_params(f"{prefix}hidden.", inputs, hidden, generator, like),
        **linear_params(f"{prefix}output.", hidden, outputs, generator, like),
    }


def two_layer(params: Params, prefix: str, z: Tensor) -> Tensor:
    return linear(params, f"{prefix}output.", torch.tanh(linear(params, f"{prefix}hidden.", z)))


def reverse(x: Tensor, factor: Number) -> Tensor:
    """Return x itself, whose gradient is -factor times what arrives (Ganin and Lempitsky's gradient reversal)."""
    return x.detach() + factor * (x.detach() - x)


def label_loss(net: Net, params: Params, z: Tensor, y: Tensor) -> Tensor:
    """Return the label loss of features (domain, batch, feature): the mean over the domains, as in AGG."""
    return net.losses_from_logits(net.head(params, z), y).mean()


def domain_loss(logits: Tensor, domain: Tensor) -> Tensor:
    """Return the mean cross-entropy of (domain, batch, source) logits that name the source of each row."""
    return cross_entropy(logits.flatten(0, 1), domain.repeat_interleave(logits.shape[1]))


def one_hot(y: Tensor, logits: Tensor) -> Tensor:
    """Return (..., class) 1 at each row's label and 0 elsewhere, made like the logits (..., class)."""
    return (y.unsqueeze(-1) == torch.arange(logits.shape[-1], device=y.device)).to(logits.dtype)


def check_head(net: Net, kind: str) -> None:
    """Raise a UsageError where the net has no head."""
    if not net.head_names:
        raise UsageError(
            f"{kind} works on the features that enter the head, but this net does not end in a linear layer: "
            "end it in one, or choose another algorithm, such as agg."
        )


def count_restored(params: Params) -> int:
    """Count the numbers that are restored of an input, by the layer that it enters: all, or those of pooled images."""
    first = next(w for name, w in params.items() if name.endswith("weight") and w.dim() > 1)
    return math.prod([first.shape[1], *[FIELDS] * (first.dim() - 2)])


def flatten_input(x: Tensor, width: int, kind: str) -> Tensor:
    """Return inputs (domain, batch, *input) as (domain, batch, width), images averaged over fields where that fits."""
    flat = x.flatten(2)
    if flat.shape[2] != width and x.dim() == 5 and x.shape[2] * FIELDS**2 == width:
        flat = adaptive_avg_pool2d(x.flatten(0, 1), FIELDS).reshape(*x.shape[:2], width)
    if flat.shape[2] != width:
        raise UsageError(
            f"{kind} restores inputs of {width} numbers, by the net's first layer, but these have {flat.shape[2]}: "
            "give it a net whose first layer takes the whole input, or an image, or choose another algorithm."
        )
    return flat


def choose_points(net: Net, which: str, kind: str) -> tuple[str, ...]:
    """Return the points that a setting names: `all`, or some with commas between them."""
    names = net.points if which == "all" else tuple(name.strip() for name in which.split(",") if name.strip())
    if not names:
        raise UsageError(
            f"{kind} acts between the layers of a network, but this one has no points there: take one of seqdg's "
            "networks or of timm's, or put a seqdg.nets.Point where it should act."
        )
    net.with_points(dict.fromkeys(names, pass_on))  # raises where the net lacks one
    return names


def pass_on(h: Tensor) -> Tensor:
    return h


def measure_style(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation over the positions of h (row, channel, ...) or, of tokens, (row, position, channel); of
    vectors, or where there is only one position, over their entries."""
    axes = tuple(range(2, h.dim())) if h.dim() > 3 else (1,)
    if math.prod(h.shape[axis] for axis in axes) == 1:
        axes = tuple(range(1, h.dim()))
    mean = h.mean(axes, keepdim=True)
    return mean, torch.sqrt(h.var(axes, keepdim=True) + EPSILON)


def restyle(h: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Return h with another style."""
    old_mean, old_deviation = measure_style(h)
    return (h - old_mean) / old_deviation * deviation + mean


def shuffle_rows(key: Tensor, h: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function that puts rows into one random order."""
    order = noise.uniform(key, (h.shape[0],)).argsort()
    return lambda values: values.index_select(0, order)


def roll_domains(domains: int) -> Callable[[Tensor], Tensor]:
    """Return the function that gives each domain of the path the rows of the next, and the last those of the first."""
    return lambda values: values.roll(-(values.shape[0] // domains), 0)


def draw_key(episode: Episode, stream: int, number: int) -> Tensor:
    """Return a key for what one algorithm (its stream) draws at one of its points in this step."""
    return noise.fold(episode.key ^ (stream << 8), number)
