"""A whole step as one program of torch's compiler, which fuses what a hand would have to fuse method by method.

The step is traced down to single operations first, so that gradients of gradients, `torch.func.vmap` and whatever
Python an algorithm is written in are gone before the compiler sees it. It keeps its results on disk: the same step
compiles sooner the next time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from seqdg.base import private


class CompilationError(RuntimeError):
    """Why a step could not be compiled."""


def compile_at_first_call(function: Callable[..., Tensor], backend: str = "inductor") -> Callable[..., Tensor]:
    """Return the same function of tensors, compiled for the shapes of its first call. It may write over its inputs.

    backend: "inductor", torch's compiler, or "none", which runs what was traced operation by operation.
    Raises a CompilationError, and changes nothing, where it cannot be compiled.
    """
    made: list[Callable[..., Any]] = []

    def call(*arguments: Any) -> Tensor:
        flat, structure = private.flatten(arguments)
        if not made:
            try:
                made.append(_compile(lambda *leaves: (function(*private.unflatten(leaves, structure)),), flat, backend))
            except Exception as error:  # whatever a compiler may raise
                raise CompilationError(next(iter(str(error).splitlines()), type(error).__name__)) from error
        (out,) = made[0](*flat)
        result: Tensor = out
        return result

    return call


def _compile(function: Callable[..., tuple[Tensor]], flat: list[Any], backend: str) -> Callable[..., Any]:
    tensors: list[Any] = [value for value in flat if isinstance(value, Tensor)]

    def of_tensors(*values: Tensor) -> tuple[Tensor]:
        inputs = iter(values)
        return function(*(next(inputs) if isinstance(value, Tensor) else value for value in flat))

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a compiler warns of is not the user's to change
        graph = _trace(of_tensors, tensors)
        inductor = backend == "inductor"
        compiled = private.compile_graph(graph, tensors, _choose_options()) if inductor else graph
    return lambda *values: compiled(*(value for value in values if isinstance(value, Tensor)))


def _trace(function: Callable[..., Any], tensors: list[Any]) -> torch.fx.GraphModule:
    """Write down every operation of the function, without taking them where that is possible."""
    try:
        return private.trace_operations(function, tensors)
    except RuntimeError:  # forward-mode derivatives inside others do not know the device of tensors without numbers
        return make_fx(function, tracing_mode="real")(*(t.clone() for t in tensors))


def _choose_options() -> dict[str, Any]:
    """Choose nothing by the clock: the same step is the same program after a crash, and sums in the same order."""
    wanted = {"deterministic": True, "triton.autotune_pointwise": False, "fallback_random": True}
    return {name: value for name, value in wanted.items() if private.has_compiler_option(name)}
