"""Optimizers as pure functions of weights, direction and slots. A name absent from the direction is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seqdg.base import tree
from seqdg.base.episode import Params

Slots = dict[str, Params]


class Rates(NamedTuple):
    """Learning rate, momentum and weight decay; 0-d tensors where trials of a stack have their own."""

    lr: float | Tensor
    momentum: float | Tensor
    weight_decay: float | Tensor


class Optimizer(NamedTuple):
    """Two functions: one makes the first slots, the other returns new weights and slots."""

    init: Callable[[Params], Slots]
    update: Callable[[Params, Params, Slots, Rates], tuple[Params, Slots]]


def _update_sgd(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """w - lr * d, and nothing else: with FFO-S-MLDG's direction this is Algorithm 2 of the paper to the letter."""
    return {**params, **tree.add({name: params[name] for name in direction}, direction, -rates.lr)}, slots


def _update_momentum(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """The paper's M-SGD: v = momentum * v + (d + weight_decay * w), w - lr * v."""
    moved, old = ({name: values[name] for name in direction} for values in (params, slots["velocity"]))
    velocity = tree.add(tree.add(direction, moved, rates.weight_decay), old, rates.momentum)
    return {**params, **tree.add(moved, velocity, -rates.lr)}, {"velocity": {**slots["velocity"], **velocity}}


def _update_adam(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """Adam (Kingma and Ba, 2015) with decoupled weight decay; `momentum` is its first decay rate."""
    new = dict(params)
    first, second, count = dict(slots["first"]), dict(slots["second"]), dict(slots["count"])
    kept = 1 - rates.lr * rates.weight_decay
    for name, d in direction.items():
        count[name] = count[name] + 1
        first[name] = (rates.momentum * first[name]).add_((1 - rates.momentum) * d)
        second[name] = (0.999 * second[name]).add_((0.001 * d).mul_(d))
        # The corrections for starting from zero are one number each: they need not pass over all weights.
        spread = (1 - 0.999 ** count[name]).sqrt()
        length = rates.lr * spread / (1 - rates.momentum ** count[name])
        step = (length * first[name]).div_(second[name].sqrt().add_(1e-8 * spread))
        new[name] = (kept * params[name]).sub_(step)
    return new, {"first": first, "second": second, "count": count}


def _update_adam_l2(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """Adam whose weight decay is part of the direction (L2 regularization), as in torch.optim.Adam and DomainBed."""
    decayed = tree.add(direction, {name: params[name] for name in direction}, rates.weight_decay)
    return _update_adam(params, decayed, slots, rates._replace(weight_decay=0.0))


def _make_zeros(params: Params) -> Params:
    return {name: torch.zeros_like(w) for name, w in params.items()}


def _make_counts(params: Params) -> Params:
    return {name: w.new_zeros(()) for name, w in params.items()}


def _init_adam(params: Params) -> Slots:
    return {"first": _make_zeros(params), "second": _make_zeros(params), "count": _make_counts(params)}


OPTIMIZERS = {
    "sgd": Optimizer(lambda params: {}, _update_sgd),
    "momentum": Optimizer(lambda params: {"velocity": _make_zeros(params)}, _update_momentum),
    "adam": Optimizer(_init_adam, _update_adam),
    "adam-l2": Optimizer(_init_adam, _update_adam_l2),
}
