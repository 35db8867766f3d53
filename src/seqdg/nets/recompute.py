"""Gradient checkpointing that nests: activations are dropped, and computed again for the gradient.

The gradient is checkpointed too, so gradients of gradients hold the activations of one minibatch at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.func import vjp

from seqdg.base import Episode, Minibatch, Params
from seqdg.nets.net import Net


class RecomputingNet(Net):
    """The same net, whose losses keep only their inputs until they are differentiated."""

    def __init__(self, net: Net) -> None:
        self.__dict__.update(net.__dict__)

    def loss(self, params: Params, minibatch: Minibatch | tuple[Tensor, ...]) -> Tensor:
        names = tuple(params)

        given = tuple(part for part in minibatch if part is not None)  # x, y and, with dropout, a key

        def compute(*tensors: Tensor) -> Tensor:
            rows, weights = tensors[: len(given)], tensors[len(given) :]
            return Net.loss(self, dict(zip(names, weights, strict=True)), Minibatch(*rows))

        loss: Tensor = _Recompute.apply(compute, *given, *params.values())  # type: ignore[no-untyped-call]
        return loss

    def losses(self, params: Params, episode: Episode) -> Tensor:
        names = tuple(params)

        def compute(x: Tensor, y: Tensor, domain: Tensor, key: Tensor, *weights: Tensor) -> Tensor:
            same = episode._replace(x=x, y=y, domain=domain, key=key)
            return Net.losses(self, dict(zip(names, weights, strict=True)), same)

        parts = (episode.x, episode.y, episode.domain, episode.key)
        losses: Tensor = _Recompute.apply(compute, *parts, *params.values())  # type: ignore[no-untyped-call]
        return losses


class _Recompute(Function):
    """function(*tensors), keeping only the tensors for the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Callable[..., Any], *tensors: Tensor) -> Any:
        return function(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.function, ctx.one = inputs[0], isinstance(output, Tensor)
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        function, one, inputs = ctx.function, ctx.one, ctx.saved_tensors
        moving = [i for i, tensor in enumerate(inputs) if tensor.is_floating_point()]

        def back(*tensors: Tensor) -> Any:
            fixed, incoming = tensors[: len(inputs)], tensors[len(inputs) :]

            def compute(*moved: Tensor) -> Any:
                now = dict(zip(moving, moved, strict=True))
                return function(*(now.get(i, tensor) for i, tensor in enumerate(fixed)))

            return vjp(compute, *(fixed[i] for i in moving))[1](incoming[0] if one else incoming)

        by_position = dict(zip(moving, _Recompute.apply(back, *inputs, *gradients), strict=True))  # type: ignore[no-untyped-call]
        return None, *(by_position.get(i) for i in range(len(inputs)))
