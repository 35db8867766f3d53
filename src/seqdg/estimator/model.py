"""A trained model: from the user's rows to logits. It holds a net, or what another learner has fitted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seqdg.base import Params, tree
from seqdg.bench import Predict, as_outputs
from seqdg.core import Algorithm, Sequential, Wrapper, list_layers
from seqdg.estimator.model_inputs import TOGETHER, Input
from seqdg.nets import Net, NetSpec
from seqdg.training import NumberLoss, count_filled, fill_cyclically, pool_outputs, shuffle_order

ROWS = 4096  # that a learner of no net predicts at once


@dataclass(frozen=True, kw_only=True)
class Model(ABC):
    """Everything that serves an unseen domain."""

    input: Input
    name: str  # of the algorithm
    classes: NDArray[Any]  # none where numbers are predicted
    facts: dict[str, Any] = field(default_factory=dict)  # on the card: how it was made
    device: str = "cpu"

    @property
    def is_regression(self) -> bool:
        """True where the model predicts numbers, not classes."""
        return not len(self.classes)

    @property
    def outputs(self) -> int:
        """Number of outputs per row: a logit for each class, or one number."""
        return len(self.classes) or 1

    @property
    def together(self) -> int:
        """Number of rows of one domain that a transductive algorithm predicts at once; 0 for other algorithms."""
        return 0

    def compute_logits(self, x: Any) -> tuple[NDArray[np.float64], list[str]]:
        """Return logits (row, class), or numbers (row, 1) in the user's units, and notes on what differs from the
        training data."""
        rows, notes = self.input.read(x)
        return self.predict_rows(rows), notes

    @abstractmethod
    def predict_rows(self, rows: Tensor) -> NDArray[np.float64]:
        """Return logits (row, class), or numbers (row, 1), of rows that the input has read."""

    def choose_classes(self, logits: NDArray[np.float64]) -> NDArray[Any]:
        """Return the most probable class of every row."""
        return np.asarray(self.classes[logits.argmax(axis=1)])

    def with_facts(self, **facts: Any) -> Model:
        return replace(self, facts={**self.facts, **facts})


@dataclass(frozen=True, kw_only=True)
class ArrayModel(Model):
    """A model fitted by an `ArrayLearner`."""

    predict: Predict

    def predict_rows(self, rows: Tensor) -> NDArray[np.float64]:
        """Return the logarithms of the probabilities (row, class), or numbers (row, 1)."""
        parts: list[NDArray[np.float64]] = [np.empty((0, self.outputs))]
        for chunk in torch.split(rows, ROWS) if len(rows) else ():
            parts.append(as_outputs(self.predict(chunk.numpy()), self.is_regression))
        return np.concatenate(parts)


@dataclass(frozen=True, kw_only=True)
class NetModel(Model):
    """A net, its weights, and the algorithm that says how they predict."""

    module: nn.Module  # the net, with its own buffers
    spec: NetSpec | None  # how to build it; None: it is the user's own
    batchnorm: str  # policy
    algorithm: Algorithm
    params: Params  # deployed; those of an ensemble have a first axis of members
    members: int = 1
    temperature: float = 1.0  # by which logits are divided
    target: tuple[float, float] = (0.0, 1.0)  # mean and deviation of the numbers that it was trained on

    @property
    def together(self) -> int:
        return self.algorithm.together

    def predict_rows(self, rows: Tensor) -> NDArray[np.float64]:
        """Return logits (row, class), or numbers (row, 1), of rows that the input has read.

        A transductive algorithm takes them as rows of one domain, batch by batch, as the trainer does.
        """
        if not self.together:
            return self._predict_parts(rows, max(1, TOGETHER // max(1, math.prod(rows.shape[1:]))))
        order = shuffle_order(len(rows))
        whole = fill_cyclically(rows[order], count_filled(len(rows), self.together))
        return np.take(self._predict_parts(whole, self.together), order.argsort().numpy(), axis=0)

    def _predict_parts(self, rows: Tensor, together: int) -> NDArray[np.float64]:
        net, members = self.net
        parts: list[NDArray[np.float64]] = [np.empty((0, self.outputs))]
        mean, deviation = self.target
        with torch.no_grad():
            for chunk in torch.split(rows, together) if len(rows) else ():
                inputs = self.input.prepare(chunk.to(self.device)).to(self.input.dtype)
                each = torch.stack([self.algorithm.predict(net, params, inputs) for params in members])
                outputs = pool_outputs(each, self.members)[0].double() / self.temperature
                parts.append((outputs * deviation + mean if self.is_regression else outputs).cpu().numpy())
        return np.concatenate(parts)

    @cached_property
    def net(self) -> tuple[Net, list[Params]]:
        """The net and the weights of every member, on its device and in the precision that it predicts in."""
        dtype = self.input.dtype
        criterion = NumberLoss() if self.is_regression else cross_entropy
        net = Net(self.module, self.batchnorm, criterion).to(self.device, dtype)
        placed = {name: p.to(self.device, dtype if p.is_floating_point() else None) for name, p in self.params.items()}
        return net, tree.unstack(placed) if self.members > 1 else [placed]


def compute_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities (row, class)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: NDArray[np.float64] = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities


def predicts_plainly(algorithm: Algorithm) -> bool:
    """Return whether its prediction is the net's own output, so that a model can predict without the algorithm."""
    delegating = {Algorithm.predict, Sequential.predict, Wrapper.predict}
    return all(type(layer).predict in delegating for layer in list_layers(algorithm))


class ModelModule(nn.Module):
    """A model's net and weights as one module, for export: from the net's inputs to logits, or to numbers."""

    def __init__(self, model: NetModel) -> None:
        super().__init__()
        self.algorithm, self.names, self.members = model.algorithm, tuple(model.params), model.members
        self.temperature = model.temperature
        self.target = model.target if model.is_regression else None
        self.net, members = replace(model, device="cpu").net
        for k, params in enumerate(members):
            for i, name in enumerate(self.names):
                self.register_buffer(f"weight_{k}_{i}", params[name].clone())

    def forward(self, x: Tensor) -> Tensor:
        each = []
        for k in range(self.members):
            params = {name: getattr(self, f"weight_{k}_{i}") for i, name in enumerate(self.names)}
            each.append(self.algorithm.predict(self.net, params, x))
        outputs = each[0] if self.members == 1 else pool_outputs(torch.stack(each), self.members)[0]
        outputs = outputs / self.temperature
        return outputs if self.target is None else outputs * self.target[1] + self.target[0]
