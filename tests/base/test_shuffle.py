"""Orders that are computed place by place are orders, and all of them are about equally frequent."""

from __future__ import annotations

import math

import pytest
import torch

from seqdg.base import noise
from seqdg.base.shuffling import GRIDS, shuffle


def order(n: int, count: int = 1, seed: int = 0) -> torch.Tensor:
    """(count, n) orders of different keys."""
    key = noise.fold(torch.tensor(seed), torch.arange(count)).unsqueeze(1).expand(count, n)
    place = torch.arange(n, dtype=torch.int32).expand(count, n)
    size, width = (torch.tensor(number, dtype=torch.int32) for number in (n, math.isqrt(n)))
    return shuffle(place, size, width, key).long()


def deviate(counts: torch.Tensor, freedom: int, scale: float = 1.0) -> float:
    """How many standard deviations chi-square is above its mean, where all counts are to be equal."""
    counts = counts.double()
    chi = scale * float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    return (chi - freedom) / math.sqrt(2 * freedom)


def count_pairs(a: torch.Tensor, b: torch.Tensor, n: int) -> torch.Tensor:
    return torch.bincount((a * n + b).flatten(), minlength=n * n).reshape(n, n)


def test_every_number_is_at_one_place_whatever_n():
    for n in [*range(1, 401), 1023, 1024, 1025, 65_537]:
        orders = order(n, 3, seed=n)
        assert torch.equal(orders.sort().values, torch.arange(n).expand(3, n))


def test_n_may_differ_from_place_to_place():
    n = torch.tensor([[1], [2], [7], [30]], dtype=torch.int32)
    place = torch.arange(30, dtype=torch.int32).expand(4, 30) % n
    width = torch.tensor([[1], [1], [2], [5]], dtype=torch.int32)
    key = noise.fold(torch.tensor(0), 0)
    got = shuffle(place, n, width, key.expand(4, 30))
    for i, size in enumerate(n.flatten().tolist()):
        assert torch.equal(got[i, :size].long(), order(size)[0])


def test_an_order_is_the_published_one():
    """On every machine and device: the numbers of a trial follow from them."""
    assert order(10)[0].tolist() == [9, 7, 2, 3, 1, 6, 5, 8, 4, 0]


@pytest.mark.parametrize("n", [3, 5, 7, 8, 9, 16, 35, 64])
def test_every_number_is_equally_often_at_every_place_and_beside_every_other(n):
    orders = order(n, 12_000)
    places = count_pairs(torch.arange(n).expand_as(orders), orders, n)
    assert deviate(places, (n - 1) ** 2, scale=(n - 1) / n) < 5
    apart = ~torch.eye(n, dtype=torch.bool)
    for a, b in ((orders[:, :-1], orders[:, 1:]), (orders[:, 0], orders[:, n // 2]), (orders[:, 1], orders[:, -1])):
        assert deviate(count_pairs(a, b, n)[apart], n * (n - 1) - 1) < 5
    steps = torch.bincount(((orders[:, 1:] - orders[:, :-1]) % n).flatten(), minlength=n)[1:]
    assert deviate(steps, max(1, n - 2)) < 5


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_all_orders_of_a_few_numbers_are_equally_frequent(n):
    orders = order(n, 24_000)
    _, counts = (orders * n ** torch.arange(n)).sum(1).unique(return_counts=True)
    assert len(counts) == math.factorial(n)
    assert abs(deviate(counts, math.factorial(n) - 1)) < 5


@pytest.mark.parametrize("n", [5, 9, 25])
def test_half_of_the_orders_are_even(n):
    orders = order(n, 10_000)
    swaps = sum((orders[:, i : i + 1] > orders[:, i + 1 :]).sum(1) for i in range(n - 1))
    assert abs(float((swaps % 2).double().mean()) - 0.5) < 5 * 0.5 / 100


def test_one_grid_less_would_leave_neighbours_together(monkeypatch):
    monkeypatch.setattr("seqdg.base.shuffling.GRIDS", GRIDS - 1)
    orders = order(36, 20_000)
    steps = torch.bincount(((orders[:, 1:] - orders[:, :-1]) % 36).flatten(), minlength=36)[1:]
    assert deviate(steps, 34) > 5
