"""What follows a convolution made one with it, or with itself: fewer passes over the activations.

A frozen BatchNorm is folded into the convolution before it,

    scale * (w * x - mean) + shift  =  (scale w) * x + (shift - scale mean)

and a BatchNorm, frozen or not, takes along the shortcut that is added to its output and the ReLU after that. The
weights keep their names and are all trained; only the order of operations changes.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from seqdg import kernels
from seqdg.nets.batchnorm import PureBatchNorm
from seqdg.nets.convolution import SameConv2d, same_padding

_ADDITIONS = (operator.add, torch.add)
_RELUS: dict[Any, str] = {F.relu: "relu", torch.relu: "relu", F.relu6: "relu6"}
_RELU_LAYERS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.ReLU6: "relu6"}


def folded(module: nn.Module) -> nn.Module:
    """The same function with every convolution, the BatchNorm after it and what follows that as one.

    A module whose forward pass depends on values cannot be read ahead of time and is returned as it is.
    """
    try:
        graph = _Tracer().trace(module)
    except Exception:  # whatever a module's forward pass does with a stand-in for its input
        return module
    layers = dict(module.named_modules())
    norms = [node for node in graph.nodes if _follows_convolution(node, layers)]
    if not norms:
        return module
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        ready = graph.call_function(_prepare, ([_weights(graph, node, layers) for node in norms],))
    for i, node in enumerate(norms):
        _rewrite(graph, node, layers, (ready, i))
    return fx.GraphModule(module, graph)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (PureBatchNorm, SameConv2d)) or super().is_leaf_module(m, module_qualified_name)


def _layer(node: Any, layers: dict[str, nn.Module]) -> nn.Module | None:
    return layers.get(str(node.target)) if isinstance(node, fx.Node) and node.op == "call_module" else None


def _follows_convolution(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    norm = _layer(node, layers)
    if not isinstance(norm, PureBatchNorm) or norm.weight is None or norm.bias is None:
        return False
    before = node.args[0]
    convolution = _layer(before, layers)
    if type(convolution) not in (nn.Conv2d, SameConv2d) or len(before.users) != 1:  # type: ignore[union-attr]
        return False
    if any(_calls(node.graph, target) > 1 for target in (node.target, before.target)):  # type: ignore[union-attr]
        return False
    return convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)  # type: ignore[union-attr]


def _calls(graph: fx.Graph, target: Any) -> int:
    return sum(node.op == "call_module" and node.target == target for node in graph.nodes)


def _rewrite(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module], own: tuple[fx.Node, int]) -> None:
    rest, act, chain = _what_follows(node, layers)
    before, norm = node.args[0], _layer(node, layers)
    assert isinstance(before, fx.Node)
    assert isinstance(norm, PureBatchNorm)
    convolution = _layer(before, layers)
    assert isinstance(convolution, nn.Conv2d)
    padding = "same" if isinstance(convolution, SameConv2d) else convolution.padding
    what = (*own, before.args[0], (convolution.stride, padding, convolution.dilation, convolution.groups))
    with graph.inserting_before(chain[-1]):
        if norm.on_batch:
            new = graph.call_module(str(node.target), (graph.call_function(_convolve, what), rest, act))
        else:
            new = graph.call_function(_convolve_and_finish, (*what, rest, act))
    chain[-1].replace_all_uses_with(new)
    for old in reversed([before, *chain]):
        graph.erase_node(old)


def _what_follows(node: fx.Node, layers: dict[str, nn.Module]) -> tuple[fx.Node | None, str, list[fx.Node]]:
    """What is added to a BatchNorm's output, the activation after that, and all nodes from the first to the last."""
    rest, chain = None, [node]
    user = _only_user(node)
    if user is not None and user.op == "call_function" and user.target in _ADDITIONS and not user.kwargs:
        others = [a for a in user.args if a is not node]
        if len(others) == 1 and isinstance(others[0], fx.Node):
            rest = others[0]
            chain.append(user)
            user = _only_user(user)
    act = _activation(user, layers) if user is not None else None
    if act is None or user is None:
        return rest, "none", chain
    return rest, act, [*chain, user]


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _activation(node: fx.Node, layers: dict[str, nn.Module]) -> str | None:
    if node.op == "call_function":
        return _RELUS.get(node.target)
    layer = _layer(node, layers)
    return _RELU_LAYERS.get(type(layer)) if layer is not None else None


def _weights(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module]) -> tuple[Any, Any]:
    """Return the weights of the convolution before a BatchNorm, and of the BatchNorm if it is to be folded."""
    before, norm = node.args[0], _layer(node, layers)
    assert isinstance(before, fx.Node)
    assert isinstance(norm, PureBatchNorm)
    convolution = layers[str(before.target)]
    bias = None if convolution.bias is None else graph.get_attr(f"{before.target}.bias")
    found = (graph.get_attr(f"{before.target}.weight"), bias)
    if norm.on_batch:
        return found, None
    names = ("weight", "bias", "running_mean", "running_var")
    return found, (*(graph.get_attr(f"{node.target}.{name}") for name in names), norm.eps)


def _prepare(weights: list[tuple[Any, Any]]) -> list[kernels.PreparedLayer]:
    return kernels.prepare_layers(
        [kernels.ConvLayer(w, b, norm and kernels.FrozenBatchNorm(*norm)) for (w, b), norm in weights]
    )


def _convolve(ready: list[kernels.PreparedLayer], i: int, x: Tensor, shape: kernels.Geometry) -> Tensor:
    x, shape = _padded(x, ready[i].layer.weight, shape)
    return kernels.convolve(x, ready[i], shape)


def _convolve_and_finish(
    ready: list[kernels.PreparedLayer], i: int, x: Tensor, shape: kernels.Geometry, rest: Tensor | None, act: str
) -> Tensor:
    x, shape = _padded(x, ready[i].layer.weight, shape)
    return kernels.convolve_and_activate(x, ready[i], rest, act, shape)


def _padded(x: Tensor, weight: Tensor, shape: kernels.Geometry) -> tuple[Tensor, kernels.Geometry]:
    stride, padding, dilation, groups = shape
    if padding == "same":
        x, padding = same_padding(x, weight, stride)
    return x, (stride, padding, dilation, groups)
