"""Optimizer steps of stacked trials, each with rates of its own: weights and slots are read and written once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # weights per program
LOG_999 = tl.constexpr(-0.0010005003335835335)  # of 0.999


@triton.jit
def momentum_step(w, v, d, lrs, momenta, decays, size, blocks, BLOCK: tl.constexpr):
    """v = momentum * v + (d + decay * w), w = w - lr * v"""
    program = tl.program_id(0).to(tl.int64)
    trial = program // blocks
    within = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside, at = within < size, trial * size + within
    old = tl.load(w + at, inside)
    step = tl.load(d + at, inside) + tl.load(decays + trial) * old
    velocity = tl.load(momenta + trial) * tl.load(v + at, inside) + step
    tl.store(v + at, velocity, inside)
    tl.store(w + at, old - tl.load(lrs + trial) * velocity, inside)


@triton.jit
def adam_step(w, m, s, d, counts, lrs, momenta, decays, size, blocks, COUPLED: tl.constexpr, BLOCK: tl.constexpr):
    """Adam; COUPLED: the decay is part of the direction. counts: of steps, this one included."""
    program = tl.program_id(0).to(tl.int64)
    trial = program // blocks
    within = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside, at = within < size, trial * size + within
    lr, momentum, decay = tl.load(lrs + trial), tl.load(momenta + trial), tl.load(decays + trial)
    # The corrections for starting from zero are differences of near numbers: in double precision.
    count = tl.load(counts + trial).to(tl.float64)
    faded = tl.where(momentum > 0.0, tl.exp(count * tl.log(momentum.to(tl.float64))), 0.0)
    wide = tl.sqrt(1.0 - tl.exp(count * LOG_999))
    length = (lr.to(tl.float64) * wide / (1.0 - faded)).to(lr.dtype)
    spread = wide.to(lr.dtype)
    old, step = tl.load(w + at, inside), tl.load(d + at, inside)
    kept = old
    if COUPLED:
        step += decay * old
    else:
        kept = old * (1.0 - lr * decay)
    first = momentum * tl.load(m + at, inside) + (1.0 - momentum) * step
    second = 0.999 * tl.load(s + at, inside) + 0.001 * step * step
    tl.store(m + at, first, inside)
    tl.store(s + at, second, inside)
    tl.store(w + at, kept - length * first / (tl.sqrt(second) + 1e-8 * spread), inside)


def step_with_momentum(w: Tensor, v: Tensor, d: Tensor, lr: Tensor, momentum: Tensor, decay: Tensor) -> None:
    size = w.numel() // len(w)
    blocks = triton.cdiv(size, BLOCK)
    momentum_step[(len(w) * blocks,)](w, v, d, lr, momentum, decay, size, blocks, BLOCK)


def step_with_adam(
    coupled: bool, w: Tensor, first: Tensor, second: Tensor, d: Tensor, count: Tensor,
    lr: Tensor, momentum: Tensor, decay: Tensor,
) -> None:  # fmt: skip
    size = w.numel() // len(w)
    blocks = triton.cdiv(size, BLOCK)
    adam_step[(len(w) * blocks,)](w, first, second, d, count, lr, momentum, decay, size, blocks, coupled, BLOCK)
