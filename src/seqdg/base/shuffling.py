"""Shuffled orders that are computed place by place: nothing is stored, and any place is found without the others.

The numbers below n lie row by row in a grid of about sqrt(n) columns, whose last row may be shorter. By turns every
column and every row is rotated and perhaps reflected, by an amount that a hash of its number under a key decides: a
Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations", 1988) on n cells exactly. Grids of two
widths take turns, so that cells which lie opposite each other in one do not in the other.

All of it is integer arithmetic, so an order is the same on every device; and no control flow depends on the numbers, so
n may differ from place to place, and a GPU is never waited for.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

GRIDS = 4  # in each of which columns and rows turn once; with 3, neighbours are visibly more often neighbours again
MOST = 2**30  # numbers in an order
_WEYL, _SPREAD, _MIX = 0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35  # odd, with bits all over


def shuffle(place: Tensor, n: Tensor, width: Tensor, key: Tensor) -> Tensor:
    """Return which of the numbers 0, ..., n - 1 is at a place of the order that belongs to a key.

    place: 0 to n - 1, in the shape of the result.   n: at most `MOST`.   width: floor(sqrt(n)).   All are int32.
    key: 63 random bits, int64, in the same shape.
    """
    across, along, constants = key.to(torch.int32), (key >> 32).to(torch.int32), _make_constants(place.device)
    for grid in range(GRIDS):
        place = _turn_lines(place, n, width + grid % 2, across, along, constants)
    return place


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


def _turn(place: Tensor, length: Tensor, line: Tensor, key: Tensor, constants: _Constants) -> None:
    """Rotate each line, and reflect it or not: change the places along it, in place."""
    word = (line * constants.spread).add_(key)
    word.bitwise_xor_(word >> constants.half).mul_(constants.mix)
    word.bitwise_right_shift_(constants.half)  # 16 random bits, one of them the sign
    place.bitwise_xor_(word >> constants.sign)  # where that is set, -1 - place
    place.sub_(word.mul_(length).bitwise_right_shift_(constants.scale))  # above -length, and below length
    place.add_((place >> constants.sign).bitwise_and_(length))
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
