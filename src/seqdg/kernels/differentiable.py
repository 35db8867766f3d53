"""The kernels as differentiable functions.

Each gradient is a `Function` too, so that `torch.func` unwraps the tensors it tracks before they reach a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from seqdg.kernels import launch, launch_depthwise
from seqdg.kernels.geometry import Depthwise, measure_output
from seqdg.kernels.side_stream import SideStream
from seqdg.kernels.window import Window

Plain = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]  # stride, padding, dilation, groups
Geometry = Plain | Depthwise  # torch convolves the first, a kernel the second


class Handover:
    """What a depthwise convolution passes back to the layer before it, beside the gradient.

    Its kernel masks the gradient of its input by the activation before and sums it by channel, so that the layer before
    need not. That is right only where nothing else reads the layer's output: other gradients would be added unmasked.

    act: the activation of the layer before, once it has run by kernels.
    pieces: the sums by channel, (piece, channel), where the gradient is masked already.
    """

    def __init__(self) -> None:
        self.act = launch.NONE
        self.pieces: Tensor | None = None

    def take(self) -> Tensor | None:
        """Return the pieces, once."""
        pieces, self.pieces = self.pieces, None
        return pieces


def _to_channels_last(x: Tensor) -> Tensor:
    """Lay the tensor out in memory as (image, height, width, channel)."""
    return x.contiguous(memory_format=torch.channels_last)


def _lay_out_like(x: Tensor, like: Tensor) -> Tensor:
    """Lay the tensor out in memory like another of the same shape."""
    if x.is_contiguous(memory_format=torch.channels_last) and like.is_contiguous(memory_format=torch.channels_last):
        return x.as_strided(
            like.shape, like.stride()
        )  # the strides of 1 x 1 weights may differ without meaning anything
    return x if x.stride() == like.stride() else torch.empty_like(like, dtype=x.dtype).copy_(x)


def _convolve(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    if isinstance(geometry, Depthwise):
        return launch_depthwise.convolve(_to_channels_last(x), weight, geometry)
    stride, padding, dilation, groups = geometry
    y: Tensor = torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, (0, 0), groups)
    return y


def _differentiate_input(
    g: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, before: Handover | None = None
) -> Tensor:
    """Return the gradient of a convolution's input, or of what the activation before was applied to."""
    if isinstance(geometry, Depthwise) and before is not None and before.act != launch.NONE:
        x = _to_channels_last(x)
        d_x, before.pieces = launch_depthwise.differentiate_activated_input(g, weight, x, before.act, geometry)
        return d_x
    if isinstance(geometry, Depthwise):
        return launch_depthwise.differentiate_input(g, weight, (x.shape[2], x.shape[3]), geometry)
    return _convolve_back(g, x, weight, geometry, (True, False, False))[0]


def _differentiate_weights(g: Tensor, x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Return the gradient of a convolution's weights."""
    if isinstance(geometry, Depthwise):
        return launch_depthwise.differentiate_weights(g, _to_channels_last(x), geometry)
    return _convolve_back(g, x, weight, geometry, (False, True, False))[1]


def _convolve_back(g: Tensor, x: Tensor, weight: Tensor, geometry: Plain, wanted: tuple[bool, ...]) -> list[Tensor]:
    stride, padding, dilation, groups = geometry
    gradients: list[Tensor] = torch.ops.aten.convolution_backward(
        g, x, weight, None, stride, padding, dilation, False, (0, 0), groups, wanted
    )
    return gradients


def _convolve_back_beside(
    g: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, wanted: tuple[bool, bool], side: SideStream,
    finish: Callable[[Tensor], tuple[Tensor, ...]], before: Handover | None = None,
) -> tuple[Tensor | None, tuple[Tensor, ...] | None]:  # fmt: skip
    """Return the gradient of the input, and `finish` of the gradient of the weights, computed on the side stream.

    What is not wanted is None.
    """
    of_x, of_weight = wanted
    d_weights = side.queue(lambda: finish(_differentiate_weights(g, x, weight, geometry))) if of_weight else None
    return _differentiate_input(g, x, weight, geometry, before) if of_x else None, d_weights


class Enter(Function):
    """Pass the weights through; on the way back, wait for the side stream before their gradients are handed on.

    Without it a CUDA graph could not be recorded to its end. While one is recorded, do not ask plain autograd for the
    gradient of the input alone if the weights require gradients too: then nothing waits. `torch.func` asks only for the
    gradients of its arguments.
    """

    @staticmethod
    def forward(side: SideStream, *weights: Tensor) -> Any:
        return tuple(w.view_as(w) for w in weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.side = inputs[0]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.side.wait()
        return None, *gradients


class Fold(Function):
    """Fold a frozen BatchNorm into the weights of the convolution before it, cast to a dtype; return the shift too."""

    @staticmethod
    def forward(
        weight: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, dtype: torch.dtype
    ) -> Any:
        return launch.fold(_to_channels_last(weight), gain, offset, mean, var, eps, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)


class Conv(Function):
    """A convolution. Its weights may be passed twice: as they are trained, and cast to the dtype of the input."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, cast: Tensor | None, geometry: Geometry, side: SideStream) -> Tensor:
        return _convolve(x, weight if cast is None else cast, geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, cast, ctx.geometry, ctx.side = inputs
        ctx.save_for_backward(x, weight, *(() if cast is None else (cast,)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        of_x, of_weight = (bool(n) for n in ctx.needs_input_grad[:2])
        return *ConvBack.apply(g, ctx.geometry, (of_x, of_weight), ctx.side, *ctx.saved_tensors), None, None, None


class ConvBack(Function):
    @staticmethod
    def forward(
        g: Tensor,
        geometry: Geometry,
        wanted: tuple[bool, bool],
        side: SideStream,
        x: Tensor,
        weight: Tensor,
        *cast: Tensor,
    ) -> Any:
        used = cast[0] if cast else weight
        d_x, d_weights = _convolve_back_beside(
            _to_channels_last(g),
            x,
            used,
            geometry,
            wanted,
            side,
            lambda d: (_lay_out_like(d.to(weight.dtype), weight),),
        )
        return d_x, *(d_weights or (None,))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: a gradient is not differentiated again."""


class ConvAct(Function):
    """act(frozen BatchNorm of a convolution + rest), with the BatchNorm folded into the weights and a shift.

    With a window, the largest of that in every window, and where it is. It is pooled before the shift is added: neither
    the shift nor the activation changes the order of two numbers, so the outputs are the same, and of all that follows
    the convolution only the pooling passes over whole images. (Numbers that the shift rounds to equal ones are still in
    order: the gradient goes to the larger, not to the first.) `rest` is None, and the convolution not depthwise.

    own: the handover to this layer.   before: that to the layer which gave x, if nothing else reads x.
    """

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, folded: Tensor,
        shift: Tensor, rest: Tensor | None, act: int, geometry: Geometry, side: SideStream, window: Window | None,
        own: Handover, before: Handover | None,
    ) -> Any:  # fmt: skip
        own.act = act
        rest = None if rest is None else _to_channels_last(rest)
        if isinstance(geometry, Depthwise):
            return (launch_depthwise.convolve(_to_channels_last(x), folded, geometry, shift, rest, act),)
        y = _to_channels_last(_convolve(x, folded, geometry))
        y, *places = (y,) if window is None else launch.pool(y, window)
        return launch.shift_act(y, shift, rest, act), *places

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, gain, _, mean, var, ctx.eps, folded, _, rest, ctx.act, ctx.geometry, ctx.side, *others = inputs
        ctx.window, ctx.own, ctx.before = others
        out, *places = output
        ctx.adds = rest is not None
        ctx.mark_non_differentiable(*places)
        ctx.set_materialize_grads(False)
        kept = [out] if ctx.act != launch.NONE else []
        ctx.save_for_backward(x, weight, gain, mean, var, folded, *places, *kept)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:
        of_x, of_weight = bool(ctx.needs_input_grad[0]), any(ctx.needs_input_grad[1:4])
        how = (ctx.eps, ctx.act, ctx.geometry, (of_x, of_weight), ctx.side, ctx.window, ctx.own.take(), ctx.before)
        d_x, d_weight, d_gain, d_offset, *masked = ConvActBack.apply(g, *how, *ctx.saved_tensors)
        d_rest = (masked[0] if masked else g) if ctx.adds else None
        return d_x, d_weight, d_gain, d_offset, *(None,) * 5, d_rest, *(None,) * 6


class ConvActBack(Function):
    @staticmethod
    def forward(
        g: Tensor, eps: float, act: int, geometry: Geometry, wanted: tuple[bool, bool], side: SideStream,
        window: Window | None, pieces: Tensor | None, before: Handover | None, x: Tensor, weight: Tensor, gain: Tensor,
        mean: Tensor, var: Tensor, folded: Tensor, *kept: Tensor,
    ) -> Any:  # fmt: skip
        g, weight = _to_channels_last(g), _to_channels_last(weight)
        if pieces is None:
            masked, pieces = launch.shift_act_back(g, kept[-1] if act != launch.NONE else g, act)
        else:
            masked, act = g, launch.NONE  # nothing is left to mask
        d_y = masked
        if window is not None and not isinstance(geometry, Depthwise):
            d_y = launch.pool_back(masked, kept[0], measure_output(x, folded, geometry), window)
        d_x, d_weights = _convolve_back_beside(
            d_y, x, folded, geometry, wanted, side,
            lambda d: launch.fold_back(_to_channels_last(d), pieces, weight, gain, mean, var, eps), before,
        )  # fmt: skip
        return d_x, *(d_weights or (None,) * 3), *((masked,) if act != launch.NONE else ())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: a gradient is not differentiated again."""


class NormAct(Function):
    """act(BatchNorm by statistics of the batch + rest). Returns the statistics too, for the gradient."""

    @staticmethod
    def forward(x: Tensor, gain: Tensor, offset: Tensor, rest: Tensor | None, parts: int, eps: float, act: int) -> Any:
        return launch.norm_act(
            _to_channels_last(x), gain, offset, None if rest is None else _to_channels_last(rest), parts, eps, act
        )

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
        gradients = launch.norm_act_back(
            _to_channels_last(g), _to_channels_last(x), _to_channels_last(out), mean, rstd, gain, act, masks
        )
        return gradients if masks else gradients[:3]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: a gradient is not differentiated again."""


class Pool(Function):
    """The largest number in every window, and where it is."""

    @staticmethod
    def forward(x: Tensor, window: Window) -> Any:
        return launch.pool(_to_channels_last(x), window)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.window = inputs
        ctx.size = tuple(x.shape[2:])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:
        return PoolBack.apply(g, *ctx.saved_tensors, ctx.size, ctx.window), None


class PoolBack(Function):
    @staticmethod
    def forward(g: Tensor, places: Tensor, size: tuple[int, int], window: Window) -> Tensor:
        return launch.pool_back(_to_channels_last(g), places, size, window)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: a gradient is not differentiated again."""
