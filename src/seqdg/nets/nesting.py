"""Gradients of gradients that are right to any depth.

Some of torch's functions cannot be differentiated as often as exact S-MLDG and others need. The third derivatives of
layer norm, of batch norm by a batch's statistics and of instance norm are wrong; so are their second ones where the
first was taken under `vmap`, as in IGA, and so is the second of weight norm: all without an error. Fused attention and
the hard sigmoid have no second derivative, and the gated linear unit none that goes forward twice. Where gradients nest
that deep, these are composed of functions whose derivatives are right. Elsewhere all is as torch has it, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from seqdg.base import UsageError, private

aten = torch.ops.aten


def compose_where_nested() -> AbstractContextManager[None]:
    """Compose, in the pass inside, what cannot be differentiated as often as the gradients at work will do."""
    if private.count_transforms() < 2:
        return nullcontext()
    transforms = private.list_transforms()
    indices = [i for i, name in enumerate(transforms) if name in ("grad", "jvp")]
    if len(indices) < 2:
        return nullcontext()
    is_stacked = "vmap" in transforms[indices[0] : indices[-1]]  # a gradient of gradients that one `vmap` takes
    return _compose(max(len(indices), 3) if is_stacked else len(indices))


@contextmanager
def _compose(depth: int) -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # torch chooses how attention is computed below the functions that a mode sees: a layer calls them inside.
        with sdpa_kernel(SDPBackend.MATH), _Composing(depth):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Composing(TorchFunctionMode):
    """Replaces functions by compositions, whether a layer calls them, a user's subclass of it or a forward pass."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.composed = {function: compose for function, (least, compose) in _COMPOSED.items() if least <= depth}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operation = _find_operation(func)
        if operation in _UNFIT and operation not in _BAGS:
            raise UsageError(f"Gradients of gradients are taken, and {_blame(operation)}. Replace it.")
        return self.composed.get(operation, func)(*args, **(kwargs or {}))


def _find_operation(function: Any) -> Any:
    """Return what `torch.ops` has by an operation's name, also for one of its overloads; another function as it is."""
    return getattr(function, "overloadpacket", function)


# ---------------------------------------------------------------------------- compositions, with torch's arguments


def _standardize(
    x: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float, shape: Sequence[int]
) -> Tensor:
    """weight * (x - mean) / sqrt(variance + eps) + bias, over these axes and at least in single precision.

    shape: of the weight and the bias, beside x.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    apart = wide - wide.mean(axes, keepdim=True)
    out = apart * torch.rsqrt((apart * apart).mean(axes, keepdim=True) + eps)
    if weight is not None:
        out = out * weight.reshape(shape)
    if bias is not None:
        out = out + bias.reshape(shape)
    return out.to(x.dtype)


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    axes = tuple(range(-len(normalized_shape), 0))
    return _standardize(input, axes, weight, bias, eps, normalized_shape)


def _batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Running statistics stay as they are: a pass changes no buffer."""
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _standardize(input, (0, *range(2, input.dim())), weight, bias, eps, (-1, *[1] * (input.dim() - 2)))


def _instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    if not use_input_stats:
        return F.instance_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _standardize(input, tuple(range(2, input.dim())), weight, bias, eps, (-1, *[1] * (input.dim() - 2)))


def _batch_norm_of_torch(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _instance_norm_of_torch(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    others = None if dim == -1 else [d for d in range(v.dim()) if d != dim % v.dim()]
    size: Tensor = torch.linalg.vector_norm(v, dim=others, keepdim=others is not None)
    return v * (g / size)


def _hard_sigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    return F.relu6(input + 3.0) / 6.0


def _gated_linear_unit(input: Tensor, dim: int = -1) -> Tensor:
    kept, gate = input.chunk(2, dim)
    return kept * torch.sigmoid(gate)


# By function: from how many nested gradients on it is composed, and of what. (3 is 2 where a `vmap` lies between.)
_COMPOSED: dict[Any, tuple[int, Callable[..., Tensor]]] = {
    F.layer_norm: (3, _layer_norm),
    torch.layer_norm: (3, _layer_norm),
    aten.layer_norm: (3, _layer_norm),
    F.batch_norm: (3, _batch_norm),
    torch.batch_norm: (3, _batch_norm_of_torch),
    aten.batch_norm: (3, _batch_norm_of_torch),
    F.instance_norm: (3, _instance_norm),
    torch.instance_norm: (3, _instance_norm_of_torch),
    aten.instance_norm: (3, _instance_norm_of_torch),
    **dict.fromkeys(private.WEIGHT_NORMS, (2, _weight_norm)),
    F.glu: (3, _gated_linear_unit),
    aten.glu: (3, _gated_linear_unit),
    F.hardsigmoid: (2, _hard_sigmoid),
    aten.hardsigmoid: (2, _hard_sigmoid),
}

# ---------------------------------------------------------------------------- what cannot be composed

_BAGS = (F.embedding_bag, torch.embedding_bag, aten.embedding_bag)  # whose weights may be constants
_UNFIT = frozenset({
    *_BAGS, F.pdist, torch.pdist, aten.pdist, torch.cdist, aten.cdist, torch.native_layer_norm, aten.native_layer_norm,
    torch.native_batch_norm, aten.native_batch_norm, torch.cudnn_batch_norm, aten.cudnn_batch_norm, torch.logcumsumexp,
    torch.Tensor.logcumsumexp, aten.logcumsumexp, *private.BELOW_LAYERS,
})  # fmt: skip


def find_barrier(module: nn.Module, graph: fx.Graph | None) -> str | None:
    """Say what of a module is not rightly differentiated twice and more, or hides what it calls; None if nothing is.

    graph: the module's, if it can be traced.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule) or _calls_script(layer):
            return f"its layer '{name}' is of TorchScript or calls it, which hides the functions inside"
        if isinstance(layer, nn.EmbeddingBag) and any(p.requires_grad for p in layer.parameters()):
            return f"torch cannot do that rightly with its layer '{name}' (EmbeddingBag)"
    for node in graph.nodes if graph is not None else ():
        called = getattr(torch.Tensor, node.target, None) if node.op == "call_method" else _find_operation(node.target)
        if node.op in ("call_function", "call_method") and called in _UNFIT:
            return _blame(called)
    return None


def _blame(function: Any) -> str:
    return f"torch cannot do that rightly with {getattr(function, '__name__', function)}(), which it calls"


def _calls_script(layer: nn.Module) -> bool:
    """Whether a forward pass that is written in Python names a function of TorchScript."""
    passes = [vars(kind)["forward"] for kind in type(layer).__mro__ if "forward" in vars(kind)]
    return any(
        isinstance(function.__globals__.get(name), torch.jit.ScriptFunction)
        for function in passes
        if isinstance(function, FunctionType)
        for name in function.__code__.co_names
    )
