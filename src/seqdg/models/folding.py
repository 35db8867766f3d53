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

from seqdg.models import fused
from seqdg.models.batchnorm import PureBatchNorm
from seqdg.models.convolution import SameConv2d, same_padding

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
    for node in norms:
        _rewrite(graph, node, layers)
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
    return convolution.padding_mode == "zeros"  # type: ignore[union-attr]


def _rewrite(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module]) -> None:
    rest, act, chain = _what_follows(node, layers)
    norm = _layer(node, layers)
    assert isinstance(norm, PureBatchNorm)
    with graph.inserting_before(chain[-1]):
        if norm.on_batch:
            new = graph.call_module(str(node.target), (node.args[0], rest, act))
        else:
            new = _as_one(graph, node, layers, rest, act)
            chain = [node.args[0], *chain]  # type: ignore[list-item]
    chain[-1].replace_all_uses_with(new)
    for old in reversed(chain):
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


def _as_one(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module], rest: fx.Node | None, act: str) -> fx.Node:
    before = node.args[0]
    assert isinstance(before, fx.Node)
    convolution, norm = layers[str(before.target)], layers[str(node.target)]
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, PureBatchNorm)
    weight = graph.get_attr(f"{before.target}.weight")
    bias = None if convolution.bias is None else graph.get_attr(f"{before.target}.bias")
    of_norm = [graph.get_attr(f"{node.target}.{n}") for n in ("weight", "bias", "running_mean", "running_var")]
    padding = "same" if isinstance(convolution, SameConv2d) else convolution.padding
    shape = (convolution.stride, padding, convolution.dilation, convolution.groups)
    return graph.call_function(_convolve, (before.args[0], weight, bias, *of_norm, norm.eps, rest, act, *shape))


def _convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float,
    rest: Tensor | None, act: str, stride: Any, padding: Any, dilation: Any, groups: int,
) -> Tensor:  # fmt: skip
    if padding == "same":
        x, padding = same_padding(x, weight, stride)
    shape = (stride, padding, dilation, groups)
    return fused.conv_act(x, weight, bias, gain, offset, mean, var, eps, rest, act, shape)
