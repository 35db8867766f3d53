"""Images as a net wants them, batched on their device: resized and scaled, and for training changed at random.

The usual recipe for PACS: a random crop resized to the net's size, a mirror image half of the time, jitter of
brightness, contrast, saturation and hue, and now and then no color at all. Whatever is random comes from the key of the
step, so a trial sees the same images alone and in a stack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from seqdg.base import UsageError, fold, uniform, unknown
from seqdg.data import pixels
from seqdg.kernels import can_run_kernels
from seqdg.nets import Normalization, expand_channels

_STREAM = 0x696D6167  # sets these draws apart from what an algorithm draws from the same key


@dataclass(frozen=True)
class Augment:
    """Strengths of the random changes; at 0, and a scale of 1 to 1, none is made.

    scale: area of the crop as a part of the image, from and to.   ratio: its width over height, 1/ratio to ratio.
    flip, grayscale: probabilities.   brightness, contrast, saturation: s, for a factor from max(0, 1 - s) to 1 + s.
    hue: a turn of -hue to hue of the color circle.   Color changes are made in the order of the fields.
    """

    scale: tuple[float, float] = (0.8, 1.0)
    ratio: float = 4 / 3
    flip: float = 0.5
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.4
    grayscale: float = 0.1

    def __post_init__(self) -> None:
        low, high = self.scale
        if not 0 < low <= high <= 1:
            raise UsageError(
                f"The scale of a random crop is two parts of the image, 0 < from <= to <= 1, not {low, high}."
            )
        if self.ratio < 1:
            raise UsageError(f"The ratio of a random crop is a bound of at least 1, not {self.ratio}.")
        most = {"flip": 1.0, "grayscale": 1.0, "hue": 0.5}
        for field in fields(self)[2:]:
            value, bound = getattr(self, field.name), most.get(field.name, math.inf)
            if not 0 <= value <= bound:
                allowed = "at least 0" if bound == math.inf else f"from 0 to {bound}"
                raise UsageError(f"The {field.name} of an augmentation is {allowed}, not {value}.")

    @property
    def changes_color(self) -> bool:
        return any((self.brightness, self.contrast, self.saturation, self.hue, self.grayscale))


RECIPES = {
    "pacs": Augment(),
    "domainbed": Augment(scale=(0.7, 1.0), brightness=0.3, contrast=0.3, saturation=0.3, hue=0.3),
}


def find_augmentation(name: str) -> Augment | None:
    """Return the augmentation that a benchmark file names; None for the empty name."""
    if name and name not in RECIPES:
        raise unknown("augmentation", name, RECIPES)
    return RECIPES.get(name)


@dataclass(frozen=True)
class ImageTransform:
    """Turns stored images into the inputs of a net, in training and in serving."""

    size: int
    normalization: Normalization = Normalization()
    recipe: Augment | None = None

    @property
    def is_random(self) -> bool:
        """Whether training changes images at random. If not, it sees them as serving does."""
        return self.recipe is not None

    def train(self, x: Tensor, key: Tensor) -> Tensor:
        if self.recipe is None:
            return self.serve(x)
        whole = _augment_by_kernels(x, key, self.recipe, self.size, self.normalization)
        return self.normalization(augment(x, key, self.recipe, self.size)) if whole is None else whole

    def serve(self, x: Tensor) -> Tensor:
        return prepare(x, self.size, self.normalization)


def prepare(images: Tensor, size: int, normalization: Normalization) -> Tensor:
    """Resize images (..., channel, height, width) to `size` pixels a side, scale them to [0, 1], and normalize them."""
    x = pixels.scale_to_unit(images)
    if x.shape[-2:] != (size, size):
        flat = x.reshape(-1, *x.shape[-3:])
        flat = interpolate(flat, size=(size, size), mode="bilinear", align_corners=False)
        x = flat.reshape(*x.shape[:-2], size, size)
    return normalization(x)


def augment(images: Tensor, key: Tensor, recipe: Augment, size: int = 224) -> Tensor:
    """Change each image by draws of its own; the result is in [0, 1].

    images: (..., channel, height, width), uint8, or float in [0, 1].   key: int64, without dimensions.
    """
    if recipe.changes_color and images.shape[-3] != 3:
        raise UsageError(
            f"Changes of color need images of 3 channels, and these have {images.shape[-3]}. Set them to 0."
        )
    x = pixels.scale_to_unit(images).reshape(-1, *images.shape[-3:])
    window, (mirror, brightness, contrast, saturation, hue, gray) = _draw_amounts(x.shape, key, recipe, x.dtype)
    x = pixels.crop(x, size, window, mirror=mirror)
    if recipe.brightness:
        x = pixels.adjust_brightness(x, brightness)
    if recipe.contrast:
        x = pixels.adjust_contrast(x, contrast)
    if recipe.saturation:
        x = pixels.adjust_saturation(x, saturation)
    if recipe.hue:
        x = pixels.adjust_hue(x, hue)
    if recipe.grayscale:
        x = pixels.remove_color(x, gray)
    return x.reshape(*images.shape[:-2], size, size)


def _draw_amounts(
    shape: Sequence[int], key: Tensor, recipe: Augment, dtype: torch.dtype
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]]:
    """Draw the window and how much of every change, for images of a shape (image, channel, height, width)."""
    # Each kind of change has its own row of draws, so leaving one out of the recipe leaves the others as they were.
    draws = uniform(fold(key, _STREAM), (10, shape[0]), dtype=dtype)
    mirror, brightness, contrast, saturation, hue, gray = draws[4:].unbind(0)
    changes = (
        mirror < recipe.flip,
        _scale_draw(recipe.brightness, brightness),
        _scale_draw(recipe.contrast, contrast),
        _scale_draw(recipe.saturation, saturation),
        recipe.hue * (2 * hue - 1),
        gray < recipe.grayscale,
    )
    return _draw_window(shape, recipe, draws[:4]), changes


def _augment_by_kernels(images: Tensor, key: Tensor, recipe: Augment, size: int, scale: Normalization) -> Tensor | None:
    """Augment and normalize in two passes over memory. None if the kernels cannot run here."""
    if images.dtype != torch.uint8 or images.shape[-3] != 3 or not can_run_kernels(images):
        return None
    from seqdg.kernels import augment_images

    flat = images.reshape(-1, *images.shape[-3:]).contiguous()
    window, changes = _draw_amounts(flat.shape, key, recipe, torch.float32)
    amounts = torch.stack([*window, *(c.to(torch.float32) for c in changes)])
    scales = torch.cat([expand_channels(values, amounts).flatten().expand(3) for values in (scale.mean, scale.std)])
    makes = (recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue, recipe.grayscale)
    out = augment_images(flat, amounts, scales, size, tuple(bool(m) for m in makes))
    return out.reshape(*images.shape[:-2], size, size)


def _draw_window(of: Sequence[int], recipe: Augment, draws: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw crops that lie inside the image: top, left, height, width (image,), as parts of its sides.

    The area is uniform, and the logarithm of the ratio is uniform among those that fit. (torchvision draws both again
    until they fit, which can give the same crops but prefers the small ones.)
    """
    area, shape, top, left = draws.unbind(0)
    low, high = recipe.scale
    part = low + (high - low) * area
    fits = -torch.log(part)  # the logarithm of width over height, in parts of the sides, is from -fits to fits
    bound, tall = math.log(recipe.ratio), math.log(of[-2] / of[-1])
    lower = torch.minimum((-fits).clamp(min=tall - bound), fits)
    upper = torch.maximum(fits.clamp(max=tall + bound), -fits)
    ratio = torch.exp(lower + (upper - lower) * shape)
    height, width = torch.sqrt(part / ratio), torch.sqrt(part * ratio)
    return top * (1 - height), left * (1 - width), height, width


def _scale_draw(strength: float, draw: Tensor) -> Tensor:
    low, high = max(0.0, 1 - strength), 1 + strength
    return low + (high - low) * draw
