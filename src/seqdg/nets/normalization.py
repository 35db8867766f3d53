"""The scale of the pixels that a net expects."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalization:
    """(image - mean) / std per channel, for images in [0, 1]. The default changes nothing."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, images: Tensor) -> Tensor:  # (..., channel, height, width)
        return (images - expand_channels(self.mean, images)) / expand_channels(self.std, images)


def expand_channels(values: tuple[float, ...], like: Tensor) -> Tensor:
    """Return the values as (channel, 1, 1), filled in on the device: a CUDA graph captures no copy from the host."""
    return torch.stack([torch.full((1, 1), v, dtype=like.dtype, device=like.device) for v in values])


IMAGENET = Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""What torchvision's weight files expect."""

LITE0 = Normalization(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
"""(pixel - 127) / 128."""
