"""Inputs of a net as vectors that a decoder can restore: whole, or of images their means over equal fields."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from seqdg.base import Params, UsageError

FIELDS = 8  # along a side of an image, over which it is averaged before it is restored


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
