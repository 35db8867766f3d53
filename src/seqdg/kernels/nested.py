"""Layers of which gradients of gradients cost no more than their arithmetic, to any depth.

The gradient of a convolution is two more convolutions. torch computes gradients of these as convolutions whose kernels
are as large as an image, which is slow. But y = w * x belongs to a trilinear form,

    t(y, x, w) = <y, w * x>

The gradient by each of its arguments is bilinear in the other two, and so on: three kernels, all of them fast, serve
every depth. Likewise, what an activation lets pass is linear in what comes in, forward and back, and stays so when it
is differentiated. So is what a maximum over windows lets pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from seqdg.kernels.geometry import NONE, RELU6, Geometry, lay_out_like, to_channels_last

aten = torch.ops.aten
Y, X, W = range(3)  # the arguments of the trilinear form


class Form(NamedTuple):
    """The trilinear form of a convolution."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    x: tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides of the input
    w: tuple[tuple[int, ...], tuple[int, ...]]  # and of the weights

    def differentiate(self, by: int, a: Tensor, b: Tensor) -> Tensor:
        """Return the gradient of the form by one argument, from the two that follow it, in the order Y, X, W, Y."""
        geometry = (self.stride, self.padding, self.dilation, False, (0, 0), self.groups)
        a, b = _lay_out(a), _lay_out(b)
        if by == Y:
            y: Tensor = aten.convolution(a, b, None, *geometry)
            return y
        if by == X:  # only the shape of an empty tensor counts
            x = a.new_empty_strided(*self.x)
            d_x: Tensor = aten.convolution_backward(b, x, a, None, *geometry, (True, False, False))[0]
            return d_x
        w = a.new_empty_strided(*self.w)
        d_w: Tensor = aten.convolution_backward(a, b, w, None, *geometry, (False, True, False))[1]
        return lay_out_like(d_w, w)


def _lay_out(t: Tensor) -> Tensor:
    """Lay a tensor out as a GPU convolves it fastest."""
    return to_channels_last(t) if t.is_cuda else t


class Product(Function):
    """The gradient of a form by one argument."""

    @staticmethod
    def forward(form: Form, by: int, a: Tensor, b: Tensor) -> Tensor:
        return form.differentiate(by, a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.form, ctx.by, a, b = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, b = ctx.saved_tensors
        of_a, of_b = ctx.needs_input_grad[2:]
        d_a = Product.apply(ctx.form, (ctx.by + 1) % 3, b, g) if of_a else None
        d_b = Product.apply(ctx.form, (ctx.by + 2) % 3, g, a) if of_b else None
        return None, None, d_a, d_b


def convolve(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    form = Form(*geometry, (tuple(x.shape), x.stride()), (tuple(w.shape), w.stride()))
    y: Tensor = Product.apply(form, Y, x, w)
    return y


def convolve_and_activate(
    x: Tensor, w: Tensor, shift: Tensor, rest: Tensor | None, act: int, geometry: Geometry, launches: bool
) -> Tensor:
    """act(w * x + shift + rest). launches: Triton kernels, for what follows the convolution."""
    y = convolve(x, w, geometry)
    if act == NONE:
        y = y + shift.to(y.dtype).reshape(-1, 1, 1)
        return y if rest is None else y + rest
    out: Tensor = Activate.apply(y, shift, rest, act, launches)
    return out


class Activate(Function):
    """act(y + shift + rest)"""

    @staticmethod
    def forward(y: Tensor, shift: Tensor, rest: Tensor | None, act: int, launches: bool) -> Tensor:
        if launches:
            from seqdg.kernels import normalization

            y = to_channels_last(y)
            return normalization.shift_act(
                y, shift, None if rest is None else to_channels_last(rest), act, torch.empty_like(y)
            )
        y = y + shift.to(y.dtype).reshape(-1, 1, 1)
        return (y if rest is None else y + rest).clamp(0, 6 if act == RELU6 else None)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, shift, rest, *ctx.how = inputs
        ctx.adds, ctx.dtype = rest is not None, shift.dtype
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        d_y, d_shift = PassBack.apply(g, *ctx.saved_tensors, ctx.dtype, *ctx.how)
        return d_y, d_shift, d_y if ctx.adds else None, None, None


class Pass(Function):
    """The part of t + shift that the activation with this output lets pass."""

    @staticmethod
    def forward(t: Tensor, shift: Tensor, out: Tensor, act: int, launches: bool) -> Tensor:
        if launches:
            from seqdg.kernels import normalization

            return normalization.shift_pass(to_channels_last(t), shift, out, act)
        return _mask(t + shift.to(t.dtype).reshape(-1, 1, 1), out, act)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, shift, out, *ctx.how = inputs
        ctx.dtype = shift.dtype
        ctx.save_for_backward(out)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return *PassBack.apply(g, *ctx.saved_tensors, ctx.dtype, *ctx.how), None, None, None


class PassBack(Function):
    """The part of a gradient that passes back through the activation with this output, and its sum by channel."""

    @staticmethod
    def forward(g: Tensor, out: Tensor, dtype: torch.dtype, act: int, launches: bool) -> Any:
        if launches:
            from seqdg.kernels import normalization

            m, pieces = normalization.shift_act_back(to_channels_last(g), out, act)
            return m, pieces.sum(0)
        m = _mask(g, out, act)
        return m, m.sum((0, 2, 3), dtype=dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, out, _, *ctx.how = inputs
        ctx.save_for_backward(out)

    @staticmethod
    def backward(ctx: Any, t: Tensor, shift: Tensor) -> Any:
        return Pass.apply(t, shift, *ctx.saved_tensors, *ctx.how), None, None, None, None


def _mask(g: Tensor, out: Tensor, act: int) -> Tensor:
    passes = (out > 0) & (out < 6) if act == RELU6 else out > 0
    return torch.where(passes, g, 0)


def pool_largest(x: Tensor, *window: Any) -> Tensor:
    """The largest number in every window: its size, stride, padding, dilation, and whether it may be cut off."""
    out: Tensor = Pool.apply(x, window)[0]
    return out


class Pool(Function):
    """The largest number in every window, and where it is."""

    @staticmethod
    def forward(x: Tensor, window: tuple[Any, ...]) -> Any:
        return aten.max_pool2d_with_indices(x, *window)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, window = inputs
        ctx.how = ((tuple(x.shape), x.stride()), window)
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        return PutBack.apply(g, *ctx.saved_tensors, *ctx.how), None


class _ByPlaces(Function):
    """A linear map that the positions of the largest numbers of windows define; each of two is the other's gradient."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, positions, *ctx.how = inputs
        ctx.save_for_backward(positions)


class PutBack(_ByPlaces):
    """Add each number to where the largest of its window was."""

    @staticmethod
    def forward(g: Tensor, positions: Tensor, form: tuple[Any, Any], window: tuple[Any, ...]) -> Tensor:
        x = g.new_empty_strided(*form)  # only its shape counts
        d_x: Tensor = aten.max_pool2d_with_indices_backward(_lay_out(g), x, *window, positions)
        return d_x

    @staticmethod
    def backward(ctx: Any, t: Tensor) -> Any:
        return Take.apply(t, *ctx.saved_tensors, *ctx.how), None, None, None


class Take(_ByPlaces):
    """Take the number at the position of the largest of each window."""

    @staticmethod
    def forward(t: Tensor, positions: Tensor, form: tuple[Any, Any], window: tuple[Any, ...]) -> Tensor:
        return _lay_out(t.flatten(2).gather(2, positions.flatten(2)).reshape(positions.shape))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return PutBack.apply(g, *ctx.saved_tensors, *ctx.how), None, None, None
