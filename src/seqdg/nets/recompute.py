"""Gradient checkpointing that nests: activations are forgotten, and computed again on the way back.

The way back is a function too, whose own activations are forgotten in turn, so gradients of gradients hold those of one
minibatch at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.func import vjp

from seqdg.base.episode import Episode, Minibatch, Params
from seqdg.nets.net import Net


class Recomputing(Net):
    """The same net, whose losses keep their inputs alone until they are differentiated."""

    def __init__(self, net: Net) -> None:
        self.__dict__.update(net.__dict__)

    def loss(self, params: Params, minibatch: Minibatch) -> Tensor:
        names = tuple(params)

        def of(x: Tensor, y: Tensor, *weights: Tensor) -> Tensor:
            return Net.loss(self, dict(zip(names, weights, strict=True)), (x, y))

        found: Tensor = _Again.apply(of, *minibatch, *params.values())  # type: ignore[no-untyped-call]
        return found

    def losses(self, params: Params, episode: Episode) -> Tensor:
        names = tuple(params)

        def of(x: Tensor, y: Tensor, *weights: Tensor) -> Tensor:
            return Net.losses(self, dict(zip(names, weights, strict=True)), episode._replace(x=x, y=y))

        found: Tensor = _Again.apply(of, episode.x, episode.y, *params.values())  # type: ignore[no-untyped-call]
        return found


class _Again(Function):
    """function(*tensors), of which nothing but the tensors is kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Callable[..., Any], *given: Tensor) -> Any:
        return function(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.function, ctx.one = inputs[0], isinstance(output, Tensor)
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        function, one, given = ctx.function, ctx.one, ctx.saved_tensors
        moving = [i for i, tensor in enumerate(given) if tensor.is_floating_point()]

        def back(*tensors: Tensor) -> Any:
            fixed, arrived = tensors[: len(given)], tensors[len(given) :]

            def of(*moved: Tensor) -> Any:
                now = dict(zip(moving, moved, strict=True))
                return function(*(now.get(i, tensor) for i, tensor in enumerate(fixed)))

            return vjp(of, *(fixed[i] for i in moving))[1](arrived[0] if one else arrived)

        found = dict(zip(moving, _Again.apply(back, *given, *gradients), strict=True))  # type: ignore[no-untyped-call]
        return None, *(found.get(i) for i in range(len(given)))
