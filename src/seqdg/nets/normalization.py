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
        return (images - per_channel(self.mean, images)) / per_channel(self.std, images)


def per_channel(values: tuple[float, ...], like: Tensor) -> Tensor:
    """(channel, 1, 1), written on the device: a copy from the host cannot be captured in a CUDA graph."""
    return torch.stack([torch.full((1, 1), v, dtype=like.dtype, device=like.device) for v in values])


IMAGENET = Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""torchvision's weight files."""

LITE0 = Normalization(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
"""(pixel - 127) / 128."""
