"""Frozen BatchNorm folded into the convolution before it: one pass over the activations instead of three.

    scale * (w * x - mean) + shift  =  (scale w) * x + (shift - scale mean)

The weights keep their names and are all trained; only the order of multiplications changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import conv2d

from seqdg.models.batchnorm import PureBatchNorm


def folded(module: nn.Module) -> nn.Module:
    """The same function with every pair of a convolution and the frozen BatchNorm after it folded into one.

    A module whose forward pass depends on values cannot be read ahead of time and is returned as it is.
    """
    try:
        graph = _Tracer().trace(module)
    except Exception:  # whatever a module's forward pass does with a stand-in for its input
        return module
    layers = dict(module.named_modules())
    pairs = [node for node in graph.nodes if _follows_convolution(node, layers)]
    if not pairs:
        return module
    for node in pairs:
        _fold(graph, node, layers)
    return fx.GraphModule(module, graph)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, PureBatchNorm) or super().is_leaf_module(m, module_qualified_name)


def _follows_convolution(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    norm = layers.get(str(node.target)) if node.op == "call_module" else None
    if not isinstance(norm, PureBatchNorm) or norm.on_batch or norm.weight is None or norm.bias is None:
        return False
    before = node.args[0]
    if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) != 1:
        return False
    convolution = layers.get(str(before.target))
    return type(convolution) is nn.Conv2d and convolution.padding_mode == "zeros"


def _fold(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module]) -> None:
    before = node.args[0]
    assert isinstance(before, fx.Node)
    convolution, norm = layers[str(before.target)], layers[str(node.target)]
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, PureBatchNorm)
    with graph.inserting_before(node):
        weight = graph.get_attr(f"{before.target}.weight")
        bias = None if convolution.bias is None else graph.get_attr(f"{before.target}.bias")
        names = ("weight", "bias", "running_mean", "running_var")
        of_norm = [graph.get_attr(f"{node.target}.{name}") for name in names]
        shape = (convolution.stride, convolution.padding, convolution.dilation, convolution.groups)
        new = graph.call_function(_convolve, (before.args[0], weight, bias, *of_norm, norm.eps, *shape))
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    graph.erase_node(before)


def _convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor, offset: Tensor, mean: Tensor, var: Tensor, eps: float,
    *shape: Any,
) -> Tensor:  # fmt: skip
    scale = gain * torch.rsqrt(var + eps)
    shift = offset - mean * scale
    if bias is not None:
        shift = shift + bias * scale
    y = conv2d(x, weight * scale.reshape(-1, 1, 1, 1), None, *shape)
    return y + shift.to(y.dtype).reshape(-1, 1, 1)  # autocast under vmap would leave a bias in single precision
