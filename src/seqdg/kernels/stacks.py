"""Triton kernels on the weights of stacked trials: each number is read and written once.

Optimizer steps, in which every trial has rates of its own; and contrasts between copies of the same weights, C w, with
the pull that makes them smaller. Rows of a matrix C (row, copy) sum to zero.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # weights per program
LOG_999 = tl.constexpr(-0.0010005003335835335)  # of 0.999


@triton.jit
def _locate_block(blocks, BLOCK: tl.constexpr):
    """Return this program's trial, and which of its weights are in the program's block."""
    program = tl.program_id(0).to(tl.int64)
    return program // blocks, (program % blocks) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def momentum_step(w, v, d, lrs, momenta, decays, size, blocks, BLOCK: tl.constexpr):
    """v = momentum * v + (d + decay * w), w = w - lr * v"""
    trial, within = _locate_block(blocks, BLOCK)
    inside, at = within < size, trial * size + within
    old = tl.load(w + at, inside)
    step = tl.load(d + at, inside) + tl.load(decays + trial) * old
    velocity = tl.load(momenta + trial) * tl.load(v + at, inside) + step
    tl.store(v + at, velocity, inside)
    tl.store(w + at, old - tl.load(lrs + trial) * velocity, inside)


@triton.jit
def adam_step(w, m, s, d, counts, lrs, momenta, decays, size, blocks, COUPLED: tl.constexpr, BLOCK: tl.constexpr):
    """Adam; COUPLED: the decay is part of the direction. counts: of steps, this one included."""
    trial, within = _locate_block(blocks, BLOCK)
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


# ---------------------------------------------------------------------------- contrasts


@triton.jit
def _contrast(matrix, copies, r, size, within, inside, K: tl.constexpr):
    """The r-th row of the matrix times the copies. Rows sum to zero, so equal copies give zero, to the last bit."""
    first = tl.load(copies + within, inside, other=0.0)
    total = tl.zeros_like(first)
    for j in tl.static_range(1, K):
        total += tl.load(matrix + r * K + j) * (tl.load(copies + j * size + within, inside, other=0.0) - first)
    return total


@triton.jit
def measure_kernel(matrix, copies, out, size, blocks, K: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the squares of every contrast over a block."""
    trial, within = _locate_block(blocks, BLOCK)
    for r in tl.static_range(R):
        away = _contrast(matrix + trial * R * K, copies + trial * K * size, r, size, within, within < size, K)
        tl.store(out + tl.program_id(0).to(tl.int64) * R + r, tl.sum(away * away))


@triton.jit
def pull_kernel(matrix, copies, strengths, d, out, size, blocks, K: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr):
    """d + C' (strength * C w)"""
    trial, within = _locate_block(blocks, BLOCK)
    inside = within < size
    matrix += trial * R * K
    start = trial * K * size
    for i in tl.static_range(K):
        total = tl.load(d + start + i * size + within, inside, other=0.0)
        for r in tl.static_range(R):
            away = _contrast(matrix, copies + start, r, size, within, inside, K)
            total += tl.load(matrix + r * K + i) * tl.load(strengths + trial * R + r) * away
        tl.store(out + start + i * size + within, total, inside)


def measure_contrasts(matrix: Tensor, copies: Tensor) -> Tensor:
    """Return (row,) the squared norms of the contrasts, inside one `vmap` over trials. copies: (copy, ...)"""
    squares: Tensor = _Measure.apply(matrix, copies)
    return squares


def add_pull(matrix: Tensor, copies: Tensor, strengths: Tensor, d: Tensor) -> Tensor:
    """Return d + C' (strength * C w), inside one `vmap` over trials. strengths: (row,)  copies, d: (copy, ...)"""
    pulled: Tensor = _Pull.apply(matrix, copies, strengths, d)
    return pulled


class _AllTrials(torch.autograd.Function):
    """Runs once for all trials of a `vmap`. It has no gradient."""

    @staticmethod
    def forward(*tensors: Tensor) -> Tensor:
        raise NotImplementedError("only inside a vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: there is no way back."""


class _Measure(_AllTrials):
    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        matrix, copies = _bring_forward(info, in_dims, tensors)
        size = copies[0, 0].numel()
        blocks = triton.cdiv(size, BLOCK)
        parts = copies.new_empty(len(copies), blocks, matrix.shape[1])
        grid, counts = (len(copies) * blocks,), (matrix.shape[2], matrix.shape[1])
        measure_kernel[grid](matrix, copies, parts, size, blocks, *counts, BLOCK)
        return parts.sum(1), 0


class _Pull(_AllTrials):
    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        matrix, copies, strengths, d = _bring_forward(info, in_dims, tensors)
        size = copies[0, 0].numel()
        blocks = triton.cdiv(size, BLOCK)
        out = torch.empty_like(copies)
        grid, counts = (len(copies) * blocks,), (matrix.shape[2], matrix.shape[1])
        pull_kernel[grid](matrix, copies, strengths, d, out, size, blocks, *counts, BLOCK)
        return out, 0


def _bring_forward(info: Any, in_dims: Any, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the tensors with a first axis of trials, each in one piece of memory."""
    moved = (
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip(tensors, in_dims, strict=True)
    )
    return [t.contiguous() for t in moved]
