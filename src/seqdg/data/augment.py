"""Images as a neural network wants them, batched on their device: resized, scaled, and in training changed at random.

The usual recipe for PACS: a random crop resized to the network's size, a mirror image half of the time, jitter of
brightness, contrast, saturation and hue, and now and then no color at all. Whatever is random comes from the key of the
step, so a trial sees the same images alone and in a stack.

The changes themselves, from `crop` on, are those of torchvision. Each takes images (image, channel, height, width) in
[0, 1] and an amount for each (image,). Nothing there is random, in place, or dependent on the values of a tensor, so
all of it may be batched by `torch.func.vmap` and captured in a CUDA graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from seqdg.base import UsageError, fold, hash_own_code, import_function, uniform, unknown
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


class OwnAugment(NamedTuple):
    """A function of the user's: of images (image, channel, height, width) in [0, 1] and a key, it returns as many of
    the same size. Like all of this it draws from the key alone, and branches on no value."""

    function: Callable[[Tensor, Tensor], Tensor]
    location: str


def find_augmentation(name: str) -> Augment | OwnAugment | None:
    """Return the augmentation that a benchmark file names, or the user's own by file.py:function; None for the empty
    name."""
    if ":" in name:
        return OwnAugment(import_function(name, "augment"), name)
    if name and name not in RECIPES:
        raise unknown("augmentation", name, (*RECIPES, "FILE.py:FUNCTION"))
    return RECIPES.get(name)


def describe_augmentation(name: str) -> str:
    """Return the name as records have it: of the user's own without its folder, and with the hash of its code."""
    own = find_augmentation(name)
    if not isinstance(own, OwnAugment):
        return name
    short = re.split(r"[/\\]", name)[-1]
    return f"{short} ({hash_own_code([own.function])[:12]})"


@dataclass(frozen=True)
class ImageTransform:
    """Turns stored images into the inputs of a net, in training and in serving."""

    size: int
    normalization: Normalization = Normalization()
    recipe: Augment | OwnAugment | None = None

    @property
    def is_random(self) -> bool:
        """Whether training changes images at random. If not, it sees them as serving does."""
        return self.recipe is not None

    def train(self, x: Tensor, key: Tensor) -> Tensor:
        if self.recipe is None:
            return self.serve(x)
        if isinstance(self.recipe, OwnAugment):
            return self.normalization(self._change(self.recipe, x, key))
        whole = _augment_by_kernels(x, key, self.recipe, self.size, self.normalization)
        return self.normalization(augment(x, key, self.recipe, self.size)) if whole is None else whole

    def _change(self, own: OwnAugment, x: Tensor, key: Tensor) -> Tensor:
        plain = prepare(x, self.size, Normalization())
        flat = plain.reshape(-1, *plain.shape[-3:])
        changed = own.function(flat, fold(key, _STREAM))
        if not isinstance(changed, Tensor) or changed.shape != flat.shape:
            got = list(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            raise UsageError(
                f"{own.location} is given images of shape {list(flat.shape)} and returns {got}: let it return as many "
                "images of the same size."
            )
        return changed.reshape(plain.shape)

    def serve(self, x: Tensor) -> Tensor:
        return prepare(x, self.size, self.normalization)


def prepare(images: Tensor, size: int, normalization: Normalization) -> Tensor:
    """Resize images (..., channel, height, width) to `size` pixels a side, scale them to [0, 1], and normalize them."""
    x = scale_to_unit(images)
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
    x = scale_to_unit(images).reshape(-1, *images.shape[-3:])
    window, (mirror, brightness, contrast, saturation, hue, gray) = _draw_amounts(x.shape, key, recipe, x.dtype)
    x = crop(x, size, window, mirror=mirror)
    if recipe.brightness:
        x = adjust_brightness(x, brightness)
    if recipe.contrast:
        x = adjust_contrast(x, contrast)
    if recipe.saturation:
        x = adjust_saturation(x, saturation)
    if recipe.hue:
        x = adjust_hue(x, hue)
    if recipe.grayscale:
        x = remove_color(x, gray)
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


def _draw_window(sides: Sequence[int], recipe: Augment, draws: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw crops that lie inside the image: top, left, height, width (image,), as parts of its sides.

    The area is uniform, and the logarithm of the ratio is uniform among those that fit. (torchvision draws both again
    until they fit, which can give the same crops but prefers the small ones.)
    """
    area, shape, top, left = draws.unbind(0)
    low, high = recipe.scale
    part = low + (high - low) * area
    fits = -torch.log(part)  # the logarithm of width over height, in parts of the sides, is from -fits to fits
    bound, tall = math.log(recipe.ratio), math.log(sides[-2] / sides[-1])
    lower = torch.minimum((-fits).clamp(min=tall - bound), fits)
    upper = torch.maximum(fits.clamp(max=tall + bound), -fits)
    ratio = torch.exp(lower + (upper - lower) * shape)
    height, width = torch.sqrt(part / ratio), torch.sqrt(part * ratio)
    return top * (1 - height), left * (1 - width), height, width


def _scale_draw(strength: float, draw: Tensor) -> Tensor:
    low, high = max(0.0, 1 - strength), 1 + strength
    return low + (high - low) * draw


def scale_to_unit(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Scale bytes to floats in [0, 1]; floats are returned as they are."""
    return images if images.is_floating_point() else images.to(dtype) / 255


def crop(x: Tensor, size: int, window: tuple[Tensor, Tensor, Tensor, Tensor], mirror: Tensor) -> Tensor:
    """Resize a window (top, left, height, width, as parts of the sides) to `size`, mirrored where `mirror` says so."""
    top, left, height, width = (side[:, None] for side in window)
    along = (torch.arange(size, dtype=x.dtype, device=x.device) + 0.5) / size
    rows = top + height * along  # (image, size)
    columns = left + width * torch.where(mirror[:, None], 1 - along, along)
    shape = (x.shape[0], size, size)
    grid = torch.stack([columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
    return grid_sample(x, 2 * grid - 1, mode="bilinear", padding_mode="border", align_corners=False)


def compute_luma(x: Tensor) -> Tensor:
    """Compute the brightness (image, 1, height, width) as the eye perceives it (ITU-R BT.601)."""
    red, green, blue = x.unbind(-3)
    return (0.299 * red + 0.587 * green + 0.114 * blue).unsqueeze(-3)


def adjust_brightness(x: Tensor, factor: Tensor) -> Tensor:
    return (expand_per_image(factor) * x).clamp(0, 1)


def adjust_contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Move the pixels away from, or towards, the mean brightness of the image."""
    mean = compute_luma(x).mean((-3, -2, -1), keepdim=True)
    return (mean + expand_per_image(factor) * (x - mean)).clamp(0, 1)


def adjust_saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Move the pixels away from, or towards, the same image without color."""
    gray = compute_luma(x)
    return (gray + expand_per_image(factor) * (x - gray)).clamp(0, 1)


def adjust_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the colors by a part of the circle of hues, at the same saturation and value (HSV)."""
    red, green, blue = x.unbind(-3)
    most, least = x.amax(-3), x.amin(-3)
    chroma = most - least
    divisor = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    sixths = torch.where(
        most == red,
        (green - blue) / divisor,
        torch.where(most == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    sixths = torch.remainder(sixths + 6 * turn[:, None, None], 6)  # red at 0, green at 2, blue at 4
    shares = ((sixths - 3).abs() - 1, 2 - (sixths - 2).abs(), 2 - (sixths - 4).abs())
    return torch.stack([least + chroma * share.clamp(0, 1) for share in shares], dim=-3)


def remove_color(x: Tensor, chosen: Tensor) -> Tensor:
    """Make the chosen images gray, in as many channels as before."""
    return torch.where(expand_per_image(chosen), compute_luma(x).expand_as(x), x)


def expand_per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]
