"""One group of trials becomes records."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn.functional import pad

from seqdg.base import tree
from seqdg.base.episode import Params
from seqdg.base.files import Files
from seqdg.bench.trial import Group
from seqdg.results.record import DIVERGED, DONE, Evaluation, Record
from seqdg.training import checkpoint
from seqdg.training.checkpoint import Snapshot
from seqdg.training.metrics import metrics
from seqdg.training.place import Place, stack_of
from seqdg.training.provenance import commit, device_name, forget_peak_memory, peak_memory, versions
from seqdg.training.stack import DRAWN_AHEAD, Stack, State

LOSS_POINTS = 200
MOMENT = 0.5  # seconds that training goes on between looks at the clock


@dataclass(frozen=True)
class Keep:
    """What a run keeps beside its records."""

    files: Files | None = None  # where to
    checkpoint: float = 0.0  # seconds between checkpoints of a group; 0: none
    weights: bool = False  # the deployed weights of every trial


def run_group(
    group: Group, place: Place, tick: Callable[[int], None] = lambda step: None, keep: Keep | None = None
) -> list[Record]:
    """Trains and judges every trial of a group, from its checkpoint where there is one.

    `tick` hears how many steps have been taken; where it raises KeyboardInterrupt, as the keyboard may at any time,
    the last moment of training is kept.
    """
    return _Run(group, place, tick, keep or Keep()).records()


class _Run:
    """A group on its way."""

    def __init__(self, group: Group, place: Place, tick: Callable[[int], None], keep: Keep) -> None:
        self.group, self.place, self.tick, self.keep = group, place, tick, keep
        forget_peak_memory(place.device)
        self.began = self.kept = time.perf_counter()
        self.stack = stack_of(group, place)
        found = self._checkpoint()
        self.now = found or Snapshot(self.stack.start(), [[] for _ in group.trials])
        self.began -= self.now.seconds
        self.pace = 4  # steps until the next look at the clock

    def records(self) -> list[Record]:
        deployed: Params = {}
        done = len(self.now.evaluations[0])
        try:
            for stop in self.stack.protocol.evaluation_steps()[done:]:
                self._train(stop)
                deployed = self.stack.deploy(self.now.state)
                new = judged(self.stack, self.now.state, deployed)
                self.now.evaluations = [[*old, e] for old, e in zip(self.now.evaluations, new, strict=True)]
        except KeyboardInterrupt:
            self._write_checkpoint()
            raise
        curve = torch.cat(self.now.state.losses).T.cpu()  # (trial, step)
        self.now.seconds = time.perf_counter() - self.began
        own = tree.unstack({name: value.detach().cpu() for name, value in deployed.items()})
        with ThreadPoolExecutor(1 if self.place.device.type == "cpu" else None) as threads:
            hashes = list(threads.map(_hash, own))
        return [self._record(i, curve[i], own[i], hashes[i]) for i in range(len(self.group.trials))]

    def _train(self, stop: int) -> None:
        while self.now.state.step < stop:
            began, first = time.perf_counter(), self.now.state.step
            self.now.state = self.stack.advance(self.now.state, min(stop, first + self.pace))
            if self.place.device.type == "cuda":
                torch.cuda.synchronize(self.place.device)  # steps count when they are done, not when they are queued
            self.tick(self.now.state.step)
            now = time.perf_counter()
            if now - began < MOMENT / 2 and self.now.state.step == first + self.pace:
                self.pace = min(2 * self.pace, DRAWN_AHEAD)
            elif now - began > 2 * MOMENT:
                self.pace = max(1, self.pace // 2)
            if self.keep.checkpoint and now - self.kept >= self.keep.checkpoint:
                self._write_checkpoint()

    @cached_property
    def _made_by(self) -> dict[str, str]:
        return {"device": device_name(self.place.device), "commit": commit(), **versions()}

    def _checkpoint(self) -> Snapshot | None:
        """The one that this group left, if it was made by the same device and versions: a trial has one origin."""
        data = self.keep.files.read(checkpoint.name_of(self.group.key)) if self.keep.files else None
        try:
            if data is None or checkpoint.header_of(data)["made_by"] != self._made_by:
                return None
            return checkpoint.from_bytes(data, self.place.device)
        except ValueError:
            return None

    def _write_checkpoint(self) -> None:
        if not self.keep.checkpoint or self.keep.files is None:
            return
        self.now.seconds = time.perf_counter() - self.began
        data = checkpoint.to_bytes(self.now, [t.key for t in self.group.trials], self._made_by)
        try:
            self.keep.files.write(checkpoint.name_of(self.group.key), data)
        except OSError as error:  # The numbers do not depend on it, so training goes on.
            print(f"seqdg: no checkpoint could be written ({error}).", file=sys.stderr)
        self.kept = time.perf_counter()

    def _record(self, i: int, curve: Tensor, own: Params, weights: str) -> Record:
        trial, size, device = self.group.trials[i], len(self.group.trials), self.place.device
        if self.keep.weights and self.keep.files is not None:
            about = {"trial": trial.key, "description": json.dumps(trial.description())}
            plain = {name: value.contiguous().clone() for name, value in own.items()}
            self.keep.files.write(f"weights/{trial.key}.safetensors", save(plain, about))
        return Record(
            key=trial.key,
            description=trial.description(),
            status=DONE if _is_sound(curve, self.now.evaluations[i]) else DIVERGED,
            history=self.now.evaluations[i],
            losses=_thinned(curve),
            seconds=self.now.seconds / size,
            peak_memory=peak_memory(device),
            stacked=size,
            device=device_name(device),
            versions=versions(),
            commit=commit(),
            weights=weights,
            notes=list(self.place.dataset.notes),
        )


def judged(stack: Stack, state: State, deployed: Params) -> list[Evaluation]:
    """Metrics of every trial on its sources' validation rows and its held-out domains."""
    columns = [(*job.split.validation, *job.split.test) for job in stack.jobs]
    longest = [max(len(rows[k]) for rows in columns) for k in range(len(columns[0]))]
    rows = torch.stack([torch.cat([pad(r, (0, n - len(r))) for r, n in zip(c, longest, strict=True)]) for c in columns])
    logits, y = stack.predict(deployed, rows)
    found: list[dict[str, list[float]]] = []
    for k, (part, labels) in enumerate(zip(torch.split(logits, longest, 1), torch.split(y, longest, 1), strict=True)):
        lengths = torch.tensor([len(c[k]) for c in columns], device=y.device)
        mask = torch.arange(longest[k], device=y.device) < lengths[:, None]
        found.append({name: value.tolist() for name, value in metrics(part, labels, mask).items()})
    sources = len(stack.jobs[0].split.validation)
    return [
        Evaluation(
            step=state.step,
            source={name: [f[name][i] for f in found[:sources]] for name in found[0]},
            held_out={name: [f[name][i] for f in found[sources:]] for name in found[0]},
        )
        for i in range(len(stack.jobs))
    ]


def _is_sound(curve: Tensor, history: list[Evaluation]) -> bool:
    """Whether training stayed finite to the end."""
    last = history[-1].source["log_loss"] + history[-1].held_out["log_loss"]
    return bool(torch.isfinite(curve).all()) and all(math.isfinite(v) for v in last)


def _thinned(curve: Tensor) -> list[float]:
    """Means over equal stretches of the training."""
    return [float(part.double().mean()) for part in curve.tensor_split(min(LOSS_POINTS, len(curve)))]


def _hash(params: Params) -> str:
    digest = hashlib.sha256()
    for name in sorted(params):
        digest.update(name.encode())
        digest.update(params[name].contiguous().numpy().data)
    return digest.hexdigest()
