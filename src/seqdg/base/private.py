"""The one adapter to private parts of torch and scikit-learn: a new release of theirs breaks this file alone.

Private is what they may change without notice: a name with a leading underscore, of a module, a function, a class, an
attribute or an argument. Each function here says what is needed and why the public interface does not offer it.
`tests/base/test_private.py` lists everything, and proves that no other file uses a private name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import get_unwrapped, peek_interpreter_stack
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

# The layers of any number of dimensions, so that `isinstance` knows a user's subclasses too.
BatchNormLayer = _BatchNorm
ConvolutionLayer = _ConvNd
DropoutLayer = _DropoutNd

DispatchMode = TorchDispatchMode  # the base class of what sees every operation, below the transforms of torch.func
WEIGHT_NORMS: tuple[Any, ...] = (
    torch._weight_norm,
    torch.ops.aten._weight_norm,
)  # of both kinds; it has no public name
# What has wrong derivatives or none where a net was exported, or calls torch below its public functions.
BELOW_LAYERS: tuple[Any, ...] = (
    torch._batch_norm_impl_index, torch.ops.aten._batch_norm_impl_index,
    torch._native_batch_norm_legit, torch.ops.aten._native_batch_norm_legit,
    torch._weight_norm_interface, torch.ops.aten._weight_norm_interface,
)  # fmt: skip
COPY_TO_TYPE: Any = torch.ops.aten._to_copy.default  # what `Tensor.to` becomes; the operation has no public name

# ---------------------------------------------------------------------------- transforms of torch.func


def is_transformed() -> bool:
    """Whether a transform of torch.func is at work, such as the `vmap` over the trials of a stack."""
    return peek_interpreter_stack() is not None


def count_transforms() -> int:
    """Count the transforms of torch.func at work, sooner than `list_transforms` does: every pass through a net asks."""
    innermost = peek_interpreter_stack()
    return 0 if innermost is None else int(innermost.level())


def list_transforms() -> list[str]:
    """List the transforms of torch.func at work, the outermost first: "grad", "vmap", "jvp", "functionalize".

    Kernels need it: they have no second derivative and no rule for `vmap`, so they run only where neither is at work.
    """
    return [level.key().name.lower() for level in retrieve_all_functorch_interpreters()]


def is_fake(tensor: Tensor) -> bool:
    """Whether a compiler is tracing with this tensor: it has a shape and no numbers."""
    return isinstance(tensor, FakeTensor)


def unwrap(tensor: Tensor) -> Tensor:
    """Return the tensor that the innermost transform of torch.func has wrapped."""
    return get_unwrapped(tensor)


# ---------------------------------------------------------------------------- many tensors in one launch

Tensors = list[Tensor] | tuple[Tensor, ...]


def add_each(tensors: Tensors, others: Tensors, scale: float = 1.0) -> Tensors:
    """Return t + scale * other of every pair. torch.optim does it so; there is no public function."""
    return torch._foreach_add(tensors, others, alpha=scale)


def subtract_each(tensors: Tensors, others: Tensors) -> Tensors:
    """Return t - other of every pair."""
    return torch._foreach_sub(tensors, others)


def multiply_each(tensors: Tensors, factor: float | Tensor) -> Tensors:
    """Return factor * t of every tensor."""
    return torch._foreach_mul(tensors, factor)


def add_each_in_place(tensors: Tensors, others: Tensors, scale: float) -> None:
    """Write t + scale * other over t, of every pair."""
    torch._foreach_add_(tensors, others, alpha=scale)


def add_to_each_in_place(tensors: Tensors, number: float) -> None:
    """Write t + number over every t."""
    torch._foreach_add_(tensors, number)


def copy_each(targets: Tensors, sources: Tensors) -> None:
    """Write every source over its target."""
    torch._foreach_copy_(targets, sources)


# ---------------------------------------------------------------------------- fused optimizers


def step_sgd(
    weights: list[Tensor], directions: list[Tensor], velocities: list[Tensor], lr: Any, momentum: Any, weight_decay: Any
) -> None:
    """Take the step of SGD with momentum in place, in one pass over memory.

    torch.optim.SGD(fused=True) reaches this kernel only for leaves with a `.grad`, and our weights are plain tensors.
    """
    torch._fused_sgd_(
        weights, directions, velocities, weight_decay=weight_decay, momentum=momentum, lr=lr,
        dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip


def step_adam(
    weights: list[Tensor], directions: list[Tensor], first: list[Tensor], second: list[Tensor], counts: list[Tensor],
    lr: Any, beta1: Any, beta2: float, weight_decay: Any, eps: float, coupled: bool,
) -> None:  # fmt: skip
    """Take the step of Adam in place, in one pass over memory, for the reason that `step_sgd` gives.

    coupled: the weight decay is part of the direction, as in torch.optim.Adam; otherwise as in AdamW.
    """
    update: Any = torch._fused_adam_ if coupled else torch._fused_adamw_
    update(
        weights, directions, first, second, [], counts,
        lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, eps=eps, amsgrad=False, maximize=False,
    )  # fmt: skip


# ---------------------------------------------------------------------------- nested tensors


def flatten(nested: Any) -> tuple[list[Any], Any]:
    """Return the leaves of nested lists, tuples and dictionaries, and their structure. torch.func walks them so."""
    return _pytree.tree_flatten(nested)


def unflatten(leaves: Iterable[Any], structure: Any) -> Any:
    """Return the leaves in the structure that `flatten` gave."""
    return _pytree.tree_unflatten(leaves, structure)


def map_tensors(function: Callable[[Tensor], Any], nested: Any) -> Any:
    """Return the same structure with the function applied to every tensor; other leaves stay."""
    return _pytree.tree_map_only(Tensor, function, nested)


# ---------------------------------------------------------------------------- tensors, operations and modules


def identify_storage(storage: torch.UntypedStorage) -> int:
    """Return a number for the memory that tensors lie in: views of one tensor have the same.

    `data_ptr` will not do: it is 0 of every empty tensor.
    """
    return int(storage._cdata)


def count_writes(tensor: Tensor) -> int:
    """Return how often a tensor was written over. It tells whether an algorithm changes what it was passed."""
    return tensor._version


def is_zero_tensor(tensor: Tensor) -> bool:
    """Whether a tensor only stands for zeros, as gradients do under forward-mode derivatives; it has no memory."""
    return bool(torch._is_zerotensor(tensor))


def writes_inputs(operation: Any) -> bool:
    """Whether an operation of `torch.ops` writes over one of its inputs."""
    return bool(operation._schema.is_mutable)


def list_outputs(operation: Any) -> list[str]:
    """List the arguments into which an operation of `torch.ops` writes its results, such as `out`."""
    return [argument.name for argument in operation._schema.arguments if argument.is_out]


def replace_tensors(module: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
    """Replace every parameter and buffer of a module. `to_empty` does it for one purpose, and imports sympy for it."""
    module._apply(function)  # type: ignore[no-untyped-call]


# ---------------------------------------------------------------------------- the compiler


def trace_operations(function: Callable[..., Any], tensors: Sequence[Tensor]) -> torch.fx.GraphModule:
    """Write down every operation of a function, without taking it: tensors have shapes and no numbers meanwhile.

    The function may read other tensors too, such as a net's buffers: that is what the private argument allows.
    """
    return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)


def compile_graph(graph: torch.fx.GraphModule, tensors: Sequence[Any], options: dict[str, Any]) -> Any:
    """Compile a graph of operations for tensors of these shapes. `torch.compile` would trace a function once more.

    The compiler keeps its programs on disk, and finds them again, only where it may reason about shapes: the context
    says so, though the shapes stay as they are.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)
    with tracing(TracingContext(mode)):
        return torch._inductor.compile(graph, list(tensors), options=options)


def has_compiler_option(name: str) -> bool:
    """Whether the compiler of this torch has an option: an unknown one is an error."""
    return name in torch._inductor.config.get_config_copy()


# ---------------------------------------------------------------------------- scikit-learn


def list_boosted_trees(estimator: Any) -> list[list[Any]]:
    """List the trees of every round of a HistGradientBoosting estimator, which `seqdg` writes to ONNX itself."""
    rounds: list[list[Any]] = estimator._predictors
    return rounds


def get_boosting_start(estimator: Any) -> Any:
    """Return what a HistGradientBoosting estimator predicts before its first tree, for the same purpose."""
    return estimator._baseline_prediction
