"""What follows a convolution (BatchNorm, a shortcut, an activation), in as few passes over memory as there can be.

On a GPU, under one gradient, these are Triton kernels; everywhere else (a CPU, a stack of trials, gradients of
gradients, no Triton) the same formulas in torch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.nn.functional import conv2d, relu, relu6

Shape = tuple[Any, Any, Any, int]  # stride, padding, dilation, groups
ACTIVATIONS = ("none", "relu", "relu6")
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
log = logging.getLogger("seqdg")


class Frozen(NamedTuple):
    """A BatchNorm by statistics that stay as they are."""

    gain: Tensor
    offset: Tensor
    mean: Tensor
    var: Tensor
    eps: float


class Layer(NamedTuple):
    """A convolution, and the BatchNorm that is folded into it, where one is."""

    weight: Tensor
    bias: Tensor | None = None
    norm: Frozen | None = None

    def trained(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.norm is None else (self.weight, *self.norm[:2])

    def with_trained(self, weight: Tensor, *of_norm: Tensor) -> Layer:
        norm = self.norm and self.norm._replace(gain=of_norm[0], offset=of_norm[1])
        return self._replace(weight=weight, norm=norm)


class Ready(NamedTuple):
    """A layer for one pass through a net: with kernels, `used` are the weights in the type that the convolution takes,
    the BatchNorm folded in and `shift` left of it. Both are made aside, and there after `made`."""

    layer: Layer
    aside: Any = None
    used: Tensor | None = None
    shift: Tensor | None = None
    made: Any = None


def prepare(layers: Sequence[Layer]) -> list[Ready]:
    """All convolutions of a net whose weights this pass uses once, before the first of them."""
    if not layers or not all(_kernels_run(layer.weight) for layer in layers):
        return [Ready(layer) for layer in layers]
    from seqdg.kernels.aside import Aside
    from seqdg.kernels.functions import Enter

    aside = Aside(layers[0].weight.device)
    trained = [w for layer in layers for w in layer.trained() if w.requires_grad]  # not those that are frozen
    entered = iter(Enter.apply(aside, *trained) if trained else ())
    own = [[next(entered) if w.requires_grad else w for w in layer.trained()] for layer in layers]
    return [_made(layer.with_trained(*weights), aside) for layer, weights in zip(layers, own, strict=True)]


def _made(layer: Layer, aside: Any) -> Ready:
    from seqdg.kernels.functions import Fold

    dtype = _type_of(layer.weight)
    if layer.bias is not None:
        return Ready(layer)
    if layer.norm is not None:
        (used, shift), made = aside.do(lambda: Fold.apply(layer.weight, *layer.norm, dtype))
        return Ready(layer, aside, used, shift, made)
    if layer.weight.dtype == dtype:
        return Ready(layer, aside)
    weight = layer.weight.detach()
    used, made = aside.do(lambda: weight.contiguous(memory_format=torch.channels_last).to(dtype))
    return Ready(layer, aside, used, None, made)


def conv(x: Tensor, ready: Ready, shape: Shape) -> Tensor:
    """A convolution."""
    layer = ready.layer
    if ready.aside is not None:
        ready.aside.wait_for(ready.made)
        x = x.to(_type_of(x))
        if _kernels_run(x) and x.dtype == (layer.weight if ready.used is None else ready.used).dtype:
            from seqdg.kernels.functions import Conv

            out: Tensor = Conv.apply(x, layer.weight, ready.used, shape, ready.aside)
            return out
    return conv2d(x, layer.weight, layer.bias, *shape)


def conv_act(x: Tensor, ready: Ready, rest: Tensor | None, act: str, shape: Shape) -> Tensor:
    """act(frozen BatchNorm of a convolution + rest), the BatchNorm folded into the convolution's weights."""
    weight, bias, norm = ready.layer
    assert norm is not None
    if ready.used is not None:
        ready.aside.wait_for(ready.made)
        x = x.to(_type_of(x))
        if _kernels_run(x) and all(t.dtype == ready.used.dtype for t in (x, rest) if t is not None):
            from seqdg.kernels.functions import ConvAct

            how = (ACTIVATIONS.index(act), shape, ready.aside)
            out: Tensor = ConvAct.apply(x, weight, *norm, ready.used, ready.shift, rest, *how)
            return out
    scale = norm.gain * torch.rsqrt(norm.var + norm.eps)
    shift = norm.offset - norm.mean * scale
    if bias is not None:
        shift = shift + bias * scale
    y = conv2d(x, weight * scale.reshape(-1, 1, 1, 1), None, *shape)
    y = y + shift.to(y.dtype).reshape(-1, 1, 1)  # autocast under vmap would leave a bias in single precision
    return finish(y, rest, act)


def norm_act(
    x: Tensor, gain: Tensor, offset: Tensor, rest: Tensor | None, parts: int, eps: float, act: str
) -> Tensor | None:
    """act(normalized x * gain + offset + rest), each of some equal parts of a batch by statistics of its own; None
    where no kernel is at hand."""
    if not _kernels_run(x) or (rest is not None and rest.dtype != x.dtype):
        return None
    from seqdg.kernels.functions import NormAct

    out: Tensor = NormAct.apply(x, gain, offset, rest, parts, eps, ACTIVATIONS.index(act))[0]
    return out


def _type_of(x: Tensor) -> torch.dtype:
    """That autocast, where it is on, gives to what a convolution takes."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def finish(x: Tensor, rest: Tensor | None, act: str) -> Tensor:
    if rest is not None:
        x = x + rest
    return relu(x) if act == "relu" else relu6(x) if act == "relu6" else x


def kernels_run(x: Tensor) -> bool:
    """Whether Triton is there and nothing but one gradient is taken: kernels have no second derivative, and know
    nothing of stacks."""
    if not x.is_cuda or x.numel() >= 2**31 or not _has_triton():
        return False
    levels: list[Any] = [level.key() for level in retrieve_all_functorch_interpreters()]
    return levels in ([], [TransformType.Grad])


def _kernels_run(x: Tensor) -> bool:
    return x.dim() == 4 and x.dtype in _TYPES and kernels_run(x)


@cache
def _has_triton() -> bool:
    try:
        import seqdg.kernels.triton_convolution  # noqa: F401
    except ImportError:
        log.info("Triton is not installed: activations take more passes over memory.")
        return False
    return True
