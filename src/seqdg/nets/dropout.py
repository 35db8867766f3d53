"""Dropout as a pure function: the mask is drawn from the key of a minibatch, and without a key nothing is dropped.

The mask depends on the key, the layer and how often the pass has called the layer before. So it is the same whenever a
step returns to a minibatch, alone and in a stack, and other in every step, domain and layer. A domain's rows have the
same mask in a pass over all domains as in a pass over its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from seqdg.base import UsageError, noise, private

# What shares one coin: nothing; the values of a channel; the values of a row; those of a minibatch.
_STOCK = {nn.Dropout: "value", nn.Dropout1d: "channel", nn.Dropout2d: "channel", nn.Dropout3d: "channel"}
_RANDOM = frozenset(
    """dropout dropout_ dropout1d dropout2d dropout3d native_dropout alpha_dropout alpha_dropout_ feature_dropout
    feature_dropout_ feature_alpha_dropout feature_alpha_dropout_ scaled_dot_product_attention rrelu rrelu_ bernoulli
    bernoulli_ rand rand_like randn randn_like randint randint_like randperm normal normal_ uniform_ exponential_
    multinomial gumbel_softmax""".split()  # noqa: SIM905 - a list of thirty lines
)


@dataclass
class Pass:
    """What the dropout layers of one module share while it runs."""

    key: Tensor | None = None  # () of the minibatch, or (part,) one for each of the domains that follow each other
    layers: int = 0
    calls: dict[int, int] = field(default_factory=dict)


class PureDropout(nn.Module):
    """Replaces a stock dropout layer."""

    def __init__(self, p: float, unit: str, scales: bool, current: Pass) -> None:
        super().__init__()
        self.p, self.unit, self.current = p, unit, current
        self.scale = 1.0 / (1.0 - p) if scales and p < 1.0 else 1.0
        self.number = current.layers
        current.layers += 1

    def forward(self, x: Tensor) -> Tensor:
        if self.current.key is None:
            return x
        before = self.current.calls.get(self.number, 0)
        self.current.calls[self.number] = before + 1
        key = noise.select(self.current.key, self.number + before * self.current.layers, level=1)
        rows = x.shape[0] // (key.shape[0] if key.dim() else 1)
        shape = {"value": (rows, *x.shape[1:]), "channel": (rows, x.shape[1]), "row": (rows,), "minibatch": (1,)}
        keep = noise.coins(key, shape[self.unit], 1.0 - self.p)  # (part, *shape), without parts (*shape)
        if self.unit == "minibatch":
            keep = keep.expand(*key.shape, rows)
        if key.dim():
            keep = keep.flatten(0, 1)
        keep = keep.reshape(*keep.shape, *(1,) * (x.dim() - keep.dim()))
        return x * (keep.to(x.dtype) * self.scale)

    def extra_repr(self) -> str:
        return f"p={self.p}, one coin per {self.unit}"


def purify_dropout(module: nn.Module) -> nn.Module:
    """Replace the dropout layers of a module that is ours to change by pure ones, and return it.

    A UsageError says which layer draws random numbers in a way that cannot be replaced.
    """
    current = Pass()
    for name, layer in list(module.named_modules(remove_duplicate=False)):
        new = _replace_layer(name, layer, current)
        if new is not None and name == "":
            return new
        if new is not None:
            for other, same in list(module.named_modules(remove_duplicate=False)):
                if same is layer:
                    module.set_submodule(other, new)
    if current.layers:
        for layer in module.modules():  # fused attention drops its weights inside
            if isinstance(getattr(layer, "attn_drop", None), PureDropout) and hasattr(layer, "fused_attn"):
                setattr(layer, "fused_attn", False)  # noqa: B010 - timm's modules declare it
    return module


def _replace_layer(name: str, layer: nn.Module, current: Pass) -> PureDropout | None:
    kind, words = type(layer), vars(layer)
    p = float(words.get("p") or words.get("drop_prob") or 0.0) if not isinstance(layer, PureDropout) else 0.0
    if kind in _STOCK and p > 0:
        return PureDropout(p, _STOCK[kind], True, current)
    if kind.__name__ == "DropPath" and p > 0:  # timm's
        return PureDropout(p, "row", bool(words.get("scale_by_keep", True)), current)
    if kind.__name__ == "StochasticDepth" and p > 0:  # torchvision's
        return PureDropout(p, "row" if words.get("mode") == "row" else "minibatch", True, current)
    drops = isinstance(layer, private.DropoutLayer) and p > 0
    inside = isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and layer.dropout > 0
    if drops or inside or isinstance(layer, nn.RReLU):
        raise UsageError(
            f"The layer {name or kind.__name__} ({kind.__name__}) draws random numbers in training, in a way that is "
            "not supported: use nn.Dropout, nn.Dropout1d to 3d or a DropPath, or set its dropout to 0."
        )
    return None


def find_pass(module: nn.Module) -> Pass | None:
    """Return what the dropout layers of a module share; None where there are none."""
    return next((layer.current for layer in module.modules() if isinstance(layer, PureDropout)), None)


@contextmanager
def draw_masks(current: Pass | None, key: Tensor | None) -> Iterator[None]:
    """Drop by masks from the key in the one pass inside."""
    if current is None:
        yield
        return
    before = current.key, current.calls
    current.key, current.calls = key, {}
    try:
        yield
    finally:
        current.key, current.calls = before


# ---------------------------------------------------------------------------- functions that draw


def refuse_random_functions(graph: fx.Graph, layers: Mapping[str, nn.Module], head: str | None) -> None:
    """Raise a UsageError if a forward pass in training calls a random function.

    Such a function would be silently off: a net runs its module in eval mode, and draws nothing itself. Dropout after
    the head is refused too: algorithms that work on features would leave it out.

    graph: the module's, traced in train mode.
    """
    for node in graph.nodes:
        if node.op in ("call_function", "call_method"):
            _refuse(node.target, node.args, node.kwargs)
        if node.op == "call_module" and node.target == head:
            _refuse_dropout_after(node, layers)


def _refuse_dropout_after(head: fx.Node, layers: Mapping[str, nn.Module]) -> None:
    after = list(head.users)
    for node in after:  # grows on the way
        if isinstance(layers.get(str(node.target)), PureDropout):
            raise UsageError(
                f"The dropout layer {node.target} comes after the last linear layer and would drop logits: put it "
                "before that layer, or set its share to 0."
            )
        after += [user for user in node.users if user not in after]


class RefuseRandomFunctions(TorchFunctionMode):
    """Refuse random functions of modules that cannot be traced, while they run in train mode."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _refuse(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _refuse(function: Any, args: Any, kwargs: Any) -> None:
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    if name not in _RANDOM:
        return
    if name == "scaled_dot_product_attention":
        p = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
    elif "dropout" in name:
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    else:
        p = 1.0
    if not isinstance(p, int | float) or p > 0:
        raise UsageError(
            f"The net calls {name}() in its forward pass in training, and a step must draw nothing itself: make it a "
            "layer, such as nn.Dropout, whose masks come from the minibatch's key."
        )
