"""A trained model: from what the user gives to logits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqdg.base.episode import Params
from seqdg.core.algorithm import Algorithm
from seqdg.core.sequential import Sequential
from seqdg.estimator.inputs import TOGETHER, Input
from seqdg.nets import Net, NetSpec


@dataclass(frozen=True)
class Model:
    """Everything that serves an unseen domain."""

    input: Input
    module: nn.Module  # the net, with its own buffers
    spec: NetSpec | None  # how to build it; None: it is the user's own
    batchnorm: str  # policy
    algorithm: Algorithm
    name: str  # of the algorithm
    params: Params  # deployed
    classes: NDArray[Any]
    facts: dict[str, Any] = field(default_factory=dict)  # what the card says of its making
    device: str = "cpu"

    def logits(self, x: Any) -> tuple[NDArray[np.float64], list[str]]:
        """(row, class), and notes on what was not as in training."""
        rows, notes = self.input.read(x)
        net, params = self.net
        size = max(1, math.prod(rows.shape[1:]))
        parts = [np.empty((0, len(self.classes)))]
        with torch.no_grad():
            for chunk in torch.split(rows, max(1, TOGETHER // size)) if len(rows) else ():
                entering = self.input.enter(chunk.to(self.device)).to(self.input.dtype)
                parts.append(self.algorithm.predict(net, params, entering).double().cpu().numpy())
        return np.concatenate(parts), notes

    @cached_property
    def net(self) -> tuple[Net, Params]:
        """On its device, in the precision that it serves in."""
        dtype = self.input.dtype
        net = Net(self.module, self.batchnorm).to(self.device, dtype)
        return net, {
            name: p.to(self.device, dtype if p.is_floating_point() else None) for name, p in self.params.items()
        }

    def with_facts(self, **facts: Any) -> Model:
        return replace(self, facts={**self.facts, **facts})


def probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = shifted / shifted.sum(axis=1, keepdims=True)
    return found


def labels(model: Model, logits: NDArray[np.float64]) -> NDArray[Any]:
    return np.asarray(model.classes[logits.argmax(axis=1)])


def predicts_plainly(algorithm: Algorithm) -> bool:
    """Whether its prediction is the net's own output, so that a model needs nothing of the algorithm to serve."""
    while isinstance(algorithm, Sequential):
        algorithm = algorithm.base
    return type(algorithm).predict is Algorithm.predict


class Served(nn.Module):
    """A model's net and weights as one module, for export: what enters the net to logits."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.algorithm, self.names = model.algorithm, tuple(model.params)
        self.net, params = replace(model, device="cpu").net
        for i, name in enumerate(self.names):
            self.register_buffer(f"weight_{i}", params[name].clone())

    def forward(self, x: Tensor) -> Tensor:
        params = {name: getattr(self, f"weight_{i}") for i, name in enumerate(self.names)}
        return self.algorithm.predict(self.net, params, x)
