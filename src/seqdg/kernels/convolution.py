"""A convolution and what follows it (BatchNorm, a shortcut, an activation, max pooling), in few passes over memory.

On a GPU, under a single gradient, these functions run Triton kernels, and under several they differentiate by `nested`.
Everywhere else (a CPU, a stack of trials, no Triton) they compute the same formulas in torch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d, relu, relu6

from seqdg.base import private
from seqdg.kernels import nested
from seqdg.kernels.geometry import (
    Depthwise,
    Geometry,
    Window,
    find_depthwise,
    has_depthwise_shape,
    lay_out_by_position,
    make_window,
    measure_output,
    pad_same,
)

ACTIVATIONS = ("none", "relu", "relu6")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_COPIES = 8  # of weights: the kernels of contrasts are written out for each number of them
_nesting = ContextVar("_nesting", default=False)
log = logging.getLogger("seqdg")


class FrozenBatchNorm(NamedTuple):
    """A BatchNorm whose statistics stay as they are."""

    gain: Tensor
    offset: Tensor
    mean: Tensor
    var: Tensor
    eps: float


class ConvLayer(NamedTuple):
    """A convolution, and the BatchNorm that is folded into it, if there is one."""

    weight: Tensor
    bias: Tensor | None = None
    norm: FrozenBatchNorm | None = None

    @property
    def trained_weights(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.norm is None else (self.weight, *self.norm[:2])

    def replace_trained_weights(self, weight: Tensor, *gain_and_offset: Tensor) -> ConvLayer:
        norm = self.norm and self.norm._replace(gain=gain_and_offset[0], offset=gain_and_offset[1])
        return self._replace(weight=weight, norm=norm)


class PreparedLayer(NamedTuple):
    """A layer for one pass through a net.

    With kernels, `used` holds the weights in the dtype of the convolution, with the BatchNorm folded in, and `shift`
    holds what the folding leaves to add. Both are computed on the side stream and are ready after `event`.
    nests: gradients of gradients are taken; then there is no side stream.
    handover: what a depthwise convolution, if it alone reads the output, passes back beside the gradient.
    """

    layer: ConvLayer
    side: Any = None  # a SideStream
    used: Tensor | None = None
    shift: Tensor | None = None
    event: Any = None
    nests: bool = False
    handover: Any = None  # a Handover


def prepare_layers(layers: Sequence[ConvLayer]) -> list[PreparedLayer]:
    """Prepare all convolutions of a net whose weights one pass uses once, before the first of them runs."""
    if layers and all(_nests_on(layer.weight) for layer in layers):
        return _prepare_to_nest(layers)
    if not layers or not all(_can_run_on(layer.weight) for layer in layers):
        return [PreparedLayer(layer) for layer in layers]
    from seqdg.kernels.differentiable import Enter, SideStream

    side = SideStream(layers[0].weight.device)
    trained = [w for layer in layers for w in layer.trained_weights if w.requires_grad]  # not those that are frozen
    entered = iter(Enter.apply(side, *trained) if trained else ())
    weights = [[next(entered) if w.requires_grad else w for w in layer.trained_weights] for layer in layers]
    return [_prepare(layer.replace_trained_weights(*ws), side) for layer, ws in zip(layers, weights, strict=True)]


def _prepare(layer: ConvLayer, side: Any) -> PreparedLayer:
    from seqdg.kernels.differentiable import Fold, Handover

    dtype = _choose_dtype(layer.weight)
    if layer.bias is not None:
        return PreparedLayer(layer)
    if layer.norm is not None:
        (used, shift), event = side.run(lambda: Fold.apply(layer.weight, *layer.norm, dtype))
        return PreparedLayer(layer, side, used, shift, event, handover=Handover())
    weight = layer.weight.detach()
    if has_depthwise_shape(weight):
        used, event = side.run(lambda: lay_out_by_position(weight).to(dtype))
    elif weight.dtype == dtype:
        return PreparedLayer(layer, side)
    else:
        used, event = side.run(lambda: weight.contiguous(memory_format=torch.channels_last).to(dtype))
    return PreparedLayer(layer, side, used, None, event)


def _prepare_to_nest(layers: Sequence[ConvLayer]) -> list[PreparedLayer]:
    """Fold every frozen BatchNorm into its weights: for all layers at once, as far as it is arithmetic by channel."""
    norms = [layer.norm for layer in layers if layer.norm is not None]
    folded: list[tuple[Tensor, Tensor]] = []
    if norms:
        gain, offset, mean = (torch.cat(parts) for parts in zip(*(norm[:3] for norm in norms), strict=True))
        scale = gain * torch.rsqrt(torch.cat([norm.var + norm.eps for norm in norms]))
        sizes = [len(norm.gain) for norm in norms]
        folded = list(zip(scale.split(sizes), (offset - mean * scale).split(sizes), strict=True))
    return [_fold_to_nest(layer, *(() if layer.norm is None else folded.pop(0))) for layer in layers]


def _fold_to_nest(layer: ConvLayer, scale: Tensor | None = None, shift: Tensor | None = None) -> PreparedLayer:
    used = layer.weight if scale is None else layer.weight * scale.reshape(-1, 1, 1, 1)
    if scale is not None and shift is not None and layer.bias is not None:
        shift = shift + layer.bias * scale
    return PreparedLayer(layer, None, used.to(_choose_dtype(used)), shift, nests=True)


def convolve(x: Tensor, prepared: PreparedLayer, geometry: Geometry) -> Tensor:
    layer = prepared.layer
    if prepared.nests and prepared.used is not None:
        x, geometry = pad_same(x, layer.weight, geometry)
        y = nested.convolve(x.to(prepared.used.dtype), prepared.used, geometry)
        return y if layer.bias is None else y + layer.bias.to(y.dtype).reshape(-1, 1, 1)
    if prepared.side is not None:
        prepared.side.wait_for(prepared.event)
        x = x.to(_choose_dtype(x))
        if _can_run_on(x) and x.dtype == (layer.weight if prepared.used is None else prepared.used).dtype:
            from seqdg.kernels.differentiable import Conv

            x, shape = _choose_geometry(x, layer.weight, geometry)
            out: Tensor = Conv.apply(x, layer.weight, prepared.used, shape, prepared.side)
            return out
    x, geometry = pad_same(x, layer.weight, geometry)
    return conv2d(x, layer.weight, layer.bias, *geometry)


def convolve_and_activate(
    x: Tensor,
    prepared: PreparedLayer,
    rest: Tensor | None,
    act: str,
    geometry: Geometry,
    before: PreparedLayer | None = None,
) -> Tensor:
    """act(frozen BatchNorm of a convolution + rest), with the BatchNorm folded into the convolution's weights.

    before: the layer that gave x, if nothing else reads x.
    """
    weight, bias, norm = prepared.layer
    assert norm is not None
    if prepared.nests and prepared.used is not None and prepared.shift is not None:
        x, geometry = pad_same(x.to(prepared.used.dtype), weight, geometry)
        rest = rest if rest is None else rest.to(x.dtype)
        entries = max(x.numel(), _count_outputs(x, weight, geometry))
        launches = x.is_cuda and x.dtype in _DTYPES and entries < 2**31 and has_triton()
        how = (ACTIVATIONS.index(act), geometry, launches)
        return nested.convolve_and_activate(x, prepared.used, prepared.shift, rest, *how)
    out = _convolve_by_kernels(x, prepared, rest, act, geometry, before=before)
    if out is not None:
        return out
    scale = norm.gain * torch.rsqrt(norm.var + norm.eps)
    shift = norm.offset - norm.mean * scale
    if bias is not None:
        shift = shift + bias * scale
    x, geometry = pad_same(x, weight, geometry)
    y = conv2d(x, weight * scale.reshape(-1, 1, 1, 1), None, *geometry)
    y = y + shift.to(y.dtype).reshape(-1, 1, 1)  # autocast under vmap would leave a bias in single precision
    return add_and_activate(y, rest, act)


def convolve_activate_and_pool(x: Tensor, prepared: PreparedLayer, act: str, geometry: Geometry, *sizes: Any) -> Tensor:
    """The largest number in every window of act(frozen BatchNorm of a convolution). sizes: those of `pool_largest`."""
    window = make_window(*sizes)
    out = None if window is None else _convolve_by_kernels(x, prepared, None, act, geometry, window)
    return pool_largest(convolve_and_activate(x, prepared, None, act, geometry), *sizes) if out is None else out


def _convolve_by_kernels(
    x: Tensor,
    prepared: PreparedLayer,
    rest: Tensor | None,
    act: str,
    geometry: Geometry,
    window: Window | None = None,
    before: PreparedLayer | None = None,
) -> Tensor | None:
    """Return act(frozen BatchNorm of a convolution + rest), pooled if there is a window; None if no kernel can run."""
    weight, _, norm = prepared.layer
    if prepared.side is None or prepared.used is None or norm is None:
        return None
    prepared.side.wait_for(prepared.event)
    x = x.to(_choose_dtype(x))
    if not _can_run_on(x) or any(t.dtype != prepared.used.dtype for t in (x, rest) if t is not None):
        return None
    from seqdg.kernels.differentiable import ConvAct

    x, shape = _choose_geometry(x, weight, geometry) if window is None else pad_same(x, weight, geometry)
    if not isinstance(shape, Depthwise) and _count_outputs(x, weight, shape) >= 2**31:
        return None
    handed = (prepared.handover, None if before is None else before.handover)
    how = (ACTIVATIONS.index(act), shape, prepared.side, window, *handed)
    out: Tensor = ConvAct.apply(x, weight, *norm, prepared.used, prepared.shift, rest, *how)[0]
    return out


def _choose_geometry(x: Tensor, weight: Tensor, geometry: Geometry) -> tuple[Tensor, Geometry | Depthwise]:
    """Return the input and the geometry for a depthwise kernel, or else for torch, which pads by a copy."""
    shape = find_depthwise(x, weight, geometry)
    return (x, shape) if shape is not None else pad_same(x, weight, geometry)


def _count_outputs(x: Tensor, weight: Tensor, geometry: Geometry) -> int:
    """Count the entries of what a convolution gives: the kernels number positions in 32 bits."""
    return len(x) * len(weight) * math.prod(measure_output(x, weight, geometry))


def normalize_and_activate(
    x: Tensor, gain: Tensor, offset: Tensor, rest: Tensor | None, parts: int, eps: float, act: str
) -> Tensor | None:
    """act(normalized x * gain + offset + rest), or None where no kernel can run.

    The batch consists of `parts` equal parts, and each is normalized by its own statistics.
    """
    if not _can_run_on(x) or (rest is not None and rest.dtype != x.dtype):
        return None
    from seqdg.kernels.differentiable import NormAct

    out: Tensor = NormAct.apply(x, gain, offset, rest, parts, eps, ACTIVATIONS.index(act))[0]
    return out


def add_and_activate(x: Tensor, rest: Tensor | None, act: str) -> Tensor:
    """act(x + rest)"""
    if rest is not None:
        x = x + rest
    return relu(x) if act == "relu" else relu6(x) if act == "relu6" else x


def pool_largest(x: Tensor, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Tensor:
    """The largest number in every window."""
    if _nests_on(x):
        return nested.pool_largest(x, size, stride, padding, dilation, ceil)
    window = make_window(size, stride, padding, dilation, ceil)
    if window is not None and _can_run_on(x):
        from seqdg.kernels.differentiable import Pool

        out: Tensor = Pool.apply(x, window)[0]
        return out
    return max_pool2d(x, size, stride, padding, dilation, ceil)


def can_run_kernels(x: Tensor) -> bool:
    """Whether Triton is installed, at most one gradient is taken and no compiler is tracing.

    The kernels have no second derivative and do not work on stacks (`vmap`).
    """
    if not x.is_cuda or x.numel() >= 2**31 or private.is_fake(x) or not has_triton():
        return False
    return private.list_transforms() in ([], ["grad"])


def can_contrast(copies: Tensor) -> bool:
    """Whether the kernels of contrasts can run: inside one `vmap` over trials, on a GPU."""
    if private.list_transforms() != ["vmap"] or not copies.is_cuda or len(copies) > MOST_COPIES or not has_triton():
        return False
    return not private.is_fake(private.unwrap(copies))


def can_nest(x: Tensor) -> bool:
    """Whether `nest` makes a difference here: on a GPU, outside stacks (`vmap`), with no compiler tracing."""
    return x.is_cuda and not private.is_fake(x) and set(private.list_transforms()) <= {"grad"}


@contextmanager
def nest() -> Iterator[None]:
    """Take gradients of gradients by `nested`, where `can_nest`. No gradient may be taken under `vmap`."""
    before = _nesting.set(True)
    try:
        yield
    finally:
        _nesting.reset(before)


def _nests_on(x: Tensor) -> bool:
    is_nested = _nesting.get() and len(private.list_transforms()) > 1
    return is_nested and x.dim() == 4 and x.is_floating_point() and can_nest(x)


def _can_run_on(x: Tensor) -> bool:
    return x.dim() == 4 and x.dtype in _DTYPES and can_run_kernels(x)


def _choose_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that autocast, if it is on, gives to the inputs of a convolution."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@cache
def has_triton() -> bool:
    try:
        import seqdg.kernels.normalization  # noqa: F401
    except ImportError:
        log.info("Triton is not installed: activations take more passes over memory.")
        return False
    return True
