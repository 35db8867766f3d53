"""Contrasts between copies of the same weights, of stacked trials: each copy is read once, and nothing is kept."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # weights per program


@triton.jit
def _contrast(matrix, copies, r, size, within, inside, K: tl.constexpr):
    """The r-th row of the matrix times the copies. Rows sum to zero, so equal copies give zero, to the last bit."""
    first = tl.load(copies + within, inside, other=0.0)
    total = tl.zeros_like(first)
    for j in tl.static_range(1, K):
        total += tl.load(matrix + r * K + j) * (tl.load(copies + j * size + within, inside, other=0.0) - first)
    return total


@triton.jit
def measure(matrix, copies, out, size, blocks, K: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the squares of every contrast over a block."""
    program = tl.program_id(0).to(tl.int64)
    trial = program // blocks
    within = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    for r in tl.static_range(R):
        away = _contrast(matrix + trial * R * K, copies + trial * K * size, r, size, within, within < size, K)
        tl.store(out + program * R + r, tl.sum(away * away))


@triton.jit
def pull(matrix, copies, strengths, d, out, size, blocks, K: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr):
    """d + C' (strength * C w)"""
    program = tl.program_id(0).to(tl.int64)
    trial = program // blocks
    within = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
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
    """Return (trial, row) the squared norms of the contrasts. matrix: (trial, row, copy)  copies: (trial, copy, ...)"""
    size = copies[0, 0].numel()
    blocks = triton.cdiv(size, BLOCK)
    parts = copies.new_empty(len(copies), blocks, matrix.shape[1])
    measure[(len(copies) * blocks,)](matrix, copies, parts, size, blocks, matrix.shape[2], matrix.shape[1], BLOCK)
    return parts.sum(1)


def add_pull(matrix: Tensor, copies: Tensor, strengths: Tensor, d: Tensor) -> Tensor:
    """Return d + C' (strength * C w) of every trial. strengths: (trial, row)  copies, d: (trial, copy, ...)"""
    size = copies[0, 0].numel()
    blocks = triton.cdiv(size, BLOCK)
    out = torch.empty_like(copies)
    pull[(len(copies) * blocks,)](
        matrix, copies, strengths, d, out, size, blocks, matrix.shape[2], matrix.shape[1], BLOCK
    )
    return out
