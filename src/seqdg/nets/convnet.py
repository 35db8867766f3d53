"""A convolutional net for small images that trains in seconds on a CPU: two convolutions, a hidden layer, the head.

Each convolution halves the resolution. There is no normalization: its maps keep the contrast of a domain.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from seqdg.base import UsageError
from seqdg.nets.points import Point

CHANNELS, HIDDEN = (8, 16), 64


def convnet(shape: tuple[int, ...], classes: int, dropout: float = 0.0) -> nn.Module:
    """Make the net for images (channel, height, width), or for gray square ones whose pixels are in one row.

    Points are after the first and the second convolution and its ReLU.
    """
    channels, height, width = read_shape(shape)
    sides = [-(-side // 4) for side in (height, width)]
    return nn.Sequential(
        OrderedDict(
            image=nn.Unflatten(1, (channels, height, width)) if len(shape) == 1 else nn.Identity(),
            conv1=nn.Conv2d(channels, CHANNELS[0], 5, stride=2, padding=2),
            relu1=nn.ReLU(),
            after1=Point("after1"),
            conv2=nn.Conv2d(CHANNELS[0], CHANNELS[1], 3, stride=2, padding=1),
            relu2=nn.ReLU(),
            after2=Point("after2"),
            flatten=nn.Flatten(),
            linear=nn.Linear(CHANNELS[1] * math.prod(sides), HIDDEN),
            relu3=nn.ReLU(),
            dropout=nn.Dropout(dropout),
            head=nn.Linear(HIDDEN, classes),
        )
    )


def read_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width of these inputs."""
    side = math.isqrt(shape[0])
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 1 and side**2 == shape[0]:
        return 1, side, side
    raise UsageError(
        f"convnet reads images (channel, height, width), or square ones with their pixels in one row, and these inputs "
        f"are {shape}. Use an mlp for them."
    )
