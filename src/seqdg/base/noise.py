"""Random numbers as a pure function of a key: the same alone, in a stack, on any device.

Philox2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The i-th number of a key is
the cipher of (i, high word of the key) under its low word. So no state is kept between draws, and `torch.func.vmap` can
batch a 0-d key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0xD256D193
_WEYL = 0x9E3779B9


def _encrypt(key: Tensor, counter: Tensor) -> tuple[Tensor, Tensor]:
    """Return two 32-bit words per counter, as int64. Products wrap at 64 bits, and Philox wants their two halves."""
    low, high, round_key = counter & _MASK, (key >> 32) & _MASK, key & _MASK
    for _ in range(10):
        product = low * _MULTIPLIER
        low, high = ((product >> 32) & _MASK) ^ round_key ^ high, product & _MASK
        round_key = (round_key + _WEYL) & _MASK
    return low, high


def bits(key: Tensor, counter: Tensor) -> Tensor:
    """Return 32 random bits for every counter, as a number from 0 on."""
    return _encrypt(key, counter)[0]


def uniform(key: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw numbers uniformly from [0, 1): 24 random bits each, so float32 and float64 hold the same numbers."""
    counter = torch.arange(math.prod(shape), device=key.device)
    word, _ = _encrypt(key, counter)
    return ((word >> 8).to(dtype) * 2.0**-24).reshape(tuple(shape))


def normal(key: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw standard normal numbers, by the method of Box and Muller."""
    counter = torch.arange(math.prod(shape), device=key.device)
    first, second = _encrypt(key, counter)
    radius = torch.sqrt(-2.0 * torch.log(((first >> 8).to(dtype) + 0.5) * 2.0**-24))
    return (radius * torch.cos(2.0 * math.pi * (second >> 8).to(dtype) * 2.0**-24)).reshape(tuple(shape))


def laplace(key: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw Laplace numbers with mean 0 and scale 1, by inversion."""
    centred = (uniform(key, shape, dtype) - 0.5) + 2.0**-25  # in this order it is exact in float32 too, and never ±0.5
    return -torch.sign(centred) * torch.log1p(-2.0 * centred.abs())


def coins(key: Tensor, shape: Sequence[int], p: float) -> Tensor:
    """Draw True with probability p, rounded to a multiple of 1/65536, else False.

    A key with axes of its own draws (*axes, *shape): independent numbers for each of its elements.
    """
    size = math.prod(shape)
    counter = torch.arange(-(-size // 4), device=key.device)
    words = [half for word in _encrypt(key.unsqueeze(-1), counter) for half in (word & 0xFFFF, word >> 16)]
    numbers = torch.stack(words, -1).flatten(-2).narrow(-1, 0, size)  # 16 bits each
    return (numbers < round(p * 65536)).reshape(*key.shape, *shape)


def beta(key: Tensor, a: float | Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw numbers from the Beta distribution with both parameters a > 0, as the share of one Gamma variable in two.

    Gamma variables by Marsaglia and Tsang's rejection (2000), for a + 1, so that a may be below 1: Gamma(a) is
    Gamma(a + 1) * U^(1/a). A try fails in less than 1 of 20 cases; of six that all fail, the last is taken.
    """
    tries = 6
    drawn = uniform(key, (3 * tries + 1, 2, *shape), dtype) + 2.0**-25
    first, second, u = drawn[:-1].reshape(3, tries, 2, *shape)
    x = torch.sqrt(-2.0 * torch.log(first)) * torch.cos(2.0 * math.pi * second)  # standard normal
    d = a + 2.0 / 3.0
    v = (1.0 + x / (9.0 * d) ** 0.5) ** 3
    log_v = torch.log(v.clamp(min=1e-30))
    accepted = (v > 0) & (torch.log(u) < 0.5 * x**2 + d - d * v + d * log_v)
    chosen = log_v[-1]
    for i in reversed(range(tries)):  # the first that is accepted
        chosen = torch.where(accepted[i], log_v[i], chosen)
    logarithm = chosen + torch.log(drawn[-1]) / a
    return torch.sigmoid(logarithm[0] - logarithm[1])


def fold(key: Tensor, i: int | Tensor) -> Tensor:
    """Return another key, for the i-th of several independent draws from one key."""
    counter = i if isinstance(i, Tensor) else torch.full((), i, dtype=torch.int64, device=key.device)
    first, second = _encrypt(key, counter)
    return ((first & 0x7FFFFFFF) << 32) | second


def select(key: Tensor, i: int | Tensor, level: int = 0) -> Tensor:
    """Return another key, for the i-th of several independent draws from one key: as `fold`, but in a few operations.

    Only the key's high word changes, its lower half at level 0 (for the i-th domain) and its upper half at level 1 (for
    the i-th layer), where i is below 32,767. So the draws are the cipher of other blocks than those of the key itself.
    """
    return key ^ ((i + 1) << (32 + 16 * level))
