"""What is said of a backbone: how it is built, which pictures or texts it reads, and where its weights are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


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

PICTURES, TEXTS = "pictures", "texts"  # what a backbone reads
Shape = tuple[int, ...]
Make = Callable[[Shape, int, float], nn.Module]  # of an input's shape, the classes (0: features) and dropout


@dataclass(frozen=True)
class Backbone:
    """A network that is known by name, with a linear head or, of no classes, without one.

    size, resampling: of the pictures whose features are extracted; a benchmark has its own size.
    smallest: side of a picture in pixels.
    public_weights: the file to get, for people.
    find_weights: where it is, in an installed package, in the cache of the hub or after a download.
    head: how the names of the head's weights begin in weight files.
    adapt: gives the tensors of a file the names of the module, where others have other names.
    load: reads weight files in a way of its own, in place of `adapt`.
    draws: whether building it draws first weights from torch's global random state.
    """

    name: str
    make: Make
    normalization: Normalization = field(default_factory=Normalization)
    size: int = 224
    resampling: str = "bilinear"
    smallest: int = 1
    reads: str = PICTURES
    public_weights: str = ""
    find_weights: Callable[[], Path] | None = None
    dropout: float = 0.0  # as published
    head: str = ""
    adapt: Callable[[nn.Module, dict[str, Tensor]], dict[str, Tensor]] | None = None
    load: Callable[[nn.Module, Path], str] | None = None
    draws: bool = False
    folder: Path | None = None  # of a model of transformers, with its tokenizer

    def describe(self) -> dict[str, Any]:
        """Return how inputs are prepared, as JSON holds it."""
        if self.reads == TEXTS:
            return {"reads": TEXTS}
        scale = {"mean": list(self.normalization.mean), "std": list(self.normalization.std)}
        return {"reads": PICTURES, "size": self.size, "resampling": self.resampling, **scale}
