"""First weights of a net: drawn from a generator, or read without running code from a file, the hub's among them."""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from seqdg.base import UsageError, has_broken_seal, list_some, private, refuse_broken, state_reason

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


def initialize(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """Return the module that `make` builds, with weights drawn by torch's rules from the generator.

    Layers are first built without storage, so that nothing is drawn from torch's global random state.
    """
    with torch.device("meta"):
        module = make()
    private.replace_tensors(module, lambda t: torch.empty(t.shape, dtype=t.dtype))
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear | private.ConvolutionLayer):
            _draw_weights(layer, generator)
        elif isinstance(layer, private.BatchNormLayer):
            layer.reset_parameters()
        elif any(True for _ in layer.parameters(recurse=False)) or any(True for _ in layer.buffers(recurse=False)):
            raise UsageError(
                f"The layer {name} is a {type(layer).__name__}, whose first weights cannot be drawn here. "
                "Build the net of Linear, Conv and BatchNorm layers."
            )
    return module


def _draw_weights(layer: nn.Linear | private.ConvolutionLayer, generator: torch.Generator) -> None:
    """Draw weights and biases uniformly within ±1/√(inputs of one unit), as torch's `reset_parameters` does."""
    bound = 1.0 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)


Adapt = Callable[[nn.Module, dict[str, Tensor]], dict[str, Tensor]]


def load_weights(module: nn.Module, path: Path, adapt: Adapt | None = None, head: str | None = None) -> str:
    """Fill the module from a file and return the file's sha256.

    If the file has no head or one for another number of classes, the module keeps its own; a module without a head
    takes none. Everything else must be in the file, with the same name and shape. (Only BatchNorm's counter, which has
    no effect on the output, may be missing: the oldest public files were written before torch had one.)

    adapt: gives the file's tensors the names of the module.   head: how the names of the head's weights begin; None:
    with that of the last linear layer.
    """
    stored, digest = read_weights(path)
    stored = stored if adapt is None else adapt(module, stored)
    wanted = module.state_dict()
    prefix = f"{find_head(module) if head is None else head}."
    there, ours = ({n: t.shape for n, t in some.items() if n.startswith(prefix)} for some in (stored, wanted))
    alike = {n: shape[1:] for n, shape in there.items()} == {n: shape[1:] for n, shape in ours.items()}
    left = {*there, *ours} if not there or not ours or (alike and there != ours) else set[str]()
    taken = {name: tensor for name, tensor in stored.items() if name not in left}
    needed = {name: tensor for name, tensor in wanted.items() if name not in left}
    refuse_other_names(
        path,
        missing=[n for n in needed if n not in taken and not n.endswith("num_batches_tracked")],
        strange=sorted(n for n in taken if n not in needed),
        shapes=[
            f"{n} {tuple(taken[n].shape)} for {tuple(w.shape)}"
            for n, w in needed.items()
            if n in taken and taken[n].shape != w.shape
        ],
    )
    with torch.no_grad():
        for name, tensor in taken.items():
            wanted[name].copy_(tensor)
    return digest


def refuse_other_names(path: Path, missing: Sequence[str], strange: Sequence[str], shapes: Sequence[str]) -> None:
    """Raise a UsageError with three names of each kind where a file's tensors are not those of the net."""
    kinds = (("it lacks", missing), ("the net has no", strange), ("shapes differ in", shapes))
    faults = [f"{what} {list_some(names, most=3)}" for what, names in kinds if names]
    if faults:
        raise UsageError(
            f"{path.name} does not fit the net: {'; '.join(faults)}. "
            "Give the weight file of this net, or name the net that the file was saved from."
        )


def read_weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a weight file by name, and the sha256 of its bytes."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path.name} is not a weight file by its name. Give one that ends in {', '.join(SUFFIXES)}.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The weight file {path} cannot be read ({error.strerror}). Check the path.") from None
    tensors = _parse_safetensors(content, path) if path.suffix == ".safetensors" else _parse_pickle(content, path)
    return tensors, hashlib.sha256(content).hexdigest()


def _parse_safetensors(content: bytes, path: Path) -> dict[str, Tensor]:
    if has_broken_seal(content):
        raise UsageError(f"{path.name} is damaged: its bytes have changed since it was written. Fetch it again.")
    with refuse_broken(f"{path.name} is not a whole safetensors file", ". Fetch it again."):
        return safetensors.torch.load(content)


def _parse_pickle(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that torch did not write; the errors below say it better
            stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UsageError(
            f"{path.name} holds more than tensors, or is no weight file at all; nothing in it was run. "
            "Save the net's state_dict() alone, best as .safetensors."
        ) from None
    except Exception as error:  # what a damaged pickle raises depends on torch's version
        raise UsageError(f"{path.name} is not a whole weight file ({state_reason(error)}). Fetch it again.") from None
    if not isinstance(stored, Mapping) or not all(isinstance(v, Tensor) for v in stored.values()):
        raise UsageError(
            f"{path.name} is not a state dict, names with a tensor each. Save the net's state_dict() alone."
        )
    return dict(stored)


def find_head(module: nn.Module) -> str:
    """Return the name of the last linear layer, which makes the logits."""
    names = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not names:
        raise UsageError(f"The net {type(module).__name__} has no linear layer to give the logits.")
    return str(names[-1])


# ---------------------------------------------------------------------------- files of the hub of models

PATIENCE = 5.0  # seconds to wait for the hub; its own clients try again for most of a minute
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


def find_kept_file(repository: str) -> Path | None:
    """Return the weight file of a repository of the hub that was fetched before; None: it was not."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = (try_to_load_from_cache(repository, name) for name in WEIGHT_FILES)
    return next((Path(path) for path in found if isinstance(path, str)), None)


def find_hub_file(repository: str, names: Sequence[str], needed_for: str) -> Path:
    """Return the first of these files that a repository of the hub has, from its cache or downloaded.

    needed_for: what reads it, for the error message.
    """
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError
    except ImportError:
        raise _refuse(repository, names, needed_for, "the package huggingface_hub is missing") from None
    for name in names:
        known = try_to_load_from_cache(repository, name)
        if isinstance(known, str):
            return Path(known)
    if why := _find_obstacle():
        raise _refuse(repository, names, needed_for, why)
    for name in names:
        try:
            return Path(hf_hub_download(repository, name))
        except RepositoryNotFoundError:
            raise _refuse(repository, names, needed_for, f"the hub has no {repository}, or not for everyone") from None
        except EntryNotFoundError:
            continue
        except (HfHubHTTPError, OSError) as error:
            raise _refuse(repository, names, needed_for, f"it cannot be downloaded ({state_reason(error)})") from None
    raise _refuse(repository, names, needed_for, f"{repository} has no such file")


@cache
def _find_obstacle() -> str:
    """Ask the hub once, and say why it cannot be reached; empty: it can."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE forbids it to be fetched"
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE):
            return ""
    except urllib.error.HTTPError:
        return ""  # it answers
    except (OSError, ValueError) as error:
        return f"the hub cannot be reached ({getattr(error, 'reason', error)})"


def _refuse(repository: str, names: Sequence[str], needed_for: str, why: str) -> UsageError:
    return UsageError(
        f"{needed_for} needs the file {' or '.join(names)} of {repository}, and {why}. Get the file elsewhere, and "
        "name it with --weights FILE."
    )
