"""The kernels as differentiable functions.

Each gradient is a `Function` too, so that `torch.func` unwraps the tensors it tracks before they reach a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function

from seqdg.kernels import normalization, windows
from seqdg.kernels.geometry import (
    NONE,
    Depthwise,
    Geometry,
    Window,
    lay_out_like,
    measure_output,
    to_channels_last,
)

Shape = Geometry | Depthwise  # torch convolves the first, a kernel the second
PENDING = 2  # pieces of work that may be under way at once; the inputs of each stay in memory until it is done
T = TypeVar("T")


class SideStream:
    """A second GPU stream, as one forward and backward pass through a net uses it.

    Its work runs beside the main stream's, which on small minibatches leaves the GPU half idle. It is used only while a
    CUDA graph is recorded. There it costs nothing: the graph gets branches.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pending: list[tuple[Any, Any]] = []  # an event, and what must not be freed before it

    def run(self, work: Callable[[], T]) -> tuple[T, Any]:
        """Start the work; its result may be used after `wait_for` of the event that is returned with it."""
        if not (self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return work(), None
        main, side = torch.cuda.current_stream(self.device), _get_stream(self.device)
        side.wait_stream(main)  # also makes it safe for the side stream to reuse memory that the main one last read
        with torch.cuda.stream(side):
            result = work()
        return result, side.record_event()

    def queue(self, work: Callable[[], T]) -> T:
        """Start the work and remember it: `wait` waits for it, and what it uses is not freed before."""
        self.wait(PENDING)
        result, event = self.run(work)
        if event is not None:
            self._pending.append((event, (work, result)))
        return result

    def wait(self, pending: int = 0) -> None:
        """Wait until no more than `pending` pieces of queued work are under way."""
        while len(self._pending) > pending:
            self.wait_for(self._pending.pop(0)[0])

    def wait_for(self, event: Any) -> None:
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)


@cache
def _get_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class Handover:
    """What a depthwise convolution passes back to the layer before it, beside the gradient.

    Its kernel masks the gradient of its input by the activation before and sums it by channel, so that the layer before
    need not. That is right only where nothing else reads the layer's output: other gradients would be added unmasked.

    act: the activation of the layer before, once it has run by kernels.
    pieces: the sums by channel, (piece, channel), where the gradient is masked already.
    """

    def __init__(self) -> None:
        self.act = NONE
        self.pieces: Tensor | None = None

    def take(self) -> Tensor | None:
        """Return the pieces, once."""
        pieces, self.pieces = self.pieces, None
        return pieces


def _convolve(x: Tensor, weight: Tensor, geometry: Shape) -> Tensor:
    if isinstance(geometry, Depthwise):
        return windows.convolve(to_channels_last(x), weight, geometry)
    stride, padding, dilation, groups = geometry
    y: Tensor = torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, (0, 0), groups)
    return y


def _differentiate_input(
    g: Tensor, x: Tensor, weight: Tensor, geometry: Shape, before: Handover | None = None
) -> Tensor:
    """Return the gradient of a convolution's input, or of what the activation before was applied to."""
    if isinstance(geometry, Depthwise) and before is not None and before.act != NONE:
        d_x, before.pieces = windows.differentiate_input(g, weight, to_channels_last(x), geometry, before.act)
        return d_x
    if isinstance(geometry, Depthwise):
        return windows.differentiate_input(g, weight, x, geometry)[0]
    return _convolve_back(g, x, weight, geometry, (True, False, False))[0]


def _differentiate_weights(g: Tensor, x: Tensor, weight: Tensor, geometry: Shape) -> Tensor:
    """Return the gradient of a convolution's weights."""
    if isinstance(geometry, Depthwise):
        return windows.differentiate_weights(g, to_channels_last(x), geometry)
    return _convolve_back(g, x, weight, geometry, (False, True, False))[1]


def _convolve_back(g: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, wanted: tuple[bool, ...]) -> list[Tensor]:
    stride, padding, dilation, groups = geometry
    gradients: list[Tensor] = torch.ops.aten.convolution_backward(
        g, x, weight, None, stride, padding, dilation, False, (0, 0), groups, wanted
    )
    return gradients


def _convolve_back_beside(
    g: Tensor, x: Tensor, weight: Tensor, geometry: Shape, wanted: tuple[bool, bool], side: SideStream,
    finish: Callable[[Tensor], tuple[Tensor, ...]], before: Handover | None = None,
) -> tuple[Tensor | None, tuple[Tensor, ...] | None]:  # fmt: skip
    """Return the gradient of the input, and `finish` of the gradient of the weights, computed on the side stream.

    What is not wanted is None.
    """
    of_x, of_weight = wanted
    d_weights = side.queue(lambda: finish(_differentiate_weights(g, x, weight, geometry))) if of_weight else None
    return _differentiate_input(g, x, weight, geometry, before) if of_x else None, d_weights


class _Gradient(Function):
    """What a gradient is computed by."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: a gradient is not differentiated again."""


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
        return normalization.fold(to_channels_last(weight), gain, offset, mean, var, eps, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)


class Conv(Function):
    """A convolution. Its weights may be passed twice: as they are trained, and cast to the dtype of the input."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, cast: Tensor | None, geometry: Shape, side: SideStream) -> Tensor:
        return _convolve(x, weight if cast is None else cast, geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, cast, ctx.geometry, ctx.side = inputs
        ctx.save_for_backward(x, weight, *(() if cast is None else (cast,)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        of_x, of_weight = (bool(n) for n in ctx.needs_input_grad[:2])
        how = (ctx.geometry, (of_x, of_weight), ctx.side)
        return *ConvBack.apply(g, how, *ctx.saved_tensors), None, None, None


class ConvBack(_Gradient):
    @staticmethod
    def forward(
        g: Tensor, how: tuple[Shape, tuple[bool, bool], SideStream], x: Tensor, weight: Tensor, *cast: Tensor
    ) -> Any:
        def finish(d: Tensor) -> tuple[Tensor]:
            return (lay_out_like(d.to(weight.dtype), weight),)

        used = cast[0] if cast else weight
        d_x, d_weights = _convolve_back_beside(to_channels_last(g), x, used, *how, finish)
        return d_x, *(d_weights or (None,))


class ConvAct(Function):
    """act(frozen BatchNorm of a convolution + rest), with the BatchNorm folded into the weights and a shift.

    With a window, the largest of that in every window, and where it is. It is pooled before the shift is added: neither
    the shift nor the activation changes the order of two numbers, so the outputs are the same, and of all that follows
    the convolution only the pooling passes over whole images. (Numbers that the shift rounds to equal ones are still in
    order: the gradient goes to the larger, not to the first.) `rest` is None, and the convolution not depthwise.

    handover: that to this layer.   before: that to the layer which gave x, if nothing else reads x.
    """

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float, folded: Tensor,
        shift: Tensor, rest: Tensor | None, act: int, geometry: Shape, side: SideStream, window: Window | None,
        handover: Handover, before: Handover | None,
    ) -> Any:  # fmt: skip
        handover.act = act
        rest = None if rest is None else to_channels_last(rest)
        if isinstance(geometry, Depthwise):
            return (windows.convolve(to_channels_last(x), folded, geometry, shift, rest, act),)
        y = to_channels_last(_convolve(x, folded, geometry))
        y, *positions = (y,) if window is None else windows.pool(y, window)
        return normalization.shift_act(y, shift, rest, act), *positions

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, gain, _, mean, var, ctx.eps, folded, _, rest, ctx.act, ctx.geometry, ctx.side, *others = inputs
        ctx.window, ctx.handover, ctx.before = others
        out, *positions = output
        ctx.adds = rest is not None
        ctx.mark_non_differentiable(*positions)
        ctx.set_materialize_grads(False)
        kept = [out] if ctx.act != NONE else []
        ctx.save_for_backward(x, weight, gain, mean, var, folded, *positions, *kept)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:
        of_x, of_weight = bool(ctx.needs_input_grad[0]), any(ctx.needs_input_grad[1:4])
        how = (ctx.eps, ctx.act, ctx.geometry, (of_x, of_weight), ctx.side, ctx.window, ctx.handover.take(), ctx.before)
        d_x, d_weight, d_gain, d_offset, *masked = ConvActBack.apply(g, *how, *ctx.saved_tensors)
        d_rest = (masked[0] if masked else g) if ctx.adds else None
        return d_x, d_weight, d_gain, d_offset, *(None,) * 5, d_rest, *(None,) * 6


class ConvActBack(_Gradient):
    @staticmethod
    def forward(
        g: Tensor, eps: float, act: int, geometry: Shape, wanted: tuple[bool, bool], side: SideStream,
        window: Window | None, pieces: Tensor | None, before: Handover | None, x: Tensor, weight: Tensor, gain: Tensor,
        mean: Tensor, var: Tensor, folded: Tensor, *kept: Tensor,
    ) -> Any:  # fmt: skip
        g, weight = to_channels_last(g), to_channels_last(weight)
        if pieces is None:
            masked, pieces = normalization.shift_act_back(g, kept[-1] if act != NONE else g, act)
        else:
            masked, act = g, NONE  # nothing is left to mask
        d_y = masked
        if window is not None and not isinstance(geometry, Depthwise):
            d_y = windows.pool_back(masked, kept[0], measure_output(x, folded, geometry), window)
        d_x, d_weights = _convolve_back_beside(
            d_y, x, folded, geometry, wanted, side,
            lambda d: normalization.fold_back(to_channels_last(d), pieces, weight, gain, mean, var, eps), before,
        )  # fmt: skip
        return d_x, *(d_weights or (None,) * 3), *((masked,) if act != NONE else ())


class NormAct(Function):
    """act(BatchNorm by statistics of the batch + rest). Returns the statistics too, for the gradient."""

    @staticmethod
    def forward(x: Tensor, gain: Tensor, offset: Tensor, rest: Tensor | None, parts: int, eps: float, act: int) -> Any:
        return normalization.norm_act(
            to_channels_last(x), gain, offset, None if rest is None else to_channels_last(rest), parts, eps, act
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
        masks = ctx.adds and ctx.act != NONE
        d_x, d_gain, d_offset, *masked = NormActBack.apply(g, *ctx.saved_tensors, ctx.act, masks)
        d_rest = masked[0] if masks else g if ctx.adds else None
        return d_x, d_gain, d_offset, d_rest, None, None, None


class NormActBack(_Gradient):
    @staticmethod
    def forward(
        g: Tensor, x: Tensor, out: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, act: int, masks: bool
    ) -> Any:
        gradients = normalization.norm_act_back(
            to_channels_last(g), to_channels_last(x), to_channels_last(out), mean, rstd, gain, act, masks
        )
        return gradients if masks else gradients[:3]


class Pool(Function):
    """The largest number in every window, and where it is."""

    @staticmethod
    def forward(x: Tensor, window: Window) -> Any:
        return windows.pool(to_channels_last(x), window)

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


class PoolBack(_Gradient):
    @staticmethod
    def forward(g: Tensor, positions: Tensor, size: tuple[int, int], window: Window) -> Tensor:
        return windows.pool_back(to_channels_last(g), positions, size, window)
