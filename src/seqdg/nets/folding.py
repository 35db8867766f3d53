"""Fuse each convolution with what follows it, for fewer passes over the activations.

A frozen BatchNorm is folded into the convolution before it,

    scale * (w * x - mean) + shift  =  (scale w) * x + (shift - scale mean)

and a BatchNorm, frozen or not, is computed together with the shortcut that is added to its output and the ReLU after
that; a frozen one also with the max pooling after the ReLU. The weights keep their names and are all trained; only the
order of operations changes.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn import functional as F

from seqdg import kernels
from seqdg.nets.backbones import SameConv2d
from seqdg.nets.batchnorm import PureBatchNorm
from seqdg.nets.dropout import PureDropout
from seqdg.nets.points import Point

_ADDITIONS = (operator.add, torch.add)
_RELUS: dict[Any, str] = {F.relu: "relu", torch.relu: "relu", F.relu6: "relu6"}
_RELU_LAYERS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.ReLU6: "relu6"}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        ours = isinstance(m, PureBatchNorm | PureDropout | Point | SameConv2d)
        return ours or super().is_leaf_module(m, module_qualified_name)


def trace(module: nn.Module) -> fx.Graph | None:
    """Return the graph of a module's forward pass; None where that depends on values, and so cannot be traced."""
    try:
        return _Tracer().trace(module)
    except Exception:  # whatever a module's forward pass raises when its input is a proxy
        return None


def list_layout(module: nn.Module) -> tuple[str, ...]:
    """Return the names of a module's weights and points in the order in which a pass meets them; in the order in which
    the module lists them, where it cannot be traced."""
    graph = trace(module)
    if graph is None:
        targets = [name for name, layer in module.named_modules() if not list(layer.children())]
    else:
        targets = [str(n.target) for n in graph.nodes if n.op in ("call_module", "get_attr")]
    layers, weights = dict(module.named_modules()), dict(module.named_parameters())
    layout: dict[str, None] = {}
    for target in targets:
        layer = layers.get(target)
        if isinstance(layer, Point):
            layout[layer.name] = None
        names = (f"{target}.{name}" for name, _ in layer.named_parameters()) if layer is not None else (target,)
        layout |= dict.fromkeys(name for name in names if name in weights)
    return tuple(layout)


def find_linear_weights(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the matrices of a module's linear layers, and of the projections of its attention."""
    names = []
    for name, layer in module.named_modules():
        start = f"{name}." if name else ""
        if isinstance(layer, nn.MultiheadAttention) and layer.in_proj_weight is not None:
            names.append(f"{start}in_proj_weight")
        if isinstance(layer, nn.Linear):
            names.append(f"{start}weight")
    return tuple(names)


def measure_depths(module: nn.Module) -> dict[str, int]:
    """Return how far below the head each weight is, in blocks: 0 for the head and what comes after the last block.

    A block is an entry of an outermost list of layers, such as `blocks.3`. What comes before the first is one more.
    """
    lists = [name for name, layer in module.named_modules() if isinstance(layer, nn.Sequential | nn.ModuleList)]
    outermost = [name for name in lists if not any(name != other and _is_below(name, other) for other in lists)]
    blocks: list[str] = []
    of_weight: dict[str, int] = {}  # the number of blocks up to a weight's, which is among them
    names = [name for name, _ in module.named_parameters()]
    for name in names:
        inside = next((lists for lists in outermost if _is_below(name, lists)), None)
        if inside is not None:
            start = f"{inside}." if inside else ""
            block = start + name.removeprefix(start).partition(".")[0]
            if block not in blocks:
                blocks.append(block)
            of_weight[name] = blocks.index(block) + 1
        else:
            of_weight[name] = len(blocks) + 1 if blocks else 0
    last = max(of_weight.values(), default=0)
    return {name: last - number for name, number in of_weight.items()}


def _is_below(name: str, other: str) -> bool:
    return not other or name.startswith(f"{other}.")


class _Folded(NamedTuple):
    """A convolution and the BatchNorm after it: their nodes and their layers."""

    before: fx.Node
    node: fx.Node
    convolution: nn.Conv2d
    norm: PureBatchNorm


def fold_layers(module: nn.Module) -> nn.Module:
    """Return the same function with every convolution, its BatchNorm, shortcut and ReLU in one call.

    A module that cannot be traced is returned unchanged.
    """
    graph, layers = trace(module), dict(module.named_modules())
    pairs = [] if graph is None else [pair for node in graph.nodes if (pair := _find_pair(node, layers)) is not None]
    if graph is None or not pairs:
        return module
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        every = graph.call_function(_prepare, ([_get_weights(graph, pair) for pair in pairs],))
        prepared = [graph.call_function(operator.getitem, (every, i)) for i in range(len(pairs))]
    for pair, layer in zip(pairs, prepared, strict=True):
        _rewrite(graph, pair, layers, layer)
    for node in list(graph.nodes):
        pool = _get_layer(node, layers)
        if type(pool) is nn.MaxPool2d and not pool.return_indices:
            _rewrite_pool(graph, node, pool)
    for node in graph.nodes:
        _say_what_came_before(node)
    return fx.GraphModule(module, graph)


def _get_layer(node: Any, layers: dict[str, nn.Module]) -> nn.Module | None:
    return layers.get(str(node.target)) if isinstance(node, fx.Node) and node.op == "call_module" else None


def _find_pair(node: fx.Node, layers: dict[str, nn.Module]) -> _Folded | None:
    """Return the convolution before a BatchNorm, and this, if nothing else reads the one or calls the other."""
    norm = _get_layer(node, layers)
    if not isinstance(norm, PureBatchNorm) or norm.weight is None or norm.bias is None:
        return None
    before: Any = node.args[0]
    convolution: Any = _get_layer(before, layers)
    if type(convolution) not in (nn.Conv2d, SameConv2d) or len(before.users) != 1:
        return None
    calls = [other.target for other in node.graph.nodes if other.op == "call_module"]
    if any(calls.count(target) > 1 for target in (node.target, before.target)):
        return None
    if convolution.padding_mode != "zeros" or isinstance(convolution.padding, str):
        return None
    return _Folded(before, node, convolution, norm)


def _rewrite(graph: fx.Graph, pair: _Folded, layers: dict[str, nn.Module], prepared: fx.Node) -> None:
    before, node, layer, norm = pair
    rest, act, chain = _find_rest_and_activation(node, layers)
    padding = "same" if isinstance(layer, SameConv2d) else layer.padding
    x, geometry = before.args[0], (layer.stride, padding, layer.dilation, layer.groups)
    with graph.inserting_before(chain[-1]):
        if norm.on_batch:
            y = graph.call_function(kernels.convolve, (x, prepared, geometry))
            new = graph.call_module(str(node.target), (y, rest, act))
        else:
            new = graph.call_function(kernels.convolve_and_activate, (x, prepared, rest, act, geometry))
    chain[-1].replace_all_uses_with(new)
    for old in reversed([before, *chain]):
        graph.erase_node(old)


def _rewrite_pool(graph: fx.Graph, node: fx.Node, pool: nn.MaxPool2d) -> None:
    """Pool together with a convolution and an activation, of nothing else, whose output is only pooled."""
    window = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
    before: Any = node.args[0]
    at_once = before.target is kernels.convolve_and_activate and before.args[2] is None and len(before.users) == 1
    with graph.inserting_before(node):
        if at_once:
            x, prepared, _, act, geometry = before.args
            new = graph.call_function(kernels.convolve_activate_and_pool, (x, prepared, act, geometry, *window))
        else:
            new = graph.call_function(kernels.pool_largest, (before, *window))
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    if at_once:
        graph.erase_node(before)


def _say_what_came_before(node: fx.Node) -> None:
    """Tell a convolution the layer that gave its input, if nothing else reads that.

    A shortcut past the convolution reads it too, though one node is then the only user.
    """
    if node.target is not kernels.convolve_and_activate:
        return
    before: Any = node.args[0]
    follows = isinstance(before, fx.Node) and before.target is kernels.convolve_and_activate
    if follows and before is not node.args[2] and len(before.users) == 1:
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


def _get_weights(graph: fx.Graph, pair: _Folded) -> tuple[Any, Any]:
    """Return the weights of a convolution, and of the BatchNorm after it if that is to be folded."""
    before, node, convolution, norm = pair
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
