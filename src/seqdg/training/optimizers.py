"""Optimizers. A name absent from the direction is left alone.

`update` is the definition: a pure function of one trial's weights, direction and slots. `update_in_place` does the same
to all trials of a stack at once, where they lie, and passes over memory as few times as there is a kernel for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from seqdg.base import Params, private, tree
from seqdg.kernels import can_run_kernels

Slots = dict[str, Params]


class Rates(NamedTuple):
    """Learning rate, momentum and weight decay.

    Of one trial: numbers, or 0-d tensors. Of a stack: numbers where all trials have the same, else all three (trial,).
    With a schedule the learning rate is a tensor, 0-d where all trials have the same.
    """

    lr: float | Tensor
    momentum: float | Tensor
    weight_decay: float | Tensor

    @property
    def vary(self) -> bool:
        """Whether the trials of a stack have their own."""
        return isinstance(self.momentum, Tensor)


class Optimizer(NamedTuple):
    """The names of its slots, how one trial's begin, what an update is, and the same for a stack: fused(weights,
    direction, slots)."""

    names: tuple[str, ...]
    init: Callable[[Params], Slots]
    update: Callable[[Params, Params, Slots, Rates], tuple[Params, Slots]]
    fused: Callable[[Params, Params, Slots, Rates], None]

    def update_in_place(self, params: Params, direction: Params, slots: Slots, rates: Rates) -> None:
        """Write the new weights and slots of all trials over the old ones; all tensors have a first axis of trials."""
        if not direction:
            return
        weights, held = _select(params, direction), {slot: _select(slots[slot], direction) for slot in self.names}
        if rates.vary and not can_run_kernels(next(iter(weights.values()))):
            new, after = vmap(self.update)(weights, direction, held, rates)
            for old, values in ((weights, new), *((held[slot], after[slot]) for slot in held)):
                for name, value in old.items():
                    value.copy_(values[name])
        else:
            steps = {name: _lay_out_as(weights[name], d) for name, d in direction.items()}
            self.fused(weights, steps, held, rates)


def _update_sgd(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """w - lr * d, and nothing else: with FFO-S-MLDG's direction this is Algorithm 2 of the paper to the letter."""
    return {**params, **tree.add(_select(params, direction), direction, -rates.lr)}, slots


def _fuse_sgd(params: Params, direction: Params, slots: Slots, rates: Rates) -> None:
    weights, steps = list(params.values()), list(direction.values())
    if not isinstance(rates.lr, Tensor):
        private.add_each_in_place(weights, steps, -rates.lr)
        return
    for w, d in zip(weights, steps, strict=True):
        w.addcmul_(d, -rates.lr.reshape(-1, *[1] * (w.dim() - 1)))


def _update_momentum(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """The paper's M-SGD: v = momentum * v + (d + weight_decay * w), w - lr * v."""
    moved, old = _select(params, direction), _select(slots["velocity"], direction)
    velocity = tree.add(tree.add(direction, moved, rates.weight_decay), old, rates.momentum)
    return {**params, **tree.add(moved, velocity, -rates.lr)}, {"velocity": {**slots["velocity"], **velocity}}


def _fuse_momentum(params: Params, direction: Params, slots: Slots, rates: Rates) -> None:
    velocity = slots["velocity"]
    plain: Any = rates
    if rates.vary:
        from seqdg.kernels import step_with_momentum

        for name, w in params.items():
            step_with_momentum(w, velocity[name], direction[name], *plain)
        return
    velocities = list(velocity.values()) if rates.momentum else []
    private.step_sgd(list(params.values()), list(direction.values()), velocities, *plain)


def _update_adam(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """Adam (Kingma and Ba, 2015) with decoupled weight decay; `momentum` is its first decay rate."""
    new = dict(params)
    first, second, count = dict(slots["first"]), dict(slots["second"]), dict(slots["count"])
    kept = 1 - rates.lr * rates.weight_decay
    for name, d in direction.items():
        count[name] = count[name] + 1
        taken = count[name].to(d.dtype)
        first[name] = (rates.momentum * first[name]).add_((1 - rates.momentum) * d)
        second[name] = (0.999 * second[name]).add_((0.001 * d).mul_(d))
        # The corrections for starting from zero are one number each: they need not pass over all weights.
        spread = (1 - 0.999**taken).sqrt()
        length = rates.lr * spread / (1 - rates.momentum**taken)
        step = (length * first[name]).div_(second[name].sqrt().add_(1e-8 * spread))
        new[name] = (kept * params[name]).sub_(step)
    return new, {"first": first, "second": second, "count": count}


def _update_adam_l2(params: Params, direction: Params, slots: Slots, rates: Rates) -> tuple[Params, Slots]:
    """Adam whose weight decay is part of the direction (L2 regularization), as in torch.optim.Adam and DomainBed."""
    decayed = tree.add(direction, _select(params, direction), rates.weight_decay)
    return _update_adam(params, decayed, slots, rates._replace(weight_decay=0.0))


def _fuse_adam(params: Params, direction: Params, slots: Slots, rates: Rates, coupled: bool = False) -> None:
    first, second, count = slots["first"], slots["second"], slots["count"]
    private.add_to_each_in_place(list(count.values()), 1.0)
    plain: Any = rates
    if rates.vary:
        from seqdg.kernels import step_with_adam

        for name, w in params.items():
            step_with_adam(coupled, w, first[name], second[name], direction[name], count[name], *plain)
        return
    private.step_adam(
        list(params.values()), list(direction.values()), list(first.values()), list(second.values()),
        [c.select(0, 0) for c in count.values()],  # all trials of a stack have taken as many steps
        lr=rates.lr, beta1=rates.momentum, beta2=0.999, weight_decay=rates.weight_decay, eps=1e-8, coupled=coupled,
    )  # fmt: skip


def _lay_out_as(w: Tensor, d: Tensor) -> Tensor:
    """Return a direction in the memory order of its weights."""
    if all(s == t or size == 1 for s, t, size in zip(w.stride(), d.stride(), w.shape, strict=True)):
        return d if d.stride() == w.stride() else d.as_strided(w.shape, w.stride())
    return torch.empty_like(w).copy_(d)


def _select(values: Params, names: Iterable[str]) -> Params:
    return {name: values[name] for name in names}


def _make_zeros(params: Params) -> Params:
    return {name: torch.zeros_like(w) for name, w in params.items()}


def _init_adam(params: Params) -> Slots:
    counts = {name: w.new_zeros((), dtype=torch.float32) for name, w in params.items()}
    return {"first": _make_zeros(params), "second": _make_zeros(params), "count": counts}


_ADAM = ("first", "second", "count")
OPTIMIZERS = {
    "sgd": Optimizer((), lambda params: {}, _update_sgd, _fuse_sgd),
    "momentum": Optimizer(
        ("velocity",), lambda params: {"velocity": _make_zeros(params)}, _update_momentum, _fuse_momentum
    ),
    "adam": Optimizer(_ADAM, _init_adam, _update_adam, _fuse_adam),
    "adam-l2": Optimizer(_ADAM, _init_adam, _update_adam_l2, partial(_fuse_adam, coupled=True)),
}
