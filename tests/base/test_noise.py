from __future__ import annotations

import pytest
import torch

from seqdg.base import noise as draw


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
    got = draw._encrypt(torch.tensor((signed << 32) | key), torch.tensor(counter))
    assert [int(word) for word in got] == [first, second]


def test_a_key_draws_the_same_alone_and_in_a_stack():
    keys = torch.tensor([3, 2**40 + 1, 77])
    for sample in (draw.uniform, draw.normal, draw.laplace):
        stacked = torch.func.vmap(lambda key, sample=sample: sample(key, (4, 5)))(keys)
        assert torch.equal(stacked, torch.stack([sample(key, (4, 5)) for key in keys]))
    folded = torch.func.vmap(lambda key: draw.fold(key, 2))(keys)
    assert torch.equal(folded, torch.stack([draw.fold(key, 2) for key in keys]))


def test_draws_have_the_moments_of_their_distributions():
    key = torch.tensor(123456789)
    u = draw.uniform(key, (100_000,), torch.float64)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.005
    assert abs(u.var() - 1 / 12) < 0.002
    n = draw.normal(key, (100_000,), torch.float64)
    assert abs(n.mean()) < 0.02
    assert abs(n.var() - 1) < 0.02
    assert abs((n**4).mean() - 3) < 0.15
    la = draw.laplace(key, (100_000,), torch.float64)
    assert abs(la.mean()) < 0.02
    assert abs(la.abs().mean() - 1) < 0.02
    assert abs(la.var() - 2) < 0.06


def test_folded_keys_draw_unrelated_numbers():
    key = torch.tensor(5)
    a, b = draw.uniform(draw.fold(key, 0), (10_000,)), draw.uniform(draw.fold(key, 1), (10_000,))
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.05
    assert torch.equal(draw.uniform(key, (3,)), draw.uniform(key, (3,), torch.float64).float())


def test_the_largest_uniform_number_is_a_finite_laplace_one_in_single_precision_too():
    key = torch.tensor(1060835)
    assert draw.uniform(key, (1,)).item() == 1 - 2**-24
    torch.testing.assert_close(draw.laplace(key, (8,)), draw.laplace(key, (8,), torch.float64).float())
    assert torch.isfinite(draw.laplace(key, (8,))).all()


def test_coins_fall_with_their_probability_each_by_itself_and_by_key():
    keys = torch.tensor([3, 2**40 + 1, 77])
    coins = draw.coins(keys, (50, 201), 0.3)
    assert coins.shape == (3, 50, 201)
    assert torch.equal(coins, torch.stack([draw.coins(key, (50, 201), 0.3) for key in keys]))
    assert torch.equal(coins, torch.func.vmap(lambda key: draw.coins(key, (50, 201), 0.3))(keys))
    numbers = coins.double()
    assert abs(numbers.mean() - 0.3) < 0.01
    for lag in (1, 2, 3, 4, 201):
        flat = numbers[0].flatten()
        assert abs(torch.corrcoef(torch.stack([flat[:-lag], flat[lag:]]))[0, 1]) < 0.05
    assert draw.coins(keys, (5,), 1.0).all()
    assert not draw.coins(keys, (5,), 0.0).any()


def test_a_key_is_folded_by_numbers_and_by_tensors_alike_also_in_a_stack():
    key, numbers = torch.tensor(99), torch.arange(4)
    want = torch.stack([draw.fold(key, i) for i in range(4)])
    assert torch.equal(draw.fold(key, numbers), want)
    assert torch.equal(torch.func.vmap(lambda i: draw.fold(key, i))(numbers), want)


def test_selected_keys_draw_unrelated_numbers():
    key = torch.tensor(2**61 + 5)
    domains = [draw.select(key, torch.tensor(i)) for i in range(3)]
    keys = [key, *domains, *(draw.select(domains[0], i, level=1) for i in range(3)), draw.fold(key, 0)]
    drawn = torch.stack([draw.uniform(k, (10_000,)) for k in keys])
    assert (torch.corrcoef(drawn) - torch.eye(len(keys))).abs().max() < 0.05
