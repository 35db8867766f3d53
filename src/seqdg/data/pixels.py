"""Changes to images (image, channel, height, width) in [0, 1], each image by its own amount (image,).

The definitions are torchvision's. Nothing here is random, in place, or dependent on the values of a tensor, so all of
it may be batched by `torch.func.vmap` and captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


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
