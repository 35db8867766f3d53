"""A trained model: from the user's rows to logits; its directory, and its card.

It holds a net, or what another learner has fitted. On disk it is a directory: `model.safetensors` (weights),
`model.json` (all else), `card.md` (for people). Nothing in it is a pickle, and nothing in it is executed. model.json
holds the hash of the weights and one of itself, so that a directory that was cut short or changed is noticed. If a
learner trained no neural network, the weights are the arrays that it packs. An ensemble has no weights of its own: its
members are directories like that in `members`, and its model.json holds the hash of each. A model of features of
pictures or text has the frozen backbone that makes them in `backbone`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seqdg.base import Params, UsageError, refuse_broken, replace_folder, tree, trust_only, under_prefix, with_prefix
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
from seqdg.core import Algorithm, Sequential, Wrapper, list_algorithms, list_layers, list_wrappers, shorten, split_chain
from seqdg.core import build as build_algorithm
from seqdg.data import Features, FeatureSource, Frame, FrozenBackbone, describe_difference
from seqdg.estimator.model_card import (
    BACKBONE,
    CARD,
    ENSEMBLE,
    FORMAT,
    MEMBERS,
    SCHEMA,
    SOURCE,
    TEXT,
    WEIGHTS,
    check_hash,
    find_member,
    hash_description,
    read_description,
    render_card,
)
from seqdg.estimator.model_inputs import TOGETHER, Input, RawTableInput, TableInput, rebuild_input
from seqdg.estimator.recipe import Winner, read_settings
from seqdg.nets import Net, NetSpec, build_net, is_own_net, weights
from seqdg.training import NumberLoss, as_outputs, calibrate, count_filled, fill_cyclically, pool_outputs, shuffle_order

ROWS = 4096  # that a learner of no net predicts at once


@dataclass(frozen=True, kw_only=True)
class Model(ABC):
    """Everything that serves an unseen domain."""

    input: Input
    name: str  # of the algorithm
    classes: NDArray[Any]  # none for regression
    source: FeatureSource | None = None  # what makes columns of its table from pictures or text
    facts: dict[str, Any] = field(default_factory=dict)  # on the card: how it was made
    device: str = "cpu"

    @property
    def is_regression(self) -> bool:
        """True for regression."""
        return not len(self.classes)

    @property
    def outputs(self) -> int:
        """Number of outputs per row: a logit for each class, or one number."""
        return len(self.classes) or 1

    @property
    def together(self) -> int:
        """Number of rows of one domain that a transductive algorithm predicts at once; 0 for other algorithms."""
        return 0

    @property
    def least(self) -> int:
        """Number of rows of one domain that must be given together, which are harmonized, at least; 0: any number."""
        return 0

    def check_rows(self, count: int) -> None:
        """Raise a UsageError where so many rows of a domain are too few to be predicted."""
        if 0 < count < self.least:
            raise UsageError(
                f"{self.name} harmonizes the rows of a domain together and needs at least {self.least} of them, and "
                f"there is {count}: give more rows of this domain at once, or use a model that predicts row by row."
            )

    def compute_logits(self, x: Any) -> tuple[NDArray[np.float64], list[str]]:
        """Return logits (row, class), or numbers (row, 1) in the user's units, and notes on what differs from the
        training data."""
        rows, notes = self.input.read(x)
        self.check_rows(len(rows))
        return self.predict_rows(rows), notes

    @abstractmethod
    def predict_rows(self, rows: Tensor) -> NDArray[np.float64]:
        """Return logits (row, class), or numbers (row, 1), of rows that the input has read."""

    def choose_classes(self, logits: NDArray[np.float64]) -> NDArray[Any]:
        """Return the most probable class of every row."""
        return np.asarray(self.classes[logits.argmax(axis=1)])

    def find_constant(self) -> Any:
        """Return the majority class of the training rows, or the mean of their numbers: the baseline that needs no
        model."""
        domains = self.facts["domains"].values()
        if self.is_regression:
            return sum(d["rows"] * d["mean"] for d in domains) / sum(d["rows"] for d in domains)
        return max(self.classes.tolist(), key=lambda c: sum(d["classes"][str(c)] for d in domains))

    def with_facts(self, **facts: Any) -> Model:
        return replace(self, facts={**self.facts, **facts})


@dataclass(frozen=True, kw_only=True)
class ArrayModel(Model):
    """A model fitted by an `ArrayLearner`."""

    predict: Predict

    @property
    def together(self) -> int:
        return self.least

    @property
    def least(self) -> int:
        return getattr(self.predict, "least", 0)

    def predict_rows(self, rows: Tensor) -> NDArray[np.float64]:
        """Return the logarithms of the probabilities (row, class), or numbers (row, 1)."""
        if self.together and len(rows):
            return as_outputs(self.predict(rows.numpy()), self.is_regression)
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
        moved = {name: p.to(self.device, dtype if p.is_floating_point() else None) for name, p in self.params.items()}
        return net, tree.unstack(moved) if self.members > 1 else [moved]


@dataclass(frozen=True, kw_only=True)
class EnsembleModel(Model):
    """Models of several kinds; the mean of their calibrated probabilities, or of their numbers."""

    members: tuple[tuple[Model, Winner], ...]  # of one that was read, the second says how the first counts, and no more

    @property
    def together(self) -> int:
        return max(model.together for model, _ in self.members)

    @property
    def least(self) -> int:
        return max(model.least for model, _ in self.members)

    def predict_rows(self, rows: Tensor) -> NDArray[np.float64]:
        """Return the logarithm of the mean probability (row, class), or the mean number (row, 1).

        Members that read a table alike share its rows.
        """
        total: NDArray[np.float64] = np.zeros((len(rows), self.outputs))
        inputs: list[tuple[Input, Tensor]] = []
        for model, member in self.members:
            known = next((scaled for other, scaled in inputs if _read_alike(other, model.input)), None)
            if known is None:
                known = model.input.scale(rows) if isinstance(model.input, TableInput) else rows
                inputs.append((model.input, known))
            outputs = model.predict_rows(known)
            if self.is_regression:
                total += member.weight * outputs
            else:
                total += member.weight * calibrate(softmax(outputs, axis=1), member.temperature)
        return total if self.is_regression else np.log(total)


def _read_alike(one: Input, other: Input) -> bool:
    """Say whether two inputs of one table scale its numbers alike; other inputs of one model are the same."""
    pairs = zip(one.tensors.items(), other.tensors.items(), strict=False)
    alike = len(one.tensors) == len(other.tensors)
    # Where missing values stay, what fills them is NaN.
    return alike and all(a == b and torch.allclose(s, t, rtol=0, atol=0, equal_nan=True) for (a, s), (b, t) in pairs)


def share_input(read: Input) -> Input:
    """Return what reads rows once for all members."""
    if not isinstance(read, TableInput):
        return read
    return RawTableInput(**{f.name: getattr(read, f.name) for f in fields(read)})


def predicts_plainly(algorithm: Algorithm) -> bool:
    """Return whether its prediction is the net's own output, so that a model can predict without the algorithm."""
    delegating = {Algorithm.predict, Sequential.predict, Wrapper.predict}
    return all(type(layer).predict in delegating for layer in list_layers(algorithm))


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


def check_saving(names: Iterable[str], combined: bool = False) -> None:
    """Raise a UsageError if a model of one of these algorithms could not be saved, before anything is trained.

    combined: they are candidates of an ensemble, for which two that can be saved are enough.
    """
    refused, able = list[UsageError](), 0
    for name in names:
        try:
            find_learner(name).check_saving()
            able += 1
        except UsageError as error:
            refused.append(error)
    if refused and not (combined and able > 1):
        raise refused[0]


def write_model(model: Model, path: Path) -> None:
    """Write all of it or nothing. A model that is there is replaced; anything else that is there is left alone."""
    check_destination(path)
    try:
        with replace_folder(path) as folder:
            _write_into(folder, model)
    except OSError as error:
        raise UsageError(f"The model cannot be written to {path}: {error.strerror or error}.") from error


def _write_into(folder: Path, model: Model) -> str:
    """Write the files of a model; return the hash of its description."""
    if isinstance(model, EnsembleModel):
        about: dict[str, Any] = {ENSEMBLE: []}
        for i, (one, member) in enumerate(model.members, start=1):
            inside = folder / MEMBERS / str(i)
            inside.mkdir(parents=True)
            about[ENSEMBLE].append(
                {
                    "algorithm": one.name,
                    "weight": member.weight,
                    "temperature": member.temperature,
                    "directory": f"{MEMBERS}/{i}",
                    "sha256": _write_into(inside, one),
                }
            )
    else:
        tensors, about = _pack(model)
        inputs = with_prefix(model.input.tensors, "input.")
        content = save({name: t.clone().contiguous() for name, t in {**tensors, **inputs}.items()})
        about["weights_sha256"] = hashlib.sha256(content).hexdigest()
        (folder / WEIGHTS).write_bytes(content)
    if model.source is not None:
        about[SOURCE] = _write_source(folder, model.source)
    text = _describe(model, about)
    (folder / TEXT).write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / CARD).write_text(render_card(text), encoding="utf-8")
    return str(text["sha256"])


def describe_source(source: FeatureSource) -> str:
    """Say what a model reads: `384 features of dinov2-small`."""
    return f"{len(source.names)} features of {source.name}"


def check_features(model: Model, features: Features, name: str) -> Frame:
    """Return features as the table that the model reads, or raise a UsageError where another backbone made them."""
    source = model.source
    if source is None or source.text:
        kind = model.input.describe()["kind"]
        raise UsageError(f"{name} holds features of {features.about['backbone']}, and the model reads a {kind}.")
    if difference := describe_difference(source.about, features.about):
        raise UsageError(
            f"{name} does not hold the features that the model reads, {describe_source(source)}: {difference}. "
            "Extract them again, or give the pictures themselves."
        )
    return features.to_frame()


def require_backbone(source: FeatureSource) -> FrozenBackbone:
    """Return the backbone that makes the features a model reads, or raise a UsageError where the model has none."""
    if source.backbone is None:
        raise UsageError(
            f"The model reads {describe_source(source)} and does not hold that network: it was fitted to a features "
            "file, or with a module of your own. Extract the features of these pictures by it (`seqdg features`), and "
            "predict from their file."
        )
    backbone: FrozenBackbone = source.backbone
    return backbone


def _write_source(folder: Path, source: FeatureSource) -> dict[str, Any]:
    """Write the backbone that makes the features, where it is at hand; return what model.json says of it."""
    about = {"about": dict(source.about), "names": list(source.names), "text": list(source.text)}
    if source.backbone is None or source.backbone.is_own:
        return about
    (folder / BACKBONE).mkdir()
    return {**about, BACKBONE: source.backbone.save(folder / BACKBONE)}


def _read_source(path: Path, about: Mapping[str, Any]) -> FeatureSource:
    backbone = FrozenBackbone.restore(about[BACKBONE], path / BACKBONE) if BACKBONE in about else None
    return FeatureSource(about["about"], tuple(about["names"]), tuple(about["text"]), backbone)


def read_model(path: Path, net: nn.Module | None = None, device: str = "cpu", trust: Sequence[str] = ()) -> Model:
    """Read a model, and let it predict something: whoever made it, its parts fit together.

    net: the user's own module, where the model was trained with one.   trust: files of code that it may name.
    """
    text = read_description(path)
    with refuse_broken(f"{path / TEXT} does not describe a model of seqdg"), trust_only((), trust):
        model = _read_ensemble(path, text, net, device) if ENSEMBLE in text else _read_one(path, text, net, device)
        if SOURCE in text:
            model = replace(model, source=_read_source(path, text[SOURCE]))
        rows = torch.zeros(max(1, model.least), *model.input.shape, dtype=model.input.dtype)
        if model.predict_rows(rows).shape != (len(rows), model.outputs):
            raise ValueError(f"it does not predict {model.outputs} numbers for a row")
        return model


def _read_one(path: Path, text: Mapping[str, Any], net: nn.Module | None, device: str) -> Model:
    tensors, digest = weights.read_weights(path / WEIGHTS)
    check_hash(path / WEIGHTS, text.get("weights_sha256"), digest)
    return _rebuild(path, text, tensors, net, device)


def _read_ensemble(path: Path, text: Mapping[str, Any], net: nn.Module | None, device: str) -> EnsembleModel:
    """Read every member of an ensemble, each of which must be the one that was saved."""
    members: list[tuple[Model, Winner]] = []
    for about in text[ENSEMBLE]:
        inside = find_member(path, about)
        check_hash(inside / TEXT, about["sha256"], read_description(inside)["sha256"])
        model = read_model(inside, net, device)
        members.append((model, Winner(model.name, about["weight"], about["temperature"])))
    first = members[0][0]
    return EnsembleModel(
        members=tuple(members),
        input=share_input(first.input),
        name=text["algorithm"],
        classes=first.classes,
        facts=text["facts"],
        device=device,
    )


def _rebuild(
    path: Path, text: Mapping[str, Any], tensors: Mapping[str, Tensor], net: nn.Module | None, device: str
) -> Model:
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
    if spec is not None and (net is None or not is_own_net(spec.name)):
        bare = replace(spec, pretrained=False, weights=None)
        module = build_net(bare, shared["input"].shape, len(shared["classes"]) or 1, torch.Generator()).module
    elif net is not None:
        module = copy.deepcopy(net)
    else:
        kind = "DomainClassifier" if text["classes"]["values"] else "DomainRegressor"
        raise UsageError(
            f"{path} was trained with a module of the user's own ({text['module']}), whose code is not in it: load it "
            f"with {kind}.load(path, net=...)."
        )
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
    if net is not None:
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
        packed = _find_array_learner(model.name).pack(model.predict)
    arrays = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in packed.arrays.items()}
    return with_prefix(arrays, "array."), {"learner": dict(packed.values)}


def _unpack(text: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Predict:
    """Let the learner rebuild its model from arrays. Code that a model names by a path is not executed."""
    packed = Packed({n: t.numpy() for n, t in tensors.items()}, text["learner"])
    if BYTES in tensors:
        return unpack_estimator(packed)
    name = shorten(text["algorithm"])
    if (first := split_chain(name)[0]) not in list_learners():
        raise UsageError(f"The model was trained by '{first}', which is not registered: import it first.")
    return _find_array_learner(name).unpack(packed)


def _find_array_learner(name: str) -> ArrayLearner:
    learner = find_learner(name)
    assert isinstance(learner, ArrayLearner)
    return learner


def _describe(model: Model, about: Mapping[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {
        "format": FORMAT,
        "schema": SCHEMA,
        "algorithm": model.name,
        **about,
        "input": model.input.describe(),
        "classes": {"type": model.classes.dtype.kind, "values": model.classes.tolist()},
        "facts": model.facts,
    }
    text = json.loads(json.dumps(text))  # tuples are lists, as they will be when read
    return {**text, "sha256": hash_description(text)}


def _restore_constants(module: nn.Module, buffers: Mapping[str, Tensor], frozen: Mapping[str, Tensor]) -> None:
    """Copy the constants of training into the module. Its other weights are not used: the model holds them."""
    parameters = dict(module.named_parameters())
    present = {**dict(module.named_buffers()), **{n: p for n, p in parameters.items() if n in frozen}}
    saved = {**buffers, **frozen}
    if {n: t.shape for n, t in present.items()} != {n: t.shape for n, t in saved.items()}:
        raise UsageError("The net given is not the one that the model was trained with: its constants differ.")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in frozen)
    with torch.no_grad():
        for name, constant in present.items():
            constant.copy_(saved[name])


def _check_net(model: NetModel) -> None:
    """Check that the user's own net takes the weights that were saved."""
    start = "The net given is not the one that the model was trained with: its weights do not fit"
    with refuse_broken(start), torch.no_grad():
        net, members = model.net
        x = torch.zeros(1, *model.input.shape, dtype=model.input.dtype, device=model.device)
        model.algorithm.predict(net, members[0], x)


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
