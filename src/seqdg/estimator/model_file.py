"""A model as a directory: `model.safetensors` (weights), `model.json` (all else), `card.md` (for people).

Nothing in it is a pickle, and nothing in it is executed. model.json holds the hash of the weights and one of itself, so
that a directory that was cut short or changed is noticed. If a learner trained no neural network, the weights are the
arrays that it packs.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from seqdg.base import UsageError, replace_folder, under_prefix, with_prefix
from seqdg.bench import (
    BYTES,
    ArrayLearner,
    FittedEstimator,
    Packed,
    Predict,
    find_learner,
    list_learners,
    pack_estimator,
    unpack_estimator,
)
from seqdg.core import Algorithm, list_algorithms, list_wrappers, shorten
from seqdg.core import build as build_algorithm
from seqdg.estimator.model import ArrayModel, Model, NetModel, predicts_plainly
from seqdg.estimator.model_card import render_card
from seqdg.estimator.model_inputs import Input, rebuild_input
from seqdg.estimator.recipe import read_settings
from seqdg.nets import NetSpec, build_net, weights

FORMAT, SCHEMA = "seqdg-model", 4
WEIGHTS, TEXT, CARD = "model.safetensors", "model.json", "card.md"


def check_destination(path: Path, force: bool = True) -> None:
    """Raise a UsageError if the path holds something other than a model, or cannot be written.

    force: a model that is there may be replaced.
    """
    above = next(p for p in path.absolute().parents if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = "is a file" if above.is_file() else "may not be written to"
        raise UsageError(f"The model cannot be written to {path}: {above} {why}.")
    if path.exists() and not (path / TEXT).is_file() and (path.is_file() or any(path.iterdir())):
        raise UsageError(f"{path} is there already and holds no model: choose another name.")
    if (path / TEXT).is_file() and not force:
        raise UsageError(f"{path} holds a model already: add --force to replace it, or give another --out.")


def check_saving(names: Iterable[str]) -> None:
    """Raise a UsageError if a model of one of these algorithms could not be saved, before anything is trained."""
    for name in names:
        find_learner(name).check_saving()


def write_model(model: Model, path: Path) -> None:
    """Write all of it or nothing. A model that is there is replaced; anything else that is there is left alone."""
    check_destination(path)
    tensors, about = _pack(model)
    inputs = with_prefix(model.input.tensors, "input.")
    content = save({name: t.clone().contiguous() for name, t in {**tensors, **inputs}.items()})
    text = _describe(model, about, hashlib.sha256(content).hexdigest())
    try:
        with replace_folder(path) as folder:
            (folder / WEIGHTS).write_bytes(content)
            (folder / TEXT).write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            (folder / CARD).write_text(render_card(text), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The model cannot be written to {path}: {error.strerror or error}.") from error


def read_description(path: Path) -> dict[str, Any]:
    """Read and check model.json."""
    if not path.is_dir():
        raise UsageError(f"There is no model directory {path}. Give the one that `seqdg fit --out` or `save` wrote.")
    for name in (TEXT, WEIGHTS):
        if not (path / name).is_file():
            raise UsageError(f"{path} has no {name}: it is no model, or not all of it. Copy it again.")
    try:
        text = json.loads((path / TEXT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path / TEXT} cannot be read ({error}): it was cut short or changed. Copy it again."
        ) from None
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        raise UsageError(f"{path / TEXT} does not describe a model of seqdg.")
    if text.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} was written by another version of seqdg (its format is {text.get('schema')}, and this version "
            f"reads {SCHEMA}): use that version, or fit the model again."
        )
    if text.get("sha256") != _hash(text):
        raise UsageError(
            f"{path / TEXT} was changed after the model was saved: its hash does not match. Copy it again."
        )
    return text


def read_model(path: Path, net: nn.Module | None = None, device: str = "cpu") -> Model:
    """Read a model. net: the user's own module, where the model was trained with one."""
    text = read_description(path)
    tensors, digest = weights.read_weights(path / WEIGHTS)
    if digest != text["weights_sha256"]:
        raise UsageError(
            f"{path / WEIGHTS} was changed after the model was saved: its hash does not match. Copy it again."
        )
    shared: dict[str, Any] = {
        "input": rebuild_input(text["input"], under_prefix(tensors, "input.")),
        "name": text["algorithm"],
        "classes": np.array(text["classes"]["values"], dtype=object if text["classes"]["type"] == "O" else None),
        "facts": text["facts"],
        "device": device,
    }
    if "learner" in text:
        return ArrayModel(predict=_unpack(text, under_prefix(tensors, "array.")), **shared)
    spec = None if text["net"] is None else NetSpec(**text["net"])
    outputs = len(shared["classes"]) or 1
    module = _copy_module(path, text, net) if spec is None else _build_module(spec, shared["input"], outputs)
    _restore_constants(module, under_prefix(tensors, "buffer."), under_prefix(tensors, "frozen."))
    model = NetModel(
        module=module,
        spec=spec,
        batchnorm=text["batchnorm"],
        algorithm=_build_algorithm(text),
        params=under_prefix(tensors, "param."),
        members=text["members"],
        temperature=text["temperature"],
        target=tuple(text["target"]),
        **shared,
    )
    if spec is None:
        _check_net(model)
    return model


def _pack(model: Model) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what only this kind of model has: tensors by name, and what JSON holds."""
    if isinstance(model, NetModel):
        frozen = {name: p for name, p in model.module.named_parameters() if not p.requires_grad}
        constants = {**with_prefix(dict(model.module.named_buffers()), "buffer."), **with_prefix(frozen, "frozen.")}
        tensors = {**with_prefix(model.params, "param."), **{name: t.detach().cpu() for name, t in constants.items()}}
        return tensors, {
            "members": model.members,
            "temperature": model.temperature,
            "target": list(model.target),
            "plain": predicts_plainly(model.algorithm),
            "net": None if model.spec is None else {**asdict(model.spec), "weights": None},
            "module": f"{type(model.module).__module__}.{type(model.module).__qualname__}",
            "batchnorm": model.batchnorm,
        }
    assert isinstance(model, ArrayModel)
    if isinstance(model.predict, FittedEstimator):
        packed = pack_estimator(model.predict)
    else:
        learner = find_learner(model.name)
        assert isinstance(learner, ArrayLearner)
        packed = learner.pack(model.predict)
    arrays = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in packed.arrays.items()}
    return with_prefix(arrays, "array."), {"learner": dict(packed.values)}


def _unpack(text: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Predict:
    """Let the learner rebuild its model from arrays. Code that a model names by a path is not executed."""
    packed = Packed({n: t.numpy() for n, t in tensors.items()}, text["learner"])
    if BYTES in tensors:
        return unpack_estimator(packed)
    name = shorten(text["algorithm"])
    if name not in list_learners():
        raise UsageError(f"The model was trained by '{name}', which is not registered: import it first.")
    learner = find_learner(name)
    assert isinstance(learner, ArrayLearner)
    return learner.unpack(packed)


def _describe(model: Model, about: Mapping[str, Any], digest: str) -> dict[str, Any]:
    text = {
        "format": FORMAT,
        "schema": SCHEMA,
        "algorithm": model.name,
        **about,
        "input": model.input.describe(),
        "classes": {"type": model.classes.dtype.kind, "values": model.classes.tolist()},
        "facts": model.facts,
        "weights_sha256": digest,
    }
    text = json.loads(json.dumps(text))  # tuples are lists, as they will be when read
    return {**text, "sha256": _hash(text)}


def _hash(text: Mapping[str, Any]) -> str:
    content = {key: value for key, value in text.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _copy_module(path: Path, text: Mapping[str, Any], net: nn.Module | None) -> nn.Module:
    if net is None:
        kind = "DomainClassifier" if text["classes"]["values"] else "DomainRegressor"
        raise UsageError(
            f"{path} was trained with a module of the user's own ({text['module']}), whose code is not in it: load it "
            f"with {kind}.load(path, net=...)."
        )
    return copy.deepcopy(net)


def _build_module(spec: NetSpec, read: Input, outputs: int) -> nn.Module:
    bare = replace(spec, pretrained=False, weights=None)
    return build_net(bare, read.shape, outputs, torch.Generator()).module


def _restore_constants(module: nn.Module, buffers: Mapping[str, Tensor], frozen: Mapping[str, Tensor]) -> None:
    """Copy the constants of training into the module. Its other weights are not used: the model holds them."""
    present = dict(module.named_buffers())
    weights = dict(module.named_parameters())
    if _list_shapes(present) != _list_shapes(buffers) or _list_shapes(frozen) != _list_shapes(
        {n: w for n, w in weights.items() if n in frozen}
    ):
        raise UsageError("The net given is not the one that the model was trained with: its constants differ.")
    with torch.no_grad():
        for name, buffer in present.items():
            buffer.copy_(buffers[name])
        for name, weight in weights.items():
            weight.requires_grad_(name not in frozen)
            if name in frozen:
                weight.copy_(frozen[name])


def _list_shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in tensors.items()}


def _check_net(model: NetModel) -> None:
    """Check that the user's own net takes the weights that were saved."""
    try:
        net, members = model.net
        with torch.no_grad():
            x = torch.zeros(1, *model.input.shape, dtype=model.input.dtype, device=model.device)
            model.algorithm.predict(net, members[0], x)
    except Exception as error:  # whatever a foreign module may raise
        why = str(error).strip().splitlines()
        raise UsageError(
            "The net given is not the one that the model was trained with: its weights do not fit "
            f"({why[0] if why else type(error).__name__})."
        ) from error


def _build_algorithm(text: Mapping[str, Any]) -> Algorithm:
    """Build the algorithm that predicts. Code that a model names by a path is not executed."""
    if text["plain"]:
        return Algorithm()
    name = shorten(text["algorithm"])
    base, *wrappers = name.split("+")
    for part, known in ((base, list_algorithms()), *((w, list_wrappers()) for w in wrappers)):
        if part not in known:
            raise UsageError(f"The model was trained by '{part}', which is not registered: import it first.")
    return build_algorithm(name, **read_settings(text["facts"]["parameters"]))
