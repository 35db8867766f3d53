"""Fully connected nets.

The paper's two: VLCS `mlp(4096, (1024, 128), classes)`, IXMAS `mlp(inputs, (2000,), classes, batchnorm=True)`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn


def mlp(inputs: int, hidden: Sequence[int], classes: int, batchnorm: bool = False) -> nn.Module:
    """Linear, BatchNorm where asked for, ReLU for each hidden width, then a linear head. Flattens what it is given."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = inputs
    for i, units in enumerate(hidden, start=1):
        layers[f"linear{i}"] = nn.Linear(width, units)
        if batchnorm:
            layers[f"batchnorm{i}"] = nn.BatchNorm1d(units)
        layers[f"relu{i}"] = nn.ReLU()
        width = units
    layers["head"] = nn.Linear(width, classes)
    return nn.Sequential(layers)
