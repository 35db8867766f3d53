"""Contrasts between copies of the same weights, and the pull that makes them smaller.

In a stack of trials on a GPU these are Triton kernels, which a `vmap` over trials runs once for all of them. Elsewhere
they are the same formulas in torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from seqdg.base import private
from seqdg.kernels.convolution import has_triton

MOST = 8  # copies: the kernels are written out for each number of them


class Contrasts:
    """C w of copies w (copy, ...) under several names. Rows of the matrix C (row, copy) sum to zero."""

    def __init__(self, matrix: Tensor, copies: Mapping[str, Tensor]) -> None:
        self.matrix, self.copies = matrix, copies
        self.fused = all(map(_can_run, copies.values()))
        self._away = {} if self.fused else {name: _contrast(matrix, w) for name, w in copies.items()}

    def measure(self) -> Tensor:
        """Return (row,) the squared norm of each contrast, over all names."""
        if self.fused:
            return torch.stack([_Measure.apply(self.matrix, w) for w in self.copies.values()]).sum(0)
        norms: list[Tensor] = [torch.linalg.vector_norm(w.flatten(1), dim=1) for w in self._away.values()]
        return torch.stack([norm**2 for norm in norms]).sum(0)

    def add_pull(self, name: str, strengths: Tensor, d: Tensor) -> Tensor:
        """Return d + C' (strength * C w). strengths: (row,)"""
        if self.fused:
            pulled: Tensor = _Pull.apply(self.matrix, self.copies[name], strengths, d)
            return pulled
        away = self._away[name]
        back: Tensor = torch.tensordot(self.matrix.T, strengths.reshape(-1, *(1,) * (away.dim() - 1)) * away, 1)
        return d + back


def _contrast(matrix: Tensor, copies: Tensor) -> Tensor:
    """Return (row, ...) C w, from differences, so that equal copies give zero to the last bit."""
    others = len(copies) - 1
    away: Tensor = torch.tensordot(matrix.narrow(1, 1, others), copies.narrow(0, 1, others) - copies.narrow(0, 0, 1), 1)
    return away


def _can_run(copies: Tensor) -> bool:
    """Whether the kernels can run: inside one `vmap` over trials, on a GPU."""
    if private.list_transforms() != ["vmap"] or not copies.is_cuda or len(copies) > MOST or not has_triton():
        return False
    return not private.is_fake(private.unwrap(copies))


class _Measure(torch.autograd.Function):
    @staticmethod
    def forward(matrix: Tensor, copies: Tensor) -> Tensor:
        raise NotImplementedError("only inside a vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no way back."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        from seqdg.kernels.triton_copies import measure_contrasts as measure

        return measure(*_bring_forward(info, in_dims, tensors)), 0


class _Pull(torch.autograd.Function):
    @staticmethod
    def forward(matrix: Tensor, copies: Tensor, strengths: Tensor, d: Tensor) -> Tensor:
        raise NotImplementedError("only inside a vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no way back."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        from seqdg.kernels.triton_copies import add_pull as add

        return add(*_bring_forward(info, in_dims, tensors)), 0


def _bring_forward(info: Any, in_dims: Any, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the tensors with a first axis of trials, each in one piece of memory."""
    moved = (
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip(tensors, in_dims, strict=True)
    )
    return [t.contiguous() for t in moved]
