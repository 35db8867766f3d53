"""Noise is a function of its key, and shuffled orders are orders, all of them about equally frequent."""

from __future__ import annotations

import math

import pytest
import torch

from seqdg.base import noise
from seqdg.base.noise import GRIDS, shuffle


@pytest.mark.parametrize(
    ("counter", "high", "key", "first", "second"),
    [
        (0x00000000, 0x00000000, 0x00000000, 0xFF1DAE59, 0x6CD10DF2),
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x2C3F628B, 0xAB4FD7AD),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0xDD7CE038, 0xF62A4C12),
    ],
)
def test_words_are_the_published_known_answers_of_philox(counter, high, key, first, second):
    signed = high - (1 << 32) if high >> 31 else high
    got = noise._encrypt(torch.tensor((signed << 32) | key), torch.tensor(counter))
    assert [int(word) for word in got] == [first, second]


def test_a_key_draws_the_same_alone_and_in_a_stack():
    keys = torch.tensor([3, 2**40 + 1, 77])
    for sample in (noise.uniform, noise.normal, noise.laplace):
        stacked = torch.func.vmap(lambda key, sample=sample: sample(key, (4, 5)))(keys)
        assert torch.equal(stacked, torch.stack([sample(key, (4, 5)) for key in keys]))
    folded = torch.func.vmap(lambda key: noise.fold(key, 2))(keys)
    assert torch.equal(folded, torch.stack([noise.fold(key, 2) for key in keys]))


def test_draws_have_the_moments_of_their_distributions():
    key = torch.tensor(123456789)
    u = noise.uniform(key, (100_000,), torch.float64)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.005
    assert abs(u.var() - 1 / 12) < 0.002
    n = noise.normal(key, (100_000,), torch.float64)
    assert abs(n.mean()) < 0.02
    assert abs(n.var() - 1) < 0.02
    assert abs((n**4).mean() - 3) < 0.15
    la = noise.laplace(key, (100_000,), torch.float64)
    assert abs(la.mean()) < 0.02
    assert abs(la.abs().mean() - 1) < 0.02
    assert abs(la.var() - 2) < 0.06


def test_folded_keys_draw_unrelated_numbers():
    key = torch.tensor(5)
    a, b = noise.uniform(noise.fold(key, 0), (10_000,)), noise.uniform(noise.fold(key, 1), (10_000,))
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.05
    assert torch.equal(noise.uniform(key, (3,)), noise.uniform(key, (3,), torch.float64).float())


def test_the_largest_uniform_number_is_a_finite_laplace_one_in_single_precision_too():
    key = torch.tensor(1060835)
    assert noise.uniform(key, (1,)).item() == 1 - 2**-24
    torch.testing.assert_close(noise.laplace(key, (8,)), noise.laplace(key, (8,), torch.float64).float())
    assert torch.isfinite(noise.laplace(key, (8,))).all()


def test_coins_fall_with_their_probability_each_by_itself_and_by_key():
    keys = torch.tensor([3, 2**40 + 1, 77])
    coins = noise.coins(keys, (50, 201), 0.3)
    assert coins.shape == (3, 50, 201)
    assert torch.equal(coins, torch.stack([noise.coins(key, (50, 201), 0.3) for key in keys]))
    assert torch.equal(coins, torch.func.vmap(lambda key: noise.coins(key, (50, 201), 0.3))(keys))
    numbers = coins.double()
    assert abs(numbers.mean() - 0.3) < 0.01
    for lag in (1, 2, 3, 4, 201):
        flat = numbers[0].flatten()
        assert abs(torch.corrcoef(torch.stack([flat[:-lag], flat[lag:]]))[0, 1]) < 0.05
    assert noise.coins(keys, (5,), 1.0).all()
    assert not noise.coins(keys, (5,), 0.0).any()


def test_a_key_is_folded_by_numbers_and_by_tensors_alike_also_in_a_stack():
    key, numbers = torch.tensor(99), torch.arange(4)
    want = torch.stack([noise.fold(key, i) for i in range(4)])
    assert torch.equal(noise.fold(key, numbers), want)
    assert torch.equal(torch.func.vmap(lambda i: noise.fold(key, i))(numbers), want)


def test_selected_keys_draw_unrelated_numbers():
    key = torch.tensor(2**61 + 5)
    domains = [noise.select(key, torch.tensor(i)) for i in range(3)]
    keys = [key, *domains, *(noise.select(domains[0], i, level=1) for i in range(3)), noise.fold(key, 0)]
    drawn = torch.stack([noise.uniform(k, (10_000,)) for k in keys])
    assert (torch.corrcoef(drawn) - torch.eye(len(keys))).abs().max() < 0.05


def order(n: int, count: int = 1, seed: int = 0) -> torch.Tensor:
    """(count, n) orders of different keys."""
    key = noise.fold(torch.tensor(seed), torch.arange(count)).unsqueeze(1).expand(count, n)
    index = torch.arange(n, dtype=torch.int32).expand(count, n)
    size, width = (torch.tensor(number, dtype=torch.int32) for number in (n, math.isqrt(n)))
    return shuffle(index, size, width, key).long()


def deviate(counts: torch.Tensor, freedom: int, scale: float = 1.0) -> float:
    """How many standard deviations chi-square is above its mean, where all counts are to be equal."""
    counts = counts.double()
    chi = scale * float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    return (chi - freedom) / math.sqrt(2 * freedom)


def count_pairs(a: torch.Tensor, b: torch.Tensor, n: int) -> torch.Tensor:
    return torch.bincount((a * n + b).flatten(), minlength=n * n).reshape(n, n)


def test_every_number_is_at_one_index_whatever_n():
    for n in [*range(1, 401), 1023, 1024, 1025, 65_537]:
        orders = order(n, 3, seed=n)
        assert torch.equal(orders.sort().values, torch.arange(n).expand(3, n))


def test_n_may_differ_from_entry_to_entry():
    n = torch.tensor([[1], [2], [7], [30]], dtype=torch.int32)
    index = torch.arange(30, dtype=torch.int32).expand(4, 30) % n
    width = torch.tensor([[1], [1], [2], [5]], dtype=torch.int32)
    key = noise.fold(torch.tensor(0), 0)
    got = shuffle(index, n, width, key.expand(4, 30))
    for i, size in enumerate(n.flatten().tolist()):
        assert torch.equal(got[i, :size].long(), order(size)[0])


def test_an_order_is_the_published_one():
    """On every machine and device: the numbers of a trial follow from them."""
    assert order(10)[0].tolist() == [9, 7, 2, 3, 1, 6, 5, 8, 4, 0]


@pytest.mark.parametrize("n", [3, 5, 7, 8, 9, 16, 35, 64])
def test_every_number_is_equally_often_at_every_index_and_beside_every_other(n):
    orders = order(n, 12_000)
    positions = count_pairs(torch.arange(n).expand_as(orders), orders, n)
    assert deviate(positions, (n - 1) ** 2, scale=(n - 1) / n) < 5
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
    monkeypatch.setattr("seqdg.base.noise.GRIDS", GRIDS - 1)
    orders = order(36, 20_000)
    steps = torch.bincount(((orders[:, 1:] - orders[:, :-1]) % 36).flatten(), minlength=36)[1:]
    assert deviate(steps, 34) > 5
