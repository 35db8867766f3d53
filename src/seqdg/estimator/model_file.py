"""A model as a directory: `model.safetensors` (weights), `model.json` (all else), `card.md` (for people).

Nothing in it is a pickle, and nothing from it is run. model.json holds the hash of the weights and one of itself, so
that a directory that was cut short or changed is noticed. Where a learner trained no net, the weights are the arrays
that it packs.
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
from numpy.typing import NDArray
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

FORMAT, SCHEMA = "seqdg-model", 3  # the newest; one net, not calibrated, with standard scaling, is of schema 1
WEIGHTS, TEXT, CARD = "model.safetensors", "model.json", "card.md"


def check_place(path: Path, force: bool = True) -> None:
    """Raise a UsageError where something other than a model lies, or nothing can be written.

    force: a model that lies there may be replaced.
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
    """Raise a UsageError where nothing says how a model of one of these algorithms is saved."""
    for learner in map(find_learner, names):
        if isinstance(learner, ArrayLearner):
            learner.check_saving()


def write_model(model: Model, path: Path) -> None:
    """Write all of it or nothing. A model that is there is replaced; anything else that is there is left alone."""
    check_place(path)
    tensors, about = _take_apart(model)
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
    if not isinstance(text.get("schema"), int) or text["schema"] > SCHEMA:
        raise UsageError(
            f"{path} was written by a newer version of seqdg (its format is {text.get('schema')}, and this one reads "
            f"up to {SCHEMA}): pip install --upgrade seqdg."
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
    read = rebuild_input(text["input"], under_prefix(tensors, "input."))
    classes = _read_classes(text["classes"])
    if "learner" in text:
        return ArrayModel(
            input=read,
            name=text["algorithm"],
            classes=classes,
            facts=text["facts"],
            device=device,
            predict=_unpack(text, under_prefix(tensors, "array.")),
        )
    spec = None if text["net"] is None else NetSpec(**text["net"])
    module = _build_module(path, spec, text, read, len(classes) or 1, net)
    _restore_constants(module, under_prefix(tensors, "buffer."), under_prefix(tensors, "frozen."))
    model = NetModel(
        input=read,
        module=module,
        spec=spec,
        batchnorm=text["batchnorm"],
        algorithm=_build_algorithm(text),
        name=text["algorithm"],
        params=under_prefix(tensors, "param."),
        members=text.get("members", 1),
        temperature=text.get("temperature", 1.0),
        target=tuple(text.get("target", (0.0, 1.0))),
        classes=classes,
        facts=text["facts"],
        device=device,
    )
    if spec is None:
        _check_net(model)
    return model


def _take_apart(model: Model) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what only this kind of model has: tensors by name, and what JSON holds."""
    if isinstance(model, NetModel):
        return _collect_tensors(model), {
            **({"members": model.members} if model.members > 1 else {}),
            **({"temperature": model.temperature} if model.temperature != 1 else {}),
            **({"target": list(model.target)} if model.is_regression else {}),
            "schema": 3 if _is_new(model) else 1,
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
    return with_prefix(arrays, "array."), {"schema": 2, "learner": dict(packed.values)}


def _is_new(model: NetModel) -> bool:
    """Return whether versions that read schema 1 alone would read the model wrongly."""
    return model.members > 1 or model.temperature != 1 or model.is_regression or "knots" in model.input.tensors


def _unpack(text: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Predict:
    """Let the learner put its arrays together. Code that a model names by a path is not run."""
    packed = Packed({n: t.numpy() for n, t in tensors.items()}, text["learner"])
    if BYTES in tensors:
        return unpack_estimator(packed)
    name = shorten(text["algorithm"])
    if name not in list_learners():
        raise UsageError(f"The model was trained by '{name}', which is not registered: import it first.")
    learner = find_learner(name)
    assert isinstance(learner, ArrayLearner)
    return learner.unpack(packed)


def _collect_tensors(model: NetModel) -> dict[str, Tensor]:
    buffers = {name: b.detach().cpu() for name, b in model.module.named_buffers()}
    frozen = {name: p.detach().cpu() for name, p in model.module.named_parameters() if not p.requires_grad}
    parts = (
        with_prefix(model.params, "param."),
        with_prefix(buffers, "buffer."),
        with_prefix(frozen, "frozen."),
    )
    return {name: t for part in parts for name, t in part.items()}


def _describe(model: Model, about: Mapping[str, Any], digest: str) -> dict[str, Any]:
    text = {
        "format": FORMAT,
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


def _read_classes(table: Mapping[str, Any]) -> NDArray[Any]:
    values = table["values"]
    if table["type"] == "O":
        return np.array(values, dtype=object)
    return np.array(values)


def _build_module(
    path: Path, spec: NetSpec | None, text: Mapping[str, Any], read: Input, outputs: int, net: nn.Module | None
) -> nn.Module:
    if spec is None:
        if net is None:
            kind = "DomainClassifier" if text["classes"]["values"] else "DomainRegressor"
            raise UsageError(
                f"{path} was trained with a net of the user's own ({text['module']}), whose code is not in it: "
                f"load it with {kind}.load(path, net=...)."
            )
        return copy.deepcopy(net)
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
    """Build the algorithm that predicts. Code that a model names by a path is not run."""
    if text["plain"]:
        return Algorithm()
    name = shorten(text["algorithm"])
    base, *wrappers = name.split("+")
    for part, known in ((base, list_algorithms()), *((w, list_wrappers()) for w in wrappers)):
        if part not in known:
            raise UsageError(f"The model was trained by '{part}', which is not registered: import it first.")
    return build_algorithm(name, **read_settings(text["facts"]["parameters"]))
