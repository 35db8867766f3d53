"""Points between the layers of a net, where an algorithm may change what passes, or look at it.

A point is an identity without weights. `Net.with_points` gives it a function for as long as a pass lasts. Ours are
named `after1`, `after2`, ... after the stages of a net. A module without any gets them after its parts `layer1`,
`layer2`, ... (ResNets), `stages.0`, ... or `blocks.0`, ... (timm's models); the names of the weights stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

PointFunction = Callable[[Tensor], Tensor]  # h (row, channel, ...) to what passes on


class Point(nn.Module):
    """A named point between two layers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.function: PointFunction | None = None

    def forward(self, h: Tensor) -> Tensor:
        return h if self.function is None else self.function(h)

    def extra_repr(self) -> str:
        return self.name


def place_points(module: nn.Module) -> nn.Module:
    """Put points after the stages of a module that is ours to change and has none, and return it."""
    if list_points(module):
        return module
    for pattern, first in ((r"layer(\d+)", 1), (r"stages\.(\d+)", 0), (r"blocks\.(\d+)", 0)):
        stages = [(re.fullmatch(pattern, name), stage) for name, stage in module.named_modules()]
        if matches := [(int(match[1]) - first + 1, stage) for match, stage in stages if match]:
            for number, stage in matches:
                _append_point(stage, Point(f"after{number}"))
            break
    return module


def _append_point(stage: nn.Module, point: Point) -> None:
    kind: Any = type(stage)
    stage.add_module(point.name, point)
    if kind.forward is nn.Sequential.forward:
        return  # it calls all that are in it, one after the other

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.get_submodule(point.name)(kind.forward(self, *args, **kwargs))

    stage.__class__ = type(kind.__name__, (kind,), {"forward": forward})


def list_points(module: nn.Module) -> tuple[str, ...]:
    """Return the names of a module's points, in order."""
    return tuple(dict.fromkeys(layer.name for layer in module.modules() if isinstance(layer, Point)))


@contextmanager
def apply_at_points(module: nn.Module, functions: Mapping[str, PointFunction]) -> Iterator[None]:
    """Let points pass on what these functions return."""
    points = [layer for layer in module.modules() if isinstance(layer, Point) and layer.name in functions]
    before = [point.function for point in points]
    for point in points:
        point.function = functions[point.name]
    try:
        yield
    finally:
        for point, function in zip(points, before, strict=True):
            point.function = function
