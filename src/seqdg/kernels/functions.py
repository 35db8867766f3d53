"""The kernels as differentiable functions. Gradients are functions of their own, so that `torch.func` unwraps for them
what it tracks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from seqdg.kernels import launch
from seqdg.kernels.aside import Aside

Shape = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]  # stride, padding, dilation, groups


def _rows(x: Tensor) -> Tensor:
    """In the order of memory (image, height, width, channel)."""
    return x.contiguous(memory_format=torch.channels_last)


def _as(x: Tensor, like: Tensor) -> Tensor:
    """In the order of memory of another of the same shape."""
    if x.is_contiguous(memory_format=torch.channels_last) and like.is_contiguous(memory_format=torch.channels_last):
        return x.as_strided(like.shape, like.stride())  # of 1 x 1 weights they may differ, and mean the same
    return x if x.stride() == like.stride() else torch.empty_like(like, dtype=x.dtype).copy_(x)


def _convolve(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    stride, padding, dilation, groups = shape
    y: Tensor = torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, (0, 0), groups)
    return y


def _back(g: Tensor, x: Tensor, weight: Tensor, shape: Shape, wanted: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    """The gradients of a convolution's input and of its weights, as far as they are wanted."""
    stride, padding, dilation, groups = shape
    d_x, d_weight, _ = torch.ops.aten.convolution_backward(
        g, x, weight, None, stride, padding, dilation, False, (0, 0), groups, (*wanted, False)
    )
    return d_x, d_weight


def _both_back(
    g: Tensor, x: Tensor, weight: Tensor, shape: Shape, wanted: tuple[bool, bool], aside: Aside,
    finish: Callable[[Tensor], tuple[Tensor, ...]],
) -> tuple[Tensor | None, tuple[Tensor, ...] | None]:  # fmt: skip
    """The gradient of the input, and what is made, aside, of that of the weights; None what is not wanted."""
    below, own = wanted
    found = aside.leave(lambda: finish(_back(g, x, weight, shape, (False, True))[1])) if own else None
    return _back(g, x, weight, shape, (True, False))[0] if below else None, found


class Enter(Function):
    """The weights as they are. On the way back their gradients come out of here, and nothing is under way any more.

    Without it a graph could not be recorded to its end: gradients of the input alone, with weights that require theirs,
    are not for plain autograd while one is recorded. `torch.func` asks for none but those of its arguments.
    """

    @staticmethod
    def forward(aside: Aside, *weights: Tensor) -> Any:
        return tuple(w.view_as(w) for w in weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.aside = inputs[0]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.aside.wait()
        return None, *gradients


class Fold(Function):
    """A frozen BatchNorm in the weights of the convolution before it, in another type, and the shift that is left."""

    @staticmethod
    def forward(
        weight: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, dtype: torch.dtype
    ) -> Any:
        return launch.fold(_rows(weight), gain, offset, mean, var, eps, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)


class Conv(Function):
    """A convolution. Its weights may be given twice: those that are trained, and these in the type of the input."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, cast: Tensor | None, shape: Shape, aside: Aside) -> Tensor:
        return _convolve(x, weight if cast is None else cast, shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, cast, ctx.shape, ctx.aside = inputs
        ctx.save_for_backward(x, weight, *(() if cast is None else (cast,)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        below, own = (bool(n) for n in ctx.needs_input_grad[:2])
        return *ConvBack.apply(g, ctx.shape, (below, own), ctx.aside, *ctx.saved_tensors), None, None, None


class ConvBack(Function):
    @staticmethod
    def forward(
        g: Tensor, shape: Shape, wanted: tuple[bool, bool], aside: Aside, x: Tensor, weight: Tensor, *cast: Tensor
    ) -> Any:
        used = cast[0] if cast else weight
        d_x, found = _both_back(_rows(g), x, used, shape, wanted, aside, lambda d: (_as(d.to(weight.dtype), weight),))
        return d_x, *(found or (None,))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: it is not differentiated again."""


class ConvAct(Function):
    """act(frozen BatchNorm of a convolution + rest), the BatchNorm being folded into weights and a shift."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, folded: Tensor,
        shift: Tensor, rest: Tensor | None, act: int, shape: Shape, aside: Aside,
    ) -> Tensor:  # fmt: skip
        y = _rows(_convolve(x, folded, shape))
        return launch.shift_act(y, shift, None if rest is None else _rows(rest), act)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, gain, _, mean, var, ctx.eps, folded, _, rest, ctx.act, ctx.shape, ctx.aside = inputs
        ctx.adds = rest is not None
        kept = [output] if ctx.act != launch.NONE else []
        ctx.save_for_backward(x, weight, gain, mean, var, folded, *kept)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        below, own = bool(ctx.needs_input_grad[0]), any(ctx.needs_input_grad[1:4])
        d_x, d_weight, d_gain, d_offset, *masked = ConvActBack.apply(
            g, ctx.eps, ctx.act, ctx.shape, (below, own), ctx.aside, *ctx.saved_tensors
        )
        d_rest = (masked[0] if masked else g) if ctx.adds else None
        return d_x, d_weight, d_gain, d_offset, *(None,) * 5, d_rest, *(None,) * 3


class ConvActBack(Function):
    @staticmethod
    def forward(
        g: Tensor, eps: float, act: int, shape: Shape, wanted: tuple[bool, bool], aside: Aside, x: Tensor,
        weight: Tensor, gain: Tensor, mean: Tensor, var: Tensor, folded: Tensor, *kept: Tensor,
    ) -> Any:  # fmt: skip
        g, weight = _rows(g), _rows(weight)
        masked, pieces = launch.shift_act_back(g, kept[0] if kept else g, act)
        d_x, found = _both_back(
            masked, x, folded, shape, wanted, aside,
            lambda d: launch.fold_back(_rows(d), pieces, weight, gain, mean, var, eps),
        )  # fmt: skip
        return d_x, *(found or (None,) * 3), *((masked,) if act != launch.NONE else ())

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
