"""Fuse each convolution with what follows it, for fewer passes over the activations.

A frozen BatchNorm is folded into the convolution before it,

    scale * (w * x - mean) + shift  =  (scale w) * x + (shift - scale mean)

and a BatchNorm, frozen or not, is computed together with the shortcut that is added to its output and the ReLU after
that; a frozen one also with the max pooling after the ReLU. The weights keep their names and are all trained; only the
order of operations changes.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from seqdg import kernels
from seqdg.nets.batchnorm import PureBatchNorm
from seqdg.nets.dropout import PureDropout
from seqdg.nets.efficientnet_lite import SameConv2d
from seqdg.nets.points import Point

_ADDITIONS = (operator.add, torch.add)
_RELUS: dict[Any, str] = {F.relu: "relu", torch.relu: "relu", F.relu6: "relu6"}
_RELU_LAYERS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.ReLU6: "relu6"}


def fold_layers(module: nn.Module) -> nn.Module:
    """Return the same function with every convolution, its BatchNorm, shortcut and ReLU in one call.

    A module whose forward pass depends on values cannot be traced and is returned unchanged.
    """
    try:
        graph = _Tracer().trace(module)
    except Exception:  # whatever a module's forward pass raises when its input is a proxy
        return module
    layers = dict(module.named_modules())
    norms = [node for node in graph.nodes if _follows_convolution(node, layers)]
    if not norms:
        return module
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        prepared = graph.call_function(_prepare, ([_get_weights(graph, node, layers) for node in norms],))
    for i, node in enumerate(norms):
        _rewrite(graph, node, layers, (prepared, i))
    for node in [n for n in graph.nodes if _can_replace_pool(_get_layer(n, layers))]:
        _rewrite_pool(graph, node, layers)
    for node in graph.nodes:
        _say_what_came_before(node)
    return fx.GraphModule(module, graph)


def list_layout(module: nn.Module) -> tuple[str, ...]:
    """Return the names of a module's weights and points in the order in which a pass meets them; in the order in which
    the module lists them, where it cannot be traced."""
    try:
        targets = [str(n.target) for n in _Tracer().trace(module).nodes if n.op in ("call_module", "get_attr")]
    except Exception:  # whatever a module's forward pass raises when its input is a proxy
        targets = [name for name, layer in module.named_modules() if not list(layer.children())]
    layers, weights = dict(module.named_modules()), dict(module.named_parameters())
    layout: dict[str, None] = {}
    for target in targets:
        layer = layers.get(target)
        if isinstance(layer, Point):
            layout[layer.name] = None
        names = (f"{target}.{name}" for name, _ in layer.named_parameters()) if layer is not None else (target,)
        layout |= dict.fromkeys(name for name in names if name in weights)
    return tuple(layout)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (PureBatchNorm, PureDropout, Point, SameConv2d)) or super().is_leaf_module(
            m, module_qualified_name
        )


def _get_layer(node: Any, layers: dict[str, nn.Module]) -> nn.Module | None:
    return layers.get(str(node.target)) if isinstance(node, fx.Node) and node.op == "call_module" else None


def _follows_convolution(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    norm = _get_layer(node, layers)
    if not isinstance(norm, PureBatchNorm) or norm.weight is None or norm.bias is None:
        return False
    before = node.args[0]
    convolution = _get_layer(before, layers)
    if type(convolution) not in (nn.Conv2d, SameConv2d) or len(before.users) != 1:  # type: ignore[union-attr]
        return False
    if any(_count_calls(node.graph, target) > 1 for target in (node.target, before.target)):  # type: ignore[union-attr]
        return False
    return convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)  # type: ignore[union-attr]


def _count_calls(graph: fx.Graph, target: Any) -> int:
    return sum(node.op == "call_module" and node.target == target for node in graph.nodes)


def _rewrite(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module], prepared: tuple[fx.Node, int]) -> None:
    rest, act, chain = _find_rest_and_activation(node, layers)
    before, norm = node.args[0], _get_layer(node, layers)
    assert isinstance(before, fx.Node)
    assert isinstance(norm, PureBatchNorm)
    convolution = _get_layer(before, layers)
    assert isinstance(convolution, nn.Conv2d)
    padding = "same" if isinstance(convolution, SameConv2d) else convolution.padding
    inputs = (*prepared, before.args[0], (convolution.stride, padding, convolution.dilation, convolution.groups))
    with graph.inserting_before(chain[-1]):
        if norm.on_batch:
            new = graph.call_module(str(node.target), (graph.call_function(_convolve, inputs), rest, act))
        else:
            new = graph.call_function(_convolve_and_activate, (*inputs, rest, act))
    chain[-1].replace_all_uses_with(new)
    for old in reversed([before, *chain]):
        graph.erase_node(old)


def _can_replace_pool(layer: nn.Module | None) -> bool:
    return type(layer) is nn.MaxPool2d and not layer.return_indices


def _rewrite_pool(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module]) -> None:
    pool = _get_layer(node, layers)
    assert isinstance(pool, nn.MaxPool2d)
    window = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
    before = node.args[0]
    assert isinstance(before, fx.Node)
    with graph.inserting_before(node):
        if _can_pool_at_once(before):
            new = graph.call_function(_convolve_activate_and_pool, (*before.args[:4], before.args[5], *window))
        else:
            new = graph.call_function(kernels.pool_largest, (before, *window))
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    if not before.users:
        graph.erase_node(before)


def _can_pool_at_once(node: fx.Node) -> bool:
    """Whether this is a convolution and an activation, of nothing else, whose output is only pooled."""
    return node.target is _convolve_and_activate and node.args[4] is None and len(node.users) == 1


def _say_what_came_before(node: fx.Node) -> None:
    """Tell a convolution the number of the layer that gave its input, if nothing else reads that.

    A shortcut past the convolution reads it too, though one node is then the only user.
    """
    before, rest = (node.args[2], node.args[4]) if node.target is _convolve_and_activate else (None, None)
    if not isinstance(before, fx.Node) or before.target is not _convolve_and_activate or before is rest:
        return
    if len(before.users) == 1:
        node.args = (*node.args, before.args[1])


def _find_rest_and_activation(node: fx.Node, layers: dict[str, nn.Module]) -> tuple[fx.Node | None, str, list[fx.Node]]:
    """Return what is added to a BatchNorm's output, the activation after that, and all nodes from first to last."""
    rest, chain = None, [node]
    user = _get_only_user(node)
    if user is not None and user.op == "call_function" and user.target in _ADDITIONS and not user.kwargs:
        others = [a for a in user.args if a is not node]
        if len(others) == 1 and isinstance(others[0], fx.Node):
            rest = others[0]
            chain.append(user)
            user = _get_only_user(user)
    act = _name_activation(user, layers) if user is not None else None
    if act is None or user is None:
        return rest, "none", chain
    return rest, act, [*chain, user]


def _get_only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _name_activation(node: fx.Node, layers: dict[str, nn.Module]) -> str | None:
    if node.op == "call_function":
        return _RELUS.get(node.target)
    layer = _get_layer(node, layers)
    return _RELU_LAYERS.get(type(layer)) if layer is not None else None


def _get_weights(graph: fx.Graph, node: fx.Node, layers: dict[str, nn.Module]) -> tuple[Any, Any]:
    """Return the weights of the convolution before a BatchNorm, and of the BatchNorm if it is to be folded."""
    before, norm = node.args[0], _get_layer(node, layers)
    assert isinstance(before, fx.Node)
    assert isinstance(norm, PureBatchNorm)
    convolution = layers[str(before.target)]
    bias = None if convolution.bias is None else graph.get_attr(f"{before.target}.bias")
    of_convolution = (graph.get_attr(f"{before.target}.weight"), bias)
    if norm.on_batch:
        return of_convolution, None
    names = ("weight", "bias", "running_mean", "running_var")
    return of_convolution, (*(graph.get_attr(f"{node.target}.{name}") for name in names), norm.eps)


def _prepare(weights: list[tuple[Any, Any]]) -> list[kernels.PreparedLayer]:
    return kernels.prepare_layers(
        [kernels.ConvLayer(w, b, norm and kernels.FrozenBatchNorm(*norm)) for (w, b), norm in weights]
    )


def _convolve(prepared: list[kernels.PreparedLayer], i: int, x: Tensor, geometry: kernels.Geometry) -> Tensor:
    return kernels.convolve(x, prepared[i], geometry)


def _convolve_and_activate(
    prepared: list[kernels.PreparedLayer],
    i: int,
    x: Tensor,
    geometry: kernels.Geometry,
    rest: Tensor | None,
    act: str,
    before: int | None = None,
) -> Tensor:
    source = None if before is None else prepared[before]
    return kernels.convolve_and_activate(x, prepared[i], rest, act, geometry, source)


def _convolve_activate_and_pool(
    prepared: list[kernels.PreparedLayer], i: int, x: Tensor, geometry: kernels.Geometry, act: str, *window: Any
) -> Tensor:
    return kernels.convolve_activate_and_pool(x, prepared[i], act, geometry, *window)
