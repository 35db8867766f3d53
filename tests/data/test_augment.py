"""Augmentation: what a recipe draws, and that it draws it from the key alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import interpolate

from seqdg.base import UsageError
from seqdg.data import augment as pixels
from seqdg.data.augment import (
    RECIPES,
    Augment,
    ImageTransform,
    _draw_window,
    augment,
    find_augmentation,
    prepare,
)
from seqdg.nets import IMAGENET, Normalization

NOTHING = Augment(scale=(1.0, 1.0), flip=0.0, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, grayscale=0.0)


def key(seed: int) -> Tensor:
    return torch.tensor(seed, dtype=torch.int64)


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (2, 4, 3, 20, 20), generator=generator, dtype=torch.uint8)


def resized(images: Tensor, size: int) -> Tensor:
    flat = images.reshape(-1, *images.shape[-3:]).float() / 255
    return interpolate(flat, size=(size, size), mode="bilinear", align_corners=False).reshape(
        *images.shape[:-2], size, size
    )


def test_a_recipe_of_nothing_is_a_plain_resize(images: Tensor):
    torch.testing.assert_close(augment(images, key(1), NOTHING, 16), resized(images, 16), atol=1e-6, rtol=0)


def test_a_recipe_of_nothing_at_the_stored_size_changes_no_byte(images: Tensor):
    got = augment(images, key(1), NOTHING, 20)
    assert torch.equal((got * 255).round().to(torch.uint8), images)


def test_the_recipe_for_pacs_is_the_usual_one():
    want = Augment((0.8, 1.0), 4 / 3, 0.5, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.4, grayscale=0.1)
    assert find_augmentation("pacs") == want
    assert find_augmentation("") is None
    with pytest.raises(UsageError, match=r"There is no augmentation 'pcas'\. Did you mean 'pacs'\?"):
        find_augmentation("pcas")


def test_a_flip_that_is_certain_mirrors_every_image(images: Tensor):
    got = augment(images, key(1), replace(NOTHING, flip=1.0), 20)
    torch.testing.assert_close(got, resized(images, 20).flip(-1), atol=1e-6, rtol=0)


def test_a_grayscale_that_is_certain_takes_the_color_of_every_image(images: Tensor):
    got = augment(images, key(1), replace(NOTHING, grayscale=1.0), 20)
    red, green, blue = resized(images, 20).unbind(-3)
    want = 0.299 * red + 0.587 * green + 0.114 * blue
    for channel in got.unbind(-3):
        torch.testing.assert_close(channel, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_color_factors_are_uniform_around_one(name: str):
    """Read back from the result: two pixels of one image, far from the limits, give the factor."""
    count = 4000
    image = torch.full((3, 2, 2), 0.5, dtype=torch.float64)
    image[:, 0, 0] = torch.tensor([0.45, 0.5, 0.55])
    x = image.expand(count, 3, 2, 2)
    got = augment(x, key(3), replace(NOTHING, **{name: 0.4}), 2)
    if name == "brightness":
        factors = got[:, 0, 0, 0] / 0.45
    else:
        factors = (got[:, 2, 0, 0] - got[:, 0, 0, 0]) / 0.1
    assert factors.min() >= 0.6 - 1e-9
    assert factors.max() <= 1.4 + 1e-9
    check_uniform((factors - 0.6) / 0.8)


def test_hues_turn_uniformly_both_ways():
    x = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).reshape(3, 1, 1).expand(4000, 3, 2, 2)
    got = augment(x, key(3), replace(NOTHING, hue=1 / 6), 2)[:, :, 0, 0]
    torch.testing.assert_close(got[:, 0], torch.ones_like(got[:, 0]))
    turn = got[:, 1] - got[:, 2]  # from red towards yellow, or towards magenta: one sixth of the circle each
    check_uniform((turn + 1) / 2)


def check_uniform(u: Tensor) -> None:
    """Kolmogorov and Smirnov: the largest gap between the two distribution functions, at a level of 1e-4."""
    n = u.numel()
    gap = (u.sort().values - (torch.arange(n, dtype=u.dtype) + 0.5) / n).abs().max().item()
    assert gap < 2.3 / math.sqrt(n)


def test_the_draw_window_lies_inside_has_the_area_asked_for_and_a_ratio_within_bounds():
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(4, 5000, generator=generator, dtype=torch.float64)
    for height, width in ((20, 20), (20, 26), (40, 20)):
        x = torch.zeros(1, 3, height, width)
        top, left, h, w = _draw_window(x.shape, Augment(scale=(0.3, 0.9)), draws)
        assert min(top.min(), left.min()) >= 0
        assert max((top + h).max(), (left + w).max()) <= 1 + 1e-12
        torch.testing.assert_close(h * w, 0.3 + 0.6 * draws[0])
        ratio = (w * width) / (h * height)
        fits = (torch.log(ratio).abs() <= math.log(4 / 3) + 1e-9) | ((h > 1 - 1e-9) | (w > 1 - 1e-9))
        assert bool(fits.all())


def test_places_of_the_draw_window_are_uniform():
    draws = torch.rand(4, 4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    top, left, h, w = _draw_window((1, 3, 9, 9), Augment(), draws)
    check_uniform(top / (1 - h))
    check_uniform(left / (1 - w))
    check_uniform((h * w - 0.8) / 0.2)


def test_half_are_mirrored_and_a_tenth_gray():
    count = 4000
    x = torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(0)).expand(count, 3, 2, 2)
    flipped = augment(x, key(5), replace(NOTHING, flip=0.5), 2)
    share = (flipped - x.flip(-1)).abs().amax((1, 2, 3)).lt(1e-5).float().mean().item()
    assert share == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / count))
    got = augment(x, key(5), replace(NOTHING, grayscale=0.1), 2)
    share = (got[:, 0] - got[:, 1]).abs().amax((1, 2)).lt(1e-5).float().mean().item()
    assert share == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / count))


def test_the_draws_of_different_changes_are_uncorrelated():
    count = 4000
    x = torch.tensor([0.45, 0.5, 0.55], dtype=torch.float64).reshape(3, 1, 1).expand(count, 3, 2, 2)
    bright = augment(x, key(5), replace(NOTHING, brightness=0.4), 2)[:, 0, 0, 0]
    saturated = augment(x, key(5), replace(NOTHING, saturation=0.4), 2)[:, 0, 0, 0]
    neighbors = torch.stack([bright[:-1], bright[1:]])
    assert abs(torch.corrcoef(torch.stack([bright, saturated]))[0, 1].item()) < 4 / math.sqrt(count)
    assert abs(torch.corrcoef(neighbors)[0, 1].item()) < 4 / math.sqrt(count)


def test_leaving_a_change_out_leaves_the_others_as_they_were(images: Tensor):
    both = augment(images, key(5), replace(NOTHING, scale=(0.5, 1.0), grayscale=0.5), 20)
    crop_alone = augment(images, key(5), replace(NOTHING, scale=(0.5, 1.0)), 20)
    flat, alone = both.reshape(-1, 3, 20, 20), crop_alone.reshape(-1, 3, 20, 20)
    gray = (flat[:, 0] == flat[:, 1]).all(-1).all(-1)
    assert 0 < int(gray.sum()) < len(gray)
    torch.testing.assert_close(flat, pixels.remove_color(alone, gray))


def test_the_same_key_gives_the_same_images_and_another_key_others(images: Tensor):
    first, again, other = (augment(images, key(k), Augment(), 16) for k in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.05)


def test_no_two_images_of_a_batch_get_the_same_draws():
    x = torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(0)).expand(2, 4, 3, 20, 20)
    got = augment(x, key(7), replace(Augment(), flip=0.0, grayscale=0.0), 16).reshape(8, -1)
    assert torch.pdist(got).min() > 0.05


def test_a_stack_of_trials_gives_what_each_gives_alone(images: Tensor):
    keys = torch.tensor([3, 4, 5])
    stack = torch.stack([images, images.flip(0), images.flip(-1)])
    got = vmap(lambda x, k: augment(x, k, Augment(), 16))(stack, keys)
    for i in range(3):
        torch.testing.assert_close(got[i], augment(stack[i], keys[i], Augment(), 16), atol=1e-6, rtol=0)


def test_the_leading_shape_is_kept_and_does_not_matter(images: Tensor):
    got = augment(images, key(7), Augment(), 16)
    assert got.shape == (2, 4, 3, 16, 16)
    flat = augment(images.flatten(0, 1), key(7), Augment(), 16)
    torch.testing.assert_close(got.flatten(0, 1), flat)


def test_results_stay_in_the_range_of_images(images: Tensor):
    got = augment(images, key(7), replace(Augment(), brightness=3.0, contrast=3.0, saturation=3.0, hue=0.5), 16)
    assert got.min() >= 0
    assert got.max() <= 1


def test_prepare_resizes_and_normalizes(images: Tensor):
    torch.testing.assert_close(prepare(images, 16, IMAGENET), IMAGENET(resized(images, 16)), atol=1e-5, rtol=0)
    torch.testing.assert_close(prepare(images, 20, Normalization()), images.float() / 255)


def test_a_transform_trains_on_changed_images_and_serves_plain_ones(images: Tensor):
    transform = ImageTransform(16, IMAGENET, RECIPES["pacs"])
    assert torch.equal(transform.train(images, key(7)), IMAGENET(augment(images, key(7), Augment(), 16)))
    assert torch.equal(transform.serve(images), prepare(images, 16, IMAGENET))
    plain = ImageTransform(16, IMAGENET)
    assert torch.equal(plain.train(images, key(7)), plain.serve(images))


def test_images_of_one_channel_may_be_cropped_but_not_colored():
    x = torch.randint(256, (4, 1, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert augment(x, key(1), replace(NOTHING, scale=(0.5, 1.0), flip=0.5), 16).shape == (4, 1, 16, 16)
    with pytest.raises(UsageError, match="Changes of color need images of 3 channels, and these have 1"):
        augment(x, key(1), Augment(), 16)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"scale": (0.0, 1.0)}, r"0 < from <= to <= 1, not \(0\.0, 1\.0\)"),
        ({"scale": (0.9, 0.8)}, r"0 < from <= to <= 1"),
        ({"ratio": 0.5}, r"a bound of at least 1, not 0\.5"),
        ({"flip": 1.5}, r"The flip of an augmentation is from 0 to 1\.0, not 1\.5"),
        ({"hue": 0.6}, r"The hue of an augmentation is from 0 to 0\.5"),
        ({"contrast": -0.1}, r"The contrast of an augmentation is at least 0, not -0\.1"),
    ],
)
def test_a_recipe_out_of_range_is_refused(settings: dict[str, object], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        Augment(**settings)  # type: ignore[arg-type]


@pytest.mark.gpu
def test_a_gpu_gives_the_same_images_also_when_captured(images: Tensor):
    want = IMAGENET(augment(images, key(7), Augment(), 16))
    transform, x, at = ImageTransform(16, IMAGENET, Augment()), images.cuda(), key(7).cuda()
    torch.testing.assert_close(transform.train(x, at).cpu(), want, atol=1e-4, rtol=0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = transform.train(x, at)
    graph.replay()
    torch.testing.assert_close(got.cpu(), want, atol=1e-4, rtol=0)
    at.copy_(key(8))
    graph.replay()
    torch.testing.assert_close(got.cpu(), IMAGENET(augment(images, key(8), Augment(), 16)), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "recipe", [Augment(), Augment(hue=0.0, contrast=0.0), Augment(flip=1.0, grayscale=1.0, brightness=0.0)]
)
def test_the_kernels_give_the_same_images(monkeypatch, recipe: Augment):
    """Without a GPU, in the interpreter of Triton where that is installed."""
    pytest.importorskip("triton", reason="The kernels are Triton's, and it is not installed here.")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 3, 45, 37), generator=generator, dtype=torch.uint8).to(device)
    transform, key = ImageTransform(33, IMAGENET, recipe), torch.tensor(5).to(device)
    found = []
    for on in (True, False):
        monkeypatch.setattr("seqdg.data.augment.can_run_kernels", lambda x, on=on: on)
        found.append(transform.train(images, key))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=2e-4)
