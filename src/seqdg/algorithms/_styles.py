"""The style of what passes a point of a net: mean and deviation of each channel of each row over its positions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from seqdg.base import Episode, UsageError, noise
from seqdg.nets import Net

EPSILON = 1e-6


def choose_points(net: Net, which: str, kind: str) -> tuple[str, ...]:
    """Return the points that a setting names: `all`, or some with commas between them."""
    names = net.points if which == "all" else tuple(name.strip() for name in which.split(",") if name.strip())
    if not names:
        raise UsageError(
            f"{kind} acts between the layers of a net, but this one has no points there: take one of seqdg's nets or "
            "of timm's, or put a seqdg.nets.Point where it should act."
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
    own_mean, own_deviation = measure_style(h)
    return (h - own_mean) / own_deviation * deviation + mean


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
