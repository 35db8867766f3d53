"""Random numbers as a pure function of a key: the same alone, in a stack, on any device.

Philox2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The i-th number of a key is
the cipher of (i, high word of the key) under its low word. So no state is kept between draws, and `torch.func.vmap` can
batch a 0-d key.

`shuffle` gives orders that are computed entry by entry: nothing is stored, and any entry is found without the others.
The numbers below n lie row by row in a grid of about sqrt(n) columns, whose last row may be shorter. By turns every
column and every row is rotated and perhaps reflected, by an amount that a hash of its number under a key decides: a
Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations", 1988) on n cells exactly. Grids of two
widths take turns, so that cells which lie opposite each other in one do not in the other.

All of it is integer arithmetic, so an order is the same on every device; and no control flow depends on the numbers, so
n may differ from entry to entry, and a GPU is never waited for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.base.messages import list_own

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0xD256D193
_WEYL = 0x9E3779B9
GRIDS = 4  # in each of which columns and rows turn once; with 3, neighbours are visibly more often neighbours again
MOST = 2**30  # numbers in an order
_SPREAD, _MIX = 0x85EBCA6B, 0xC2B2AE35  # odd, with bits all over


def __dir__() -> list[str]:
    return list_own(globals())


def _encrypt(key: Tensor, counter: Tensor) -> tuple[Tensor, Tensor]:
    """Return two 32-bit words per counter, as int64. Products wrap at 64 bits, and Philox wants their two halves."""
    low, high, round_key = counter & _MASK, (key >> 32) & _MASK, key & _MASK
    for _ in range(10):
        product = low * _MULTIPLIER
        low, high = ((product >> 32) & _MASK) ^ round_key ^ high, product & _MASK
        round_key = (round_key + _WEYL) & _MASK
    return low, high


def uniform(key: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw numbers uniformly from [0, 1): 24 random bits each, so float32 and float64 hold the same numbers.

    Parameters
    ----------
    key : Tensor
        () 63 random bits, int64, such as `episode.key`.
    shape : sequence of int
        The shape of the result.
    dtype : torch.dtype
        float32 or float64.

    Returns
    -------
    Tensor
        The numbers.

    Examples
    --------
    >>> import torch
    >>> from seqdg import noise
    >>> noise.uniform(torch.tensor(7), (2,))
    tensor([0.6060, 0.8907])
    """
    counter = torch.arange(math.prod(shape), device=key.device)
    word, _ = _encrypt(key, counter)
    return ((word >> 8).to(dtype) * 2.0**-24).reshape(tuple(shape))


def normal(key: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw standard normal numbers, by the method of Box and Muller.

    Parameters
    ----------
    key : Tensor
        () 63 random bits, int64, such as `episode.key`.
    shape : sequence of int
        The shape of the result.
    dtype : torch.dtype
        float32 or float64.

    Returns
    -------
    Tensor
        The numbers.
    """
    counter = torch.arange(math.prod(shape), device=key.device)
    first, second = _encrypt(key, counter)
    radius = torch.sqrt(-2.0 * torch.log(((first >> 8).to(dtype) + 0.5) * 2.0**-24))
    return (radius * torch.cos(2.0 * math.pi * (second >> 8).to(dtype) * 2.0**-24)).reshape(tuple(shape))


def laplace(key: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw Laplace numbers with mean 0 and scale 1, by inversion.

    Parameters
    ----------
    key : Tensor
        () 63 random bits, int64, such as `episode.key`.
    shape : sequence of int
        The shape of the result.
    dtype : torch.dtype
        float32 or float64.

    Returns
    -------
    Tensor
        The numbers.
    """
    centred = (uniform(key, shape, dtype) - 0.5) + 2.0**-25  # in this order it is exact in float32 too, and never ±0.5
    return -torch.sign(centred) * torch.log1p(-2.0 * centred.abs())


def coins(key: Tensor, shape: Sequence[int], p: float) -> Tensor:
    """Draw True with probability p, rounded to a multiple of 1/65536, else False.

    Parameters
    ----------
    key : Tensor
        63 random bits, int64. A key with axes draws independent numbers for each of its elements.
    shape : sequence of int
        The shape of the result, after the key's axes.
    p : float
        The probability of True.

    Returns
    -------
    Tensor
        (*axes of the key, *shape) of bool.
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

    Parameters
    ----------
    key : Tensor
        () 63 random bits, int64, such as `episode.key`.
    a : float or Tensor
        Both parameters of the distribution.
    shape : sequence of int
        The shape of the result.
    dtype : torch.dtype
        float32 or float64.

    Returns
    -------
    Tensor
        The numbers.
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
    """Return another key, for the i-th of several independent draws from one key.

    Parameters
    ----------
    key : Tensor
        () 63 random bits, int64.
    i : int or Tensor
        The number of the draw, or several.

    Returns
    -------
    Tensor
        A key for each i.
    """
    counter = i if isinstance(i, Tensor) else torch.full((), i, dtype=torch.int64, device=key.device)
    first, second = _encrypt(key, counter)
    return ((first & 0x7FFFFFFF) << 32) | second


def select(key: Tensor, i: int | Tensor, level: int = 0) -> Tensor:
    """Return another key, for the i-th of several independent draws from one key: as `fold`, but in a few operations.

    Only the key's high word changes, its lower half at level 0 (for the i-th domain) and its upper half at level 1 (for
    the i-th layer), where i is below 32,767. So the draws are the cipher of other blocks than those of the key itself.

    Parameters
    ----------
    key : Tensor
        63 random bits, int64.
    i : int or Tensor
        The number of the draw, or several.
    level : int
        0 or 1: which half of the key's high word changes.

    Returns
    -------
    Tensor
        A key for each i.
    """
    return key ^ ((i + 1) << (32 + 16 * level))


def shuffle(index: Tensor, n: Tensor, width: Tensor, key: Tensor) -> Tensor:
    """Return which of the numbers 0, ..., n - 1 is at an index of the order that belongs to a key.

    Parameters
    ----------
    index : Tensor
        0 to n - 1, int32, in the shape of the result.
    n : Tensor
        The length of the order, at most `MOST`, int32.
    width : Tensor
        floor(sqrt(n)), int32.
    key : Tensor
        63 random bits, int64, in the shape of the result.

    Returns
    -------
    Tensor
        0 to n - 1, int32.
    """
    across, along, constants = key.to(torch.int32), (key >> 32).to(torch.int32), _make_constants(index.device)
    for grid in range(GRIDS):
        index = _turn_lines(index, n, width + grid % 2, across, along, constants)
    return index


def _turn_lines(
    number: Tensor, n: Tensor, width: Tensor, across: Tensor, along: Tensor, constants: _Constants
) -> Tensor:
    """Turn all columns under one word of the key, then all rows under the other; both are changed for the next grid."""
    last = (n - 1).div(width, rounding_mode="floor")  # the number of the last row
    rest = n - last * width  # numbers in it
    row = number.div(width, rounding_mode="floor")
    column = number - row * width
    height = last - (column - rest).bitwise_right_shift_(constants.sign)  # one more where the last row has this column
    _turn(row, height, column, across, constants)
    length = (row - last).bitwise_right_shift_(constants.sign).bitwise_and_(width - rest).add_(rest)
    _turn(column, length, row, along, constants)
    return row.mul_(width).add_(column)


def _turn(index: Tensor, length: Tensor, line: Tensor, key: Tensor, constants: _Constants) -> None:
    """Rotate each line, and reflect it or not: change the indices along it, in place."""
    word = (line * constants.spread).add_(key)
    word.bitwise_xor_(word >> constants.half).mul_(constants.mix)
    word.bitwise_right_shift_(constants.half)  # 16 random bits, one of them the sign
    index.bitwise_xor_(word >> constants.sign)  # where that is set, -1 - index
    index.sub_(word.mul_(length).bitwise_right_shift_(constants.scale))  # above -length, and below length
    index.add_((index >> constants.sign).bitwise_and_(length))
    key.add_(constants.weyl)


class _Constants(NamedTuple):
    """As tensors: with them, arithmetic in int32 takes half the time."""

    weyl: Tensor
    spread: Tensor
    mix: Tensor
    half: Tensor  # of the bits of a word
    scale: Tensor  # those of the half that is kept, but for its sign
    sign: Tensor  # a shift by so many bits leaves -1 of a negative number, and 0 of others


@cache
def _make_constants(device: torch.device) -> _Constants:
    odd = torch.tensor([_WEYL, _SPREAD, _MIX]).to(torch.int32)
    return _Constants(*torch.cat([odd, torch.tensor([16, 15, 31], dtype=torch.int32)]).to(device).unbind())
