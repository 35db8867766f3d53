"""The axis of trials: stack the weights of several trials, and map a function of one trial over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from seqdg.base import Params, private


def map_trials(one: Callable[..., Any], trials: int) -> Callable[..., Any]:
    """Make a function of all trials from one of a single trial; tensors in and out have a first axis of trials."""
    if trials > 1:
        return vmap(one)

    def map_single(*stacked: Any) -> Any:
        return _add_axis(one(*(_remove_axis(s) for s in stacked)))

    return map_single


def _remove_axis(value: Any) -> Any:
    return private.map_tensors(lambda t: t.squeeze(0), value)


def _add_axis(value: Any) -> Any:
    return private.map_leaves(lambda t: t.unsqueeze(0), value)


def stack_weights(trials: Sequence[Params], device: torch.device) -> Params:
    """Stack the weights of trials on the device; those of a single trial in the memory order of its inputs."""
    stacked = {name: stack_shared([params[name] for params in trials], device) for name in trials[0]}
    return stacked if len(trials) > 1 else {name: _to_channels_last(p) for name, p in stacked.items()}


def stack_shared(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Stack tensors on the device; one that several trials share, or that repeats itself, is copied there once."""
    shared = {id(v): v for v in values}
    place = {key: i for i, key in enumerate(shared)}
    repeated = [axis for axis in range(values[0].dim()) if all(v.stride(axis) == 0 for v in shared.values())]
    once = torch.stack([_drop_repeats(v, repeated) for v in shared.values()]).to(device)
    once = once.expand(-1, *values[0].shape)
    if len(once) == len(values):
        return once.contiguous()
    return once.index_select(0, torch.tensor([place[id(v)] for v in values], device=device))


def _drop_repeats(value: Tensor, repeated: Sequence[int]) -> Tensor:
    """Return a tensor with length 1 along the axes along which it is expanded."""
    for axis in repeated:
        value = value.narrow(axis, 0, 1) if value.shape[axis] else value
    return value


def _to_channels_last(p: Tensor) -> Tensor:
    """Return the weights (1, out, in, height, width) of a convolution in the memory order of its inputs."""
    if p.dim() != 5:
        return p
    return p.squeeze(0).contiguous(memory_format=torch.channels_last).unsqueeze(0)
