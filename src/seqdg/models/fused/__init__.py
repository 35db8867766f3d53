"""What follows a convolution (BatchNorm, a shortcut, an activation), in as few passes over memory as there can be.

On a GPU, under one gradient, these are Triton kernels; everywhere else (a CPU, a stack of trials, gradients of
gradients, no Triton) the same formulas in torch.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.nn.functional import conv2d, relu, relu6

Shape = tuple[Any, Any, Any, int]  # stride, padding, dilation, groups
ACTIVATIONS = ("none", "relu", "relu6")
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
log = logging.getLogger("seqdg")


def conv_act(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float,
    rest: Tensor | None, act: str, shape: Shape,
) -> Tensor:  # fmt: skip
    """act(frozen BatchNorm of a convolution + rest), the BatchNorm folded into the convolution's weights."""
    kind = x.device.type
    if bias is None and _kernels_run(x):
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        if rest is None or rest.dtype == x.dtype:
            from seqdg.models.fused.functions import ConvAct

            out: Tensor = ConvAct.apply(x, weight, gain, offset, mean, var, rest, eps, ACTIVATIONS.index(act), shape)[0]
            return out
    scale = gain * torch.rsqrt(var + eps)
    shift = offset - mean * scale
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
    from seqdg.models.fused.functions import NormAct

    out: Tensor = NormAct.apply(x, gain, offset, rest, parts, eps, ACTIVATIONS.index(act))[0]
    return out


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
        import seqdg.models.fused.kernels  # noqa: F401
    except ImportError:
        log.info("Triton is not installed: activations take more passes over memory.")
        return False
    return True
