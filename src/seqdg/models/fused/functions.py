"""The kernels as differentiable functions. Gradients are functions of their own, so that `torch.func` unwraps for them
what it tracks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from seqdg.models.fused import launch

Shape = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]  # stride, padding, dilation, groups


def _rows(x: Tensor) -> Tensor:
    """In the order of memory (image, height, width, channel)."""
    return x.contiguous(memory_format=torch.channels_last)


def _as(x: Tensor, like: Tensor) -> Tensor:
    """In the order of memory of another of the same shape."""
    return x if x.stride() == like.stride() else torch.empty_like(like, dtype=x.dtype).copy_(x)


class ConvAct(Function):
    """act(frozen BatchNorm of a convolution + rest). Gives the folded weights too, for the way back."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, rest: Tensor | None,
        eps: float, act: int, shape: Shape,
    ) -> Any:  # fmt: skip
        folded, shift = launch.fold(_rows(weight), gain, offset, mean, var, eps, x.dtype)
        stride, padding, dilation, groups = shape
        y = _rows(torch.ops.aten.convolution(x, folded, None, stride, padding, dilation, False, (0, 0), groups))
        return launch.shift_act(y, shift, None if rest is None else _rows(rest), act), folded

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, gain, _, mean, var, rest, ctx.eps, ctx.act, ctx.shape = inputs
        out, folded = output
        ctx.adds = rest is not None
        ctx.mark_non_differentiable(folded)
        ctx.set_materialize_grads(False)
        kept = [out] if ctx.act != launch.NONE else []
        ctx.save_for_backward(x, weight, gain, mean, var, folded, *kept)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        below = bool(ctx.needs_input_grad[0])
        d_x, d_weight, d_gain, d_offset, *masked = ConvActBack.apply(
            g, ctx.eps, ctx.act, ctx.shape, below, *ctx.saved_tensors
        )
        d_rest = (masked[0] if masked else g) if ctx.adds else None
        return d_x if below else None, d_weight, d_gain, d_offset, None, None, d_rest, None, None, None


class ConvActBack(Function):
    @staticmethod
    def forward(
        g: Tensor, eps: float, act: int, shape: Shape, below: bool, x: Tensor, weight: Tensor, gain: Tensor,
        mean: Tensor, var: Tensor, folded: Tensor, *kept: Tensor,
    ) -> Any:  # fmt: skip
        g, weight = _rows(g), _rows(weight)
        masked, pieces = launch.shift_act_back(g, kept[0] if kept else g, act)
        stride, padding, dilation, groups = shape
        d_x, d_folded, _ = torch.ops.aten.convolution_backward(
            masked, x, folded, None, stride, padding, dilation, False, (0, 0), groups, (below, True, False)
        )
        found = launch.fold_back(_as(d_folded, weight), pieces, weight, gain, mean, var, eps)
        return (d_x if below else g.new_empty(0), *found, *((masked,) if act != launch.NONE else ()))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: it is not differentiated again."""


class NormAct(Function):
    """act(BatchNorm by statistics of the batch + rest). Gives the statistics too, for the way back."""

    @staticmethod
    def forward(x: Tensor, gain: Tensor, offset: Tensor, rest: Tensor | None, parts: int, eps: float, act: int) -> Any:
        return launch.norm_act(_rows(x), gain, offset, None if rest is None else _rows(rest), parts, eps, act)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, gain, _, rest, _, _, ctx.act = inputs
        out, mean, rstd = output
        ctx.adds = rest is not None
        ctx.mark_non_differentiable(mean, rstd)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, out, mean, rstd, gain)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:
        masks = ctx.adds and ctx.act != launch.NONE
        d_x, d_gain, d_offset, *masked = NormActBack.apply(g, *ctx.saved_tensors, ctx.act, masks)
        d_rest = masked[0] if masks else g if ctx.adds else None
        return d_x, d_gain, d_offset, d_rest, None, None, None


class NormActBack(Function):
    @staticmethod
    def forward(
        g: Tensor, x: Tensor, out: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, act: int, masks: bool
    ) -> Any:
        found = launch.norm_act_back(_rows(g), _rows(x), _rows(out), mean, rstd, gain, act, masks)
        return found if masks else found[:3]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: it is not differentiated again."""
