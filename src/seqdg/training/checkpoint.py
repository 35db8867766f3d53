"""Checkpoints: the state of a stack in training as bytes, from which it continues to the same weights, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from seqdg.results import Evaluation
from seqdg.training.optimizers import Slots
from seqdg.training.stack import State

FOLDER = "checkpoints"


@dataclass
class Snapshot:
    """Everything that a group of trials needs to go on."""

    state: State
    evaluations: list[list[Evaluation]]  # of every trial
    seconds: float = 0.0  # of work so far


def name_checkpoint(group: str) -> str:
    """Return the file name of the checkpoint of the group with this key."""
    return f"{FOLDER}/{group}.safetensors"


def encode_snapshot(snapshot: Snapshot, trials: Sequence[str], made_by: Mapping[str, str]) -> bytes:
    """Write a snapshot of the trials with these keys as bytes. `made_by`: what must be the same for the same bits."""
    state = snapshot.state
    tensors = {f"params/{name}": value for name, value in state.params.items()}
    tensors |= {f"memory/{name}": value for name, value in state.memory.items()}
    tensors |= {f"slots/{slot}/{name}": v for slot, values in state.slots.items() for name, v in values.items()}
    if state.losses:
        tensors["losses"] = torch.cat(state.losses)
    header = {
        "trials": list(trials),
        "made_by": dict(made_by),
        "step": state.step,
        "stage": state.stage,
        "slots": list(state.slots),
        "tensors": {name: value.stride() for name, value in tensors.items()},  # in order: sums run over it
        "evaluations": [[asdict(e) for e in one] for one in snapshot.evaluations],
        "seconds": snapshot.seconds,
    }
    # Cloned, as safetensors refuses tensors that share memory.
    plain = {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    return save(plain, {"seqdg": json.dumps(header)})


def decode_snapshot(data: bytes, device: torch.device) -> Snapshot:
    """Read the bytes that `encode_snapshot` wrote; raise a ValueError where they are not a checkpoint."""
    header = read_header(data)
    try:
        stored = load(data)
    except SafetensorError as error:
        raise ValueError(f"not a checkpoint: {error}") from None
    tensors = {name: place_tensor(stored[name], stride, device) for name, stride in header["tensors"].items()}
    slots: Slots = {slot: _select_prefix(f"slots/{slot}/", tensors) for slot in header["slots"]}
    losses = [tensors["losses"]] if "losses" in tensors else []
    state = State(header["step"], header["stage"], _select_prefix("params/", tensors), slots, losses)
    state.memory = _select_prefix("memory/", tensors)
    evaluations = [[Evaluation(**e) for e in one] for one in header["evaluations"]]
    return Snapshot(state, evaluations, header["seconds"])


def read_header(data: bytes) -> dict[str, Any]:
    """Read the header of a checkpoint; raise a ValueError where the bytes are not one."""
    length = int.from_bytes(data[:8], "little")
    try:
        header: dict[str, Any] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["seqdg"])
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a checkpoint: {error}") from None
    return header


def place_tensor(value: Tensor, stride: Sequence[int], device: torch.device) -> Tensor:
    """Copy a tensor to the device in the memory layout that it had, as the choice of a kernel may depend on it."""
    if any(s == 0 for s in stride):  # an expanded axis: its rows are one and the same memory
        return value.to(device)
    return torch.empty_strided(value.shape, tuple(stride), dtype=value.dtype, device=device).copy_(value)


def _select_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
