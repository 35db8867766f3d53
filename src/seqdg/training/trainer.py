"""Train a stack to the end: evaluations, checkpoints, the weights and predictions that are kept, a record per trial.

A checkpoint is the state of a stack in training as bytes, from which it continues to the same weights, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from seqdg.base import Files, Params, find_seal, hash_own_code, is_intact, save_sealed, tree
from seqdg.core import list_layers
from seqdg.results import DIVERGED, DONE, LOSS_POINTS, LOSSES, Evaluation, Record, choose_usual, select_step, thin
from seqdg.training.device import find_commit, list_versions, measure_peak_memory, name_device, reset_peak_memory
from seqdg.training.metrics import DomainPredictions, is_finite, list_losses, measure_predictions
from seqdg.training.protocol import list_evaluation_steps
from seqdg.training.stack import DRAWN_AHEAD, Outcome, Stack, State, View

MOMENT = 0.5  # seconds that training goes on between looks at the clock
FOLDER = "checkpoints"
CHOSEN, LAST = "chosen", "last"  # the step that source validation chose, and the last one
# Gets the step, the deployed weights, their evaluations and all losses so far.
OnEvaluation = Callable[[int, Params, list[Evaluation], Tensor], None]


@dataclass(frozen=True)
class Saving:
    """Which files a run writes beside its records, where, and what its records hold."""

    files: Files | None = None  # where files are written; None: nowhere
    checkpoint: float = 0.0  # seconds between checkpoints of a group; 0: none
    weights: bool = False  # save the deployed weights of every trial after its last step
    chosen: bool = False  # also save those of the step that source validation chose
    predictions: bool = False  # save the predictions for held-out rows, at the chosen step and at the last
    digests: bool = True  # put a hash of the deployed weights into each record
    criteria: tuple[str, ...] = ()  # the criteria to measure, beside the losses; empty: all
    criterion: str = ""  # by which source validation chooses the step that is kept; empty: the usual one

    @property
    def checkpoint_facts(self) -> dict[str, str]:
        """What a checkpoint says of files that are saved during training: a run that saves more of them cannot go on
        from it."""
        names = [name for name in ("chosen", "predictions") if getattr(self, name)]
        return {"keeps": " ".join([*names, *filter(None, [self.criterion])])} if names else {}


def run_stack(
    make_stack: Callable[[], Stack],
    name: str,
    device: torch.device,
    on_step: Callable[[int], None] = lambda step: None,
    saving: Saving | None = None,
    *,
    notes: Sequence[str] = (),
    stops: Sequence[int] | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> list[Record]:
    """Train and evaluate every trial of a stack, from its checkpoint where there is one.

    name: of the checkpoint.   notes: on the data, for the records.
    on_step: called with the number of steps taken so far. If it raises KeyboardInterrupt, as the keyboard may at any
        time, a checkpoint is written first.
    on_evaluation: called after every evaluation.   stops: the steps to evaluate after, if not the protocol's.
    """
    return _Run(make_stack, name, device, on_step, saving or Saving(), notes, stops, on_evaluation).finish()


@dataclass
class _Run:
    """A stack in training."""

    make_stack: Callable[[], Stack]
    name: str
    device: torch.device
    on_step: Callable[[int], None]
    saving: Saving
    notes: Sequence[str]
    stops: Sequence[int] | None
    on_evaluation: OnEvaluation | None

    def __post_init__(self) -> None:
        reset_peak_memory(self.device)
        self.began = self.written = time.perf_counter()
        self.stack = self.make_stack()
        self.steps = self.stops or list_evaluation_steps(self.stack.algorithm, self.stack.protocol)
        self.now = self._read_checkpoint() or Snapshot(self.stack.start(), [[] for _ in self.stack.outcomes])
        self.began -= self.now.seconds
        self.pace = 4  # steps until the next look at the clock
        self.serving = 0.0  # seconds to predict and measure 1,000 rows

    def finish(self) -> list[Record]:
        deployed: dict[int, Params] = {}  # by view
        views = sorted({outcome.number for outcome in self.stack.outcomes})
        try:
            while not self._has_ended():
                self._train(self.steps[len(self.now.evaluations[0])])
                deployed = self._evaluate(views)
        except KeyboardInterrupt:
            self._write_checkpoint()
            raise
        if not deployed:  # the checkpoint was written after the last evaluation
            deployed = {view: self.stack.deploy(self.now.state, view) for view in views}
        losses = torch.cat(self.now.state.losses)
        curves = losses.reshape(len(losses), -1, self.stack.members).mean(2).T.cpu()  # (trial, step)
        self.now.seconds = time.perf_counter() - self.began
        weights, hashes = self._hash_weights(deployed)
        each = zip(self.stack.outcomes, self.now.evaluations, weights, hashes, strict=True)
        return [self._make_record(o, curves[o.trial], history, w, digest) for o, history, w, digest in each]

    def _has_ended(self) -> bool:
        """Say whether the final evaluation is done."""
        state, history = self.now.state, self.now.evaluations[0]
        return bool(history) and history[-1].step == state.step and self._is_final(state)

    def _is_final(self, state: State) -> bool:
        """Say whether no evaluation follows that of this state: all steps are taken, or every trial has diverged, and
        nothing changes its record any more."""
        if state.step == self.steps[-1]:
            return True
        is_sound = torch.isfinite(torch.cat(state.losses)).all(0)
        return not bool(is_sound.reshape(-1, self.stack.members).all(1).any())

    def _hash_weights(self, deployed: Mapping[int, Params]) -> tuple[list[Params], list[str]]:
        """Return the deployed weights of every record, in the host's memory, and their hashes, where they are kept: of
        a large stack both take as long as many steps."""
        outcomes = self.stack.outcomes
        if not self.saving.digests and not self.saving.weights:
            return [{} for _ in outcomes], [""] * len(outcomes)
        by_view = {view: split_trials(self.stack, copy_to_host(params)) for view, params in deployed.items()}
        weights = [by_view[o.number][o.trial] for o in outcomes]
        with ThreadPoolExecutor(1 if self.device.type == "cpu" else None) as threads:
            return weights, list(threads.map(hash_weights, weights))

    def _evaluate(self, views: Sequence[int]) -> dict[int, Params]:
        """Evaluate the state and let the algorithm note it, at once: an interruption leaves both or neither."""
        state = self.now.state
        if self.stack.uses_evaluations:
            plain = evaluate_stack(self.stack, state, self.stack.deploy(state, 0), pooled=False, criteria=LOSSES)
            state = self.stack.note_evaluation(state, torch.tensor([list_losses(e) for e in plain]))
        deployed = {view: self.stack.deploy(state, view) for view in views}
        before = time.perf_counter()
        wanted = self.saving.criteria
        keeps = self.saving.files is not None and self.saving.predictions
        predicted = {v: self.stack.predict_domains(params) for v, params in deployed.items()} if keeps else {}
        by_view = {
            v: evaluate_stack(self.stack, state, params, criteria=wanted, predictions=predicted.get(v))
            for v, params in deployed.items()
        }
        rows = self.stack.evaluated_rows[0].numel() * len(by_view) / self.stack.members
        self.serving = 1000 * (time.perf_counter() - before) / max(1, rows)
        new = [by_view[o.number][o.trial] for o in self.stack.outcomes]
        evaluations = [[*old, e] for old, e in zip(self.now.evaluations, new, strict=True)]
        self._keep_step(state, deployed, evaluations, predicted)
        self.now = Snapshot(state, evaluations, self.now.seconds)
        if self.on_evaluation is not None:
            self.on_evaluation(state.step, deployed[views[0]], new, torch.cat(state.losses))
        return deployed

    def _keep_step(
        self,
        state: State,
        deployed: dict[int, Params],
        evaluations: list[list[Evaluation]],
        predicted: Mapping[int, list[DomainPredictions]],
    ) -> None:
        """Write what is kept of this step before it counts as evaluated: what is interrupted in between is repeated."""
        split, is_last = self.stack.jobs[0].split, self._is_final(state)

        def predict(view: int) -> list[DomainPredictions]:
            return predicted[view][len(split.validation) :][: len(split.test)]

        def take(outcome: Outcome) -> Params:
            return copy_to_host(split_trials(self.stack, deployed[outcome.number])[outcome.trial])

        for outcome, history in zip(self.stack.outcomes, evaluations, strict=True):
            get = partial(take, outcome), partial(predict, outcome.number)
            save_step(self.saving, outcome.view, history, is_last, *get, outcome.trial)

    def _train(self, stop: int) -> None:
        while self.now.state.step < stop:
            began, first = time.perf_counter(), self.now.state.step
            self.now.state = self.stack.advance(self.now.state, min(stop, first + self.pace))
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # steps count when they are done, not when they are queued
            self.on_step(self.now.state.step)
            now = time.perf_counter()
            if now - began < MOMENT / 2 and self.now.state.step == first + self.pace:
                self.pace = min(2 * self.pace, DRAWN_AHEAD)
            elif now - began > 2 * MOMENT:
                self.pace = max(1, self.pace // 2)
            if self.saving.checkpoint and now - self.written >= self.saving.checkpoint:
                self._write_checkpoint()

    @cached_property
    def _origin(self) -> dict[str, str]:
        where = {"device": name_device(self.device), "commit": find_commit()}
        code = hash_own_code(type(layer) for layer in list_layers(self.stack.algorithm))
        user_code = {"own_code": code} if code else {}
        return {**where, **list_versions(), **self._compiler, **self.saving.checkpoint_facts, **user_code}

    @cached_property
    def _compiler(self) -> dict[str, str]:
        """What compiles the steps, if anything does: the same bits need the same."""
        return {"compiler": "inductor"} if self.stack.compiles else {}

    def _read_checkpoint(self) -> Snapshot | None:
        """Read what this stack left, if the same device, versions and code of the user's own made it: a trial has one
        origin."""
        if self.saving.files is None:
            return None
        name = name_checkpoint(self.name)
        data, origin = self.saving.files.read(name), self._origin
        keys = [outcome.view.key for outcome in self.stack.outcomes]
        try:
            if data is None or (header := read_header(data))["made_by"] != origin:
                return None
            if header["trials"] != keys:
                raise ValueError("the checkpoint is of other trials")
            snapshot = decode_snapshot(data, self.device)
            if len(snapshot.evaluations) != len(keys) or not self._could_have_left(snapshot):
                raise ValueError("not a checkpoint of this training")
            return snapshot
        except ValueError as error:
            warnings.warn(f"The trials of {name} start anew: {error}.", stacklevel=2)
            return None

    def _could_have_left(self, snapshot: Snapshot) -> bool:
        """Say whether a snapshot is of a moment of this training: its seal does not say who wrote it."""
        state, bounds, done = snapshot.state, (0, *self.stack.bounds), len(snapshot.evaluations[0])
        if not (-1 <= state.stage < len(bounds) - 1 and bounds[max(state.stage, 0)] <= state.step <= self.steps[-1]):
            return False
        last = bounds[state.stage + 1]  # before the first stage, no step
        at_evaluations = [[e.step for e in one] == list(self.steps[:done]) for one in snapshot.evaluations]
        expected = self.stack.start()
        while expected.stage < state.stage:
            self.stack.enter(expected)
        return (
            state.step <= last
            and sum(map(len, state.losses)) == state.step
            and all(at_evaluations)
            and _describe(state) == _describe(expected)
        )

    def _write_checkpoint(self) -> None:
        if not self.saving.checkpoint or self.saving.files is None:
            return
        self.now.seconds = time.perf_counter() - self.began
        data = encode_snapshot(self.now, [outcome.view.key for outcome in self.stack.outcomes], self._origin)
        try:
            self.saving.files.write(name_checkpoint(self.name), data)
        except OSError as error:  # The numbers do not depend on it, so training goes on.
            print(f"seqdg: no checkpoint could be written ({error}).", file=sys.stderr)
        self.written = time.perf_counter()

    def _make_record(
        self, outcome: Outcome, curve: Tensor, history: list[Evaluation], weights: Params, digest: str
    ) -> Record:
        view, size = outcome.view, len(self.stack.jobs)
        curve, history = cut_after_divergence(curve, history)
        stayed_finite = bool(torch.isfinite(curve).all()) and is_finite(history[-1], outcome.split)
        save_weights(self.saving, view, weights, self.now.state.step)
        return Record(
            key=view.key,
            description=dict(view.description),
            status=DONE if stayed_finite else DIVERGED,
            history=history,
            losses=thin(curve.double().tolist(), LOSS_POINTS),
            seconds=self.now.seconds * self.stack.members / size,
            peak_memory=measure_peak_memory(self.device),
            stacked=size,
            device=name_device(self.device),
            versions={**list_versions(), **self._compiler},
            commit=find_commit(),
            weights=digest,
            notes=list(self.notes),
            serving=self.serving,
        )


def evaluate_stack(
    stack: Stack,
    state: State,
    deployed: Params,
    pooled: bool = True,
    criteria: Collection[str] = (),
    predictions: Sequence[DomainPredictions] | None = None,
) -> list[Evaluation]:
    """Measure every trial on its sources' validation rows, its held-out domains and its validation domains.

    pooled: measure a trial as it predicts, members together and calibrated; else every training by itself.
    criteria: those to measure, beside the losses; none: all.   predictions: where they are made already.
    """
    split = stack.jobs[0].split
    predictions = predictions or stack.predict_domains(deployed, pooled)
    return measure_predictions(predictions, len(split.validation), state.step, split.held_out_at_once, criteria)


def split_trials(stack: Stack, deployed: Params) -> list[Params]:
    """Return the weights of every trial; those of an ensemble have a first axis of members."""
    if stack.members > 1:
        deployed = {name: v.reshape(-1, stack.members, *v.shape[1:]) for name, v in deployed.items()}
    return tree.unstack(deployed)


def cut_after_divergence(curve: Tensor, history: list[Evaluation]) -> tuple[Tensor, list[Evaluation]]:
    """Return the curve and the history up to the first evaluation after a loss that is not finite, where there is one.

    A training by itself ends there; among others that go on it says the same.
    """
    lost = (~torch.isfinite(curve)).nonzero()
    if not len(lost):
        return curve, history
    end = next(e.step for e in history if e.step > int(lost[0]))
    return curve[:end], [e for e in history if e.step <= end]


def copy_to_host(params: Params) -> Params:
    """Return weights in the host's memory; all copies from a device run at once, into memory that is used again."""
    copied = {name: value.detach().to("cpu", non_blocking=True) for name, value in params.items()}
    for device in {value.device for value in params.values() if value.is_cuda}:
        torch.cuda.synchronize(device)
    return copied


# ---------------------------------------------------------------------------- checkpoints


@dataclass
class Snapshot:
    """Everything that a group of trials needs to go on."""

    state: State
    evaluations: list[list[Evaluation]]  # of every trial
    seconds: float = 0.0  # of work so far


def _describe(state: State) -> dict[str, dict[str, Any]]:
    """Describe the tensors of a state: every name with its shape and type."""
    parts = {"params": state.params, "memory": state.memory, **state.slots}
    return {part: {name: (t.shape, t.dtype) for name, t in tensors.items()} for part, tensors in parts.items()}


def name_checkpoint(group: str) -> str:
    """Return the file name of the checkpoint of the group with this key."""
    return f"{FOLDER}/{group}.safetensors"


def encode_snapshot(snapshot: Snapshot, trials: Sequence[str], made_by: Mapping[str, str]) -> bytes:
    """Write a snapshot of the trials with these keys as bytes. `made_by`: what must be the same for the same bits."""
    state = snapshot.state
    tensors = tree.with_prefix(state.params, "params/") | tree.with_prefix(state.memory, "memory/")
    for slot, values in state.slots.items():
        tensors |= tree.with_prefix(values, f"slots/{slot}/")
    if state.losses:
        tensors["losses"] = torch.cat(state.losses)
    header = {
        "trials": list(trials),
        "made_by": dict(made_by),
        "step": state.step,
        "stage": state.stage,
        "slots": list(state.slots),
        "evaluations": [[asdict(e) for e in one] for one in snapshot.evaluations],
        "seconds": snapshot.seconds,
    }
    return encode_checkpoint(header, tensors)


def decode_snapshot(data: bytes, device: torch.device) -> Snapshot:
    """Read the bytes that `encode_snapshot` wrote; raise a ValueError where they are not a checkpoint."""
    header, tensors = decode_checkpoint(data, device)
    params, memory = (tree.under_prefix(tensors, f"{kind}/") for kind in ("params", "memory"))
    losses = [tensors["losses"]] if "losses" in tensors else []
    try:
        slots = {slot: tree.under_prefix(tensors, f"slots/{slot}/") for slot in header["slots"]}
        state = State(header["step"], header["stage"], params, slots, losses, memory)
        evaluations = [[Evaluation(**e) for e in one] for one in header["evaluations"]]
        if any(type(number) is not int for number in (state.step, state.stage)):
            raise TypeError("its step and stage are whole numbers")
        return Snapshot(state, evaluations, float(header["seconds"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a checkpoint: {error}") from None


def encode_checkpoint(header: Mapping[str, Any], tensors: Params) -> bytes:
    """Write tensors as bytes, with their layouts in memory and what the header says."""
    strides = {name: value.stride() for name, value in tensors.items()}  # in order: sums run over it
    # Cloned, as safetensors refuses tensors that share memory.
    plain = {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    return save_sealed(plain, {"seqdg": json.dumps({**header, "tensors": strides})})


def decode_checkpoint(data: bytes, device: torch.device) -> tuple[dict[str, Any], Params]:
    """Read what `encode_checkpoint` wrote; raise a ValueError where the bytes are not a checkpoint."""
    header = read_header(data)
    try:
        stored = load(data)
        return header, {name: place_tensor(stored[name], stride, device) for name, stride in header["tensors"].items()}
    except (SafetensorError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"not a checkpoint: {error}") from None


def read_header(data: bytes) -> dict[str, Any]:
    """Read the header of a checkpoint; raise a ValueError where the bytes are not one."""
    at = find_seal(data)
    if at is None or not is_intact(data, at):
        raise ValueError("the checkpoint is damaged, or of another version of seqdg")
    length = int.from_bytes(data[:8], "little")
    try:
        header: dict[str, Any] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["seqdg"])
        if not isinstance(header["trials"], list) or not isinstance(header["made_by"], dict):
            raise TypeError("it does not say of which trials it is, and what made it")
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a checkpoint: {error}") from None
    return header


def place_tensor(value: Tensor, stride: Sequence[int], device: torch.device) -> Tensor:
    """Copy a tensor to the device in the memory layout that it had, as the choice of a kernel may depend on it."""
    if any(s == 0 for s in stride):  # an expanded axis: its rows are one and the same memory
        return value.to(device)
    return torch.empty_strided(value.shape, tuple(stride), dtype=value.dtype, device=device).copy_(value)


# ---------------------------------------------------------------------------- weights and predictions


def save_weights(saving: Saving, view: View, weights: Params, step: int) -> None:
    """Save the weights that a trial deploys after its last step, if weights are saved."""
    if saving.weights and saving.files is not None:
        saving.files.write(f"weights/{view.key}.safetensors", _encode(weights, view, step))


def save_step(
    saving: Saving,
    view: View,
    history: Sequence[Evaluation],
    is_last: bool,
    get_weights: Callable[[], Params],
    get_held_out: Callable[[], Sequence[DomainPredictions]],
    i: int = 0,
) -> None:
    """Save the weights and predictions of the latest evaluation if source validation chooses it.

    i: the trial's row in the predictions.   is_last: no evaluation follows, so its predictions are saved anyway.
    """
    if saving.files is None or not (saving.chosen or saving.predictions):
        return
    step, is_best = history[-1].step, is_best_so_far(history, saving.criterion)
    if saving.chosen and is_best:
        saving.files.write(f"weights/{view.key}.{CHOSEN}.safetensors", _encode(get_weights(), view, step))
    if saving.predictions and view.description["held_out"] and (is_best or is_last):
        data = _encode(_lay_out_predictions(get_held_out(), i), view, step)
        for name in [CHOSEN] * is_best + [LAST] * is_last:
            saving.files.write(f"predictions/{view.key}.{name}.safetensors", data)


def _encode(tensors: Params, view: View, step: int) -> bytes:
    """Encode the weights or the predictions of one trial after so many steps as bytes."""
    about = {"trial": view.key, "step": str(step), "description": json.dumps(view.description)}
    # Cloned, as safetensors refuses tensors that share memory.
    return save_sealed({name: value.contiguous().clone() for name, value in tensors.items()}, about)


def read_predictions(files: Files, key: str) -> dict[str, Tensor] | None:
    """Read the predictions of a trial at the step that source validation chose; None where there are none, or they are
    damaged."""
    data = files.read(f"predictions/{key}.{CHOSEN}.safetensors")
    at = None if data is None else find_seal(data)
    if data is None or at is None or not is_intact(data, at):
        return None
    return load(data)


def _lay_out_predictions(held_out: Sequence[DomainPredictions], i: int) -> Params:
    """Return the predictions of the i-th trial for its held-out rows by what they are, in the order of the data set."""
    is_regression = any(domain.y.is_floating_point() for domain in held_out)
    kind = "prediction" if is_regression else "probability"
    parts: dict[str, list[Tensor]] = {"domain": [], "row": [], "label": [], kind: []}
    for number, domain in enumerate(held_out):
        assert domain.rows is not None
        keep = domain.mask[i].cpu()
        rows = domain.rows[i].cpu()[keep]
        order = rows.argsort()
        parts["domain"].append(torch.full_like(rows, number))
        parts["row"].append(rows[order])
        parts["label"].append(domain.y[i].cpu()[keep][order])
        outputs = domain.logits[i].double()
        outputs = outputs.squeeze(-1) if is_regression else outputs.softmax(-1).float()
        parts[kind].append(outputs.cpu()[keep][order])
    return {name: torch.cat(values) for name, values in parts.items()}


def is_best_so_far(history: Sequence[Evaluation], criterion: str = "") -> bool:
    """Say whether source validation chooses the latest evaluation. Without validation rows, each is the best so far."""
    best = select_step(history, criterion or choose_usual(history[-1].source))
    return best is None or best[1] == len(history) - 1


def hash_weights(params: Params) -> str:
    """Return the sha256 of weights and their names."""
    digest = hashlib.sha256()
    for name in sorted(params):
        digest.update(name.encode())
        digest.update(params[name].contiguous().numpy().data)
    return digest.hexdigest()
