"""Each change of an image against a literal computation, pixel by pixel."""

from __future__ import annotations

import colorsys

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from seqdg.data import augment as pixels


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 3, 5, 6, generator=generator, dtype=torch.float64)
    x[0, :, 0, 0] = 0.3  # gray: no hue
    x[0, :, 0, 1] = 0.0
    x[0, :, 0, 2] = 1.0
    x[0, :, 0, 3] = torch.tensor([0.7, 0.7, 0.1])  # two largest channels
    return x


@pytest.fixture
def amounts() -> Tensor:
    return torch.tensor([0.6, 1.0, 1.4], dtype=torch.float64)


def gray(pixel: Tensor) -> float:
    red, green, blue = pixel.tolist()
    return 0.299 * red + 0.587 * green + 0.114 * blue


def each_pixel(images: Tensor, change) -> Tensor:  # change(image number, pixel) -> three values
    out = torch.empty_like(images)
    for n in range(images.shape[0]):
        for i in range(images.shape[2]):
            for j in range(images.shape[3]):
                out[n, :, i, j] = torch.as_tensor(change(n, images[n, :, i, j]), dtype=images.dtype)
    return out


def limited(values: list[float]) -> list[float]:
    return [min(max(v, 0.0), 1.0) for v in values]


def test_brightness_multiplies(images: Tensor, amounts: Tensor):
    want = each_pixel(images, lambda n, p: limited([amounts[n].item() * v for v in p.tolist()]))
    torch.testing.assert_close(pixels.adjust_brightness(images, amounts), want)


def test_contrast_moves_away_from_the_mean_brightness_of_the_image(images: Tensor, amounts: Tensor):
    grays = each_pixel(images, lambda n, p: [gray(p)] * 3)
    mean = [grays[n].mean().item() for n in range(3)]
    want = each_pixel(
        images, lambda n, p: limited([amounts[n].item() * v + (1 - amounts[n].item()) * mean[n] for v in p.tolist()])
    )
    torch.testing.assert_close(pixels.adjust_contrast(images, amounts), want)


def test_saturation_moves_away_from_gray(images: Tensor, amounts: Tensor):
    want = each_pixel(
        images, lambda n, p: limited([amounts[n].item() * v + (1 - amounts[n].item()) * gray(p) for v in p.tolist()])
    )
    torch.testing.assert_close(pixels.adjust_saturation(images, amounts), want)


@pytest.mark.parametrize("turn", [-0.5, -0.2, 0.0, 0.1, 1 / 3, 0.5])
def test_hue_turns_the_color_circle(images: Tensor, turn: float):
    def turned(n: int, pixel: Tensor) -> tuple[float, ...]:
        h, s, v = colorsys.rgb_to_hsv(*pixel.tolist())
        return colorsys.hsv_to_rgb((h + turn * (n + 1)) % 1.0, s, v)

    turns = turn * torch.arange(1, 4, dtype=torch.float64)
    torch.testing.assert_close(pixels.adjust_hue(images, turns), each_pixel(images, turned))


def test_grayscale_is_made_of_the_chosen_images_alone(images: Tensor):
    chosen = torch.tensor([True, False, True])
    want = each_pixel(images, lambda n, p: [gray(p)] * 3 if chosen[n] else p)
    torch.testing.assert_close(pixels.remove_color(images, chosen), want)


def windows(*rows: tuple[float, float, float, float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    top, left, height, width = torch.tensor(rows, dtype=torch.float64).unbind(1)
    return top, left, height, width


@pytest.mark.parametrize("size", [4, 5, 9])
def test_the_whole_window_is_a_plain_resize(images: Tensor, size: int):
    whole = windows(*[(0.0, 0.0, 1.0, 1.0)] * 3)
    got = pixels.crop(images, size, whole, mirror=torch.tensor([False, False, False]))
    want = interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
    torch.testing.assert_close(got, want)


def test_a_mirrored_crop_is_the_crop_reversed(images: Tensor):
    window = windows((0.1, 0.0, 0.9, 0.8), (0.0, 0.2, 0.7, 0.8), (0.05, 0.1, 0.9, 0.9))
    plain = pixels.crop(images, 4, window, mirror=torch.tensor([False, False, False]))
    mirrored = pixels.crop(images, 4, window, mirror=torch.tensor([True, False, True]))
    torch.testing.assert_close(mirrored[0], plain[0].flip(-1))
    torch.testing.assert_close(mirrored[1], plain[1])
    torch.testing.assert_close(mirrored[2], plain[2].flip(-1))


def test_a_window_on_pixel_borders_at_its_own_size_is_a_slice():
    x = torch.rand(2, 3, 8, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    window = windows((1 / 8, 2 / 10, 4 / 8, 4 / 10), (4 / 8, 6 / 10, 4 / 8, 4 / 10))
    got = pixels.crop(x, 4, window, mirror=torch.tensor([False, False]))
    torch.testing.assert_close(got[0], x[0, :, 1:5, 2:6])
    torch.testing.assert_close(got[1], x[1, :, 4:8, 6:10])


def test_a_crop_interpolates_between_pixel_centers():
    x = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    top, left, height, width = 0.11, 0.23, 0.61, 0.52
    got = pixels.crop(x, 3, windows((top, left, height, width)), mirror=torch.tensor([False]))
    for i in range(3):
        for j in range(3):
            row, column = (top + height * (i + 0.5) / 3) * 6 - 0.5, (left + width * (j + 0.5) / 3) * 6 - 0.5
            y, z = int(row), int(column)
            b, a = row - y, column - z
            upper = (1 - a) * x[0, :, y, z] + a * x[0, :, y, z + 1]
            lower = (1 - a) * x[0, :, y + 1, z] + a * x[0, :, y + 1, z + 1]
            torch.testing.assert_close(got[0, :, i, j], (1 - b) * upper + b * lower)


def test_bytes_become_parts_of_255_and_floats_stay():
    assert torch.equal(
        pixels.scale_to_unit(torch.tensor([0, 51, 255], dtype=torch.uint8)), torch.tensor([0.0, 0.2, 1.0])
    )
    x = torch.rand(3, dtype=torch.float64)
    assert pixels.scale_to_unit(x) is x
