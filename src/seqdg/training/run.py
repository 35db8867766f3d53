"""Train a stack to the end, and make a record of every trial."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial

import torch
from torch import Tensor

from seqdg.base import Params, tree
from seqdg.core import hash_own_code, list_layers
from seqdg.results import DIVERGED, DONE, LOSS_POINTS, LOSSES, Evaluation, Record, thin
from seqdg.training import checkpoint
from seqdg.training.checkpoint import Snapshot
from seqdg.training.evaluation import evaluate_stack, list_losses, predict_domains
from seqdg.training.measuring import is_finite
from seqdg.training.predictions import DomainPredictions
from seqdg.training.protocol import list_evaluation_steps
from seqdg.training.provenance import find_commit, list_versions, measure_peak_memory, name_device, reset_peak_memory
from seqdg.training.saving import Saving, hash_weights, save_step, save_weights
from seqdg.training.stack import DRAWN_AHEAD, Stack, State, View

MOMENT = 0.5  # seconds that training goes on between looks at the clock
# Gets the step, the deployed weights, their evaluations and all losses so far.
OnEvaluation = Callable[[int, Params, list[Evaluation], Tensor], None]


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


class _Run:
    """A stack in training."""

    def __init__(
        self,
        make_stack: Callable[[], Stack],
        name: str,
        device: torch.device,
        on_step: Callable[[int], None],
        saving: Saving,
        notes: Sequence[str],
        stops: Sequence[int] | None,
        on_evaluation: OnEvaluation | None,
    ) -> None:
        self.name, self.device, self.on_step, self.saving, self.notes, self.on_evaluation = (
            name,
            device,
            on_step,
            saving,
            notes,
            on_evaluation,
        )
        reset_peak_memory(device)
        self.began = self.written = time.perf_counter()
        self.stack = make_stack()
        self.stops = list_evaluation_steps(self.stack.algorithm, self.stack.protocol) if stops is None else stops
        self.now = self._read_checkpoint() or Snapshot(self.stack.start(), [[] for _ in self.stack.outcomes])
        self.began -= self.now.seconds
        self.pace = 4  # steps until the next look at the clock
        self.serving = 0.0  # seconds to predict and measure 1,000 rows

    def finish(self) -> list[Record]:
        deployed: dict[int, Params] = {}  # by view
        views = sorted({view for _, view in self.stack.outcomes})
        try:
            while not self._has_ended():
                self._train(self.stops[len(self.now.evaluations[0])])
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
        return [
            self._make_record(k, curves[i], weights.get((i, view), {}), hashes[k])
            for k, (i, view) in enumerate(self.stack.outcomes)
        ]

    def _has_ended(self) -> bool:
        """Say whether the final evaluation is done."""
        state, history = self.now.state, self.now.evaluations[0]
        return bool(history) and history[-1].step == state.step and self._is_final(state)

    def _is_final(self, state: State) -> bool:
        """Say whether no evaluation follows that of this state: all steps are taken, or every trial has diverged, and
        nothing changes its record any more."""
        if state.step == self.stops[-1]:
            return True
        is_sound = torch.isfinite(torch.cat(state.losses)).all(0)
        return not bool(is_sound.reshape(-1, self.stack.members).all(1).any())

    def _hash_weights(self, deployed: Mapping[int, Params]) -> tuple[dict[tuple[int, int], Params], list[str]]:
        """Return the deployed weights by trial and view, in the host's memory, and their hashes, where they are kept:
        of a large stack both take as long as many steps."""
        outcomes = self.stack.outcomes
        if not self.saving.digests and not self.saving.weights:
            return {}, [""] * len(outcomes)
        by_view = {view: split_trials(self.stack, copy_to_host(params)) for view, params in deployed.items()}
        weights = {(i, view): by_view[view][i] for i, view in outcomes}
        with ThreadPoolExecutor(1 if self.device.type == "cpu" else None) as threads:
            return weights, list(threads.map(hash_weights, (weights[place] for place in outcomes)))

    def _evaluate(self, views: Sequence[int]) -> dict[int, Params]:
        """Evaluate the state and let the algorithm hear of it, at once: an interruption leaves both or neither."""
        state = self.now.state
        if self.stack.hears_evaluations:
            plain = evaluate_stack(self.stack, state, self.stack.deploy(state, 0), pooled=False, criteria=LOSSES)
            state = self.stack.hear_evaluation(state, torch.tensor([list_losses(e) for e in plain]))
        deployed = {view: self.stack.deploy(state, view) for view in views}
        before = time.perf_counter()
        wanted = self.saving.criteria
        by_view = {v: evaluate_stack(self.stack, state, params, criteria=wanted) for v, params in deployed.items()}
        rows = self.stack.evaluated_rows[0].numel() * len(by_view) / self.stack.members
        self.serving = 1000 * (time.perf_counter() - before) / max(1, rows)
        new = [by_view[view][i] for i, view in self.stack.outcomes]
        evaluations = [[*old, e] for old, e in zip(self.now.evaluations, new, strict=True)]
        self._keep_step(state, deployed, evaluations)
        self.now = Snapshot(state, evaluations, self.now.seconds)
        if self.on_evaluation is not None:
            self.on_evaluation(state.step, deployed[views[0]], new, torch.cat(state.losses))
        return deployed

    def _keep_step(self, state: State, deployed: dict[int, Params], evaluations: list[list[Evaluation]]) -> None:
        """Write what is kept of this step before it counts as evaluated: what is interrupted in between is repeated."""
        predicted: dict[int, list[DomainPredictions]] = {}  # by view

        def predict(view: int) -> list[DomainPredictions]:
            if view not in predicted:
                predicted[view] = predict_domains(self.stack, deployed[view])
            split = self.stack.jobs[0].split
            return predicted[view][len(split.validation) :][: len(split.test)]

        def take(view: int, i: int) -> Params:
            return {name: value.detach().cpu() for name, value in split_trials(self.stack, deployed[view])[i].items()}

        is_last = self._is_final(state)
        for k, (i, view) in enumerate(self.stack.outcomes):
            save_step(
                self.saving,
                self._find_view(k),
                evaluations[k],
                is_last,
                partial(take, view, i),
                partial(predict, view),
                i,
            )

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
        own = {"own_code": code} if code else {}
        return {**where, **list_versions(), **self._compiler, **self.saving.checkpoint_facts, **own}

    @cached_property
    def _compiler(self) -> dict[str, str]:
        """What compiles the steps, if anything does: the same bits need the same."""
        return {"compiler": "inductor"} if self.stack.compiles else {}

    def _read_checkpoint(self) -> Snapshot | None:
        """Read what this stack left, if the same device, versions and code of the user's own made it: a trial has one
        origin."""
        if self.saving.files is None:
            return None
        data, origin = self.saving.files.read(checkpoint.name_checkpoint(self.name)), self._origin
        try:
            if data is None or checkpoint.read_header(data)["made_by"] != origin:
                return None
            return checkpoint.decode_snapshot(data, self.device)
        except ValueError:
            return None

    def _write_checkpoint(self) -> None:
        if not self.saving.checkpoint or self.saving.files is None:
            return
        self.now.seconds = time.perf_counter() - self.began
        data = checkpoint.encode_snapshot(self.now, self._keys, self._origin)
        try:
            self.saving.files.write(checkpoint.name_checkpoint(self.name), data)
        except OSError as error:  # The numbers do not depend on it, so training goes on.
            print(f"seqdg: no checkpoint could be written ({error}).", file=sys.stderr)
        self.written = time.perf_counter()

    @property
    def _keys(self) -> list[str]:
        return [self._find_view(k).key for k in range(len(self.stack.outcomes))]

    def _find_view(self, k: int) -> View:
        i, view = self.stack.outcomes[k]
        wanted = self.stack.jobs[i * self.stack.members].views[view]
        assert wanted is not None
        return wanted

    def _make_record(self, k: int, curve: Tensor, weights: Params, digest: str) -> Record:
        view, size, members = self._find_view(k), len(self.stack.jobs), self.stack.members
        job = self.stack.jobs[self.stack.outcomes[k][0] * members]
        curve, history = cut_after_divergence(curve, self.now.evaluations[k])
        stayed_finite = bool(torch.isfinite(curve).all()) and is_finite(history[-1], job.split)
        save_weights(self.saving, view, weights, self.now.state.step)
        return Record(
            key=view.key,
            description=dict(view.description),
            status=DONE if stayed_finite else DIVERGED,
            history=history,
            losses=thin(curve.double().tolist(), LOSS_POINTS),
            seconds=self.now.seconds * members / size,
            peak_memory=measure_peak_memory(self.device),
            stacked=size,
            device=name_device(self.device),
            versions={**list_versions(), **self._compiler},
            commit=find_commit(),
            weights=digest,
            notes=list(self.notes),
            serving=self.serving,
        )


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
