"""Weight files: read without running code from them, matched to a net by name and shape."""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from seqdg.base.errors import UsageError
from seqdg.base.words import list_some

SUFFIXES = (".safetensors", ".pth", ".pt")


def load(module: nn.Module, path: Path) -> str:
    """Fill the module from a file and return the file's sha256.

    A head for another number of classes stays behind in the file, and the module keeps the one it has. Everything
    else must be there, under the same name and of the same shape. (Only the counter of BatchNorm, which has no part
    in the output, may be missing: the oldest public files were written before torch had one.)
    """
    stored, digest = read(path)
    wanted = module.state_dict()
    left = _head_of_other_classes(module, stored)
    taken = {name: tensor for name, tensor in stored.items() if name not in left}
    faults = _faults({name: tensor for name, tensor in wanted.items() if name not in left}, taken)
    if faults:
        raise UsageError(
            f"{path.name} does not fit the net: {'; '.join(faults)}. "
            "Give the weight file of this net, or name the net that the file was saved from."
        )
    with torch.no_grad():
        for name, tensor in taken.items():
            wanted[name].copy_(tensor)
    return digest


def read(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a weight file by name, and the sha256 of its bytes."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path.name} is not a weight file by its name. Give one that ends in {', '.join(SUFFIXES)}.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The weight file {path} cannot be read ({error.strerror}). Check the path.") from None
    tensors = _from_safetensors(content, path) if path.suffix == ".safetensors" else _from_pickle(content, path)
    return tensors, hashlib.sha256(content).hexdigest()


def _from_safetensors(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise UsageError(f"{path.name} is not a whole safetensors file ({error}). Fetch it again.") from None


def _from_pickle(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickles that torch did not write; the errors below say it better
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UsageError(
            f"{path.name} holds more than tensors, or is no weight file at all; nothing in it was run. "
            "Save the net's state_dict() alone, best as .safetensors."
        ) from None
    except Exception as error:  # whatever the reader of a damaged pickle stumbles over, by torch's version
        raise UsageError(f"{path.name} is not a whole weight file ({_first_line(error)}). Fetch it again.") from None
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise UsageError(
            f"{path.name} is not a state dict, names with a tensor each. Save the net's state_dict() alone."
        )
    return dict(found)


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0].rstrip(".") or type(error).__name__


def head(module: nn.Module) -> str:
    """Name of the last linear layer, which gives the logits."""
    names = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not names:
        raise UsageError(f"The net {type(module).__name__} has no linear layer to give the logits.")
    return str(names[-1])


def _head_of_other_classes(module: nn.Module, stored: Mapping[str, Tensor]) -> frozenset[str]:
    """Names of the head's tensors where the file's differ from the module's in the number of classes alone."""
    prefix = head(module)
    own = {f"{prefix}.{name}": tensor for name, tensor in module.get_submodule(prefix).state_dict().items()}
    there = all(name in stored and stored[name].shape[1:] == tensor.shape[1:] for name, tensor in own.items())
    same = there and all(stored[name].shape == tensor.shape for name, tensor in own.items())
    return frozenset(own) if there and not same else frozenset()


def _faults(wanted: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> list[str]:
    missing = [n for n in wanted if n not in stored and not n.endswith("num_batches_tracked")]
    strange = sorted(n for n in stored if n not in wanted)
    shapes = [
        f"{n} {tuple(stored[n].shape)} for {tuple(w.shape)}"
        for n, w in wanted.items()
        if n in stored and stored[n].shape != w.shape
    ]
    kinds = (("it lacks", missing), ("the net has no", strange), ("shapes differ in", shapes))
    return [f"{what} {list_some(names, most=3)}" for what, names in kinds if names]
