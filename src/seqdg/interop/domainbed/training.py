"""One trial of a class of DomainBed, from its first weights to its record, resumed where a checkpoint is."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from seqdg.base import hold_interrupts
from seqdg.bench import Trial
from seqdg.core import Algorithm
from seqdg.interop.domainbed.randomness import Randomness
from seqdg.interop.domainbed.state import Unstorable, restore_state, save_state
from seqdg.results import DIVERGED, DONE, LOSS_POINTS, Evaluation, Record, thin
from seqdg.training import (
    DomainPredictions,
    Inputs,
    Sampler,
    Saving,
    Split,
    View,
    find_commit,
    hash_weights,
    is_finite,
    list_evaluation_steps,
    list_versions,
    mark_fifth,
    measure_peak_memory,
    measure_predictions,
    name_checkpoint,
    name_device,
    place_tensor,
    read_header,
    reset_peak_memory,
    save_step,
    save_weights,
    shuffle_order,
)

TOGETHER = 64  # rows that are predicted at once, as DomainBed does: some of its classes learn from them
AHEAD = 64  # steps whose rows are drawn at once
MOMENT = 0.25  # seconds between ticks


@dataclass
class Training:
    """A class in training.

    name: of the checkpoint.   build: makes the class anew, from the random state of the process.
    made_by: what else must be the same for the same bits.
    """

    name: str
    trial: Trial
    build: Callable[[], Any]
    split: Split
    inputs: Inputs
    device: torch.device
    on_step: Callable[[int], None]
    saving: Saving
    made_by: Mapping[str, str]
    notes: Sequence[str] = ()
    step: int = 0
    losses: list[float] = field(default_factory=list)
    history: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    is_whole: bool = True  # not in the middle of an update

    def finish(self) -> Record:
        reset_peak_memory(self.device)
        self.began = self.written = time.perf_counter()
        with Randomness(self.trial.seed, self.device) as self.randomness, hold_interrupts() as self.interrupted:
            self.algorithm = self._start()
            self.began -= self.seconds
            try:
                while not (self.history and self.history[-1].step == self.step and self._ends()):
                    self._train(self.stops[len(self.history)])
                    self._evaluate()
                    self._heed_interrupts()
            except KeyboardInterrupt:
                if self.is_whole:
                    self._write_checkpoint()
                raise
            return self._make_record()

    @cached_property
    def stops(self) -> tuple[int, ...]:
        return list_evaluation_steps(Algorithm(), self.trial.protocol)

    def _start(self) -> Any:
        data = self.saving.files.read(name_checkpoint(self.name)) if self.saving.files else None
        if data is not None:
            try:
                return self._resume(data)
            except ValueError as error:
                print(f"seqdg: {self.trial.short_name} starts anew: {error}.", file=sys.stderr)
                self.randomness.restart()
        return self._build()

    def _build(self) -> Any:
        algorithm = self.build()
        if isinstance(algorithm, nn.Module):
            algorithm.train()
        return algorithm

    def _train(self, stop: int) -> None:
        told = time.perf_counter()
        while self.step < stop:
            last = min(stop, self.step + AHEAD)
            for minibatches in load_minibatches(self.trial, self.split, self.inputs, self.step, last):
                self.is_whole = False
                self.losses.append(read_loss(self.algorithm.update(minibatches, None)))
                self.step += 1
                self.is_whole = True
                now = time.perf_counter()
                if now - told > MOMENT or self.step == stop:
                    self.on_step(self.step)
                    told = now
                self._heed_interrupts()
                if self.saving.checkpoint and now - self.written >= self.saving.checkpoint:
                    self._write_checkpoint()

    def _heed_interrupts(self) -> None:
        """Stop if there was an interrupt. It waited until here: half an update is no state to go on from."""
        if self.interrupted:
            raise KeyboardInterrupt

    def _ends(self) -> bool:
        """Whether an evaluation now is the last: all steps are taken, or one had a loss that is not finite."""
        return self.step == self.stops[-1] or not all(map(math.isfinite, self.losses))

    def _evaluate(self) -> None:
        parts, sources = self._predict_domains(), len(self.split.validation)
        history = [*self.history, measure_predictions(parts, sources, self.step, self.split.held_out_at_once)[0]]
        held_out = parts[sources : sources + len(self.split.test)]
        save_step(self.saving, self._view, history, self._ends(), self._read_weights, lambda: held_out)
        self.history = history

    def _predict_domains(self) -> list[DomainPredictions]:
        self.algorithm.eval()
        try:
            with torch.no_grad():
                parts = [self._predict(rows) for rows in self.split.validation]
                parts += [self._predict(*both) for both in zip(self.split.test, self.split.fifth, strict=True)]
                parts += [self._predict(rows) for rows in self.split.outside or ()]
        finally:
            self.algorithm.train()
        return parts

    def _predict(self, rows: Tensor, fifth: Tensor | None = None) -> DomainPredictions:
        """Predict rows of one domain. fifth: those of a held-out domain by which `oracle-split` chooses."""
        rows = rows[shuffle_order(len(rows))][None]
        logits, labels = [], []
        for chunk in torch.split(rows.to(self.device), TOGETHER, dim=1) if rows.numel() else ():
            x, y = self.inputs.serve(chunk)
            logits.append(self.algorithm.predict(x[0]))
            labels.append(y[0])
        if not logits:
            return DomainPredictions(torch.zeros(1, 0, 2), rows, torch.zeros_like(rows, dtype=torch.bool))
        y = torch.cat(labels)[None]
        marked = None if fifth is None else mark_fifth(rows, [fifth], self.device)
        mask, groups = torch.ones_like(y, dtype=torch.bool), self.inputs.find_groups(rows)
        return DomainPredictions(torch.cat(logits)[None], y, mask, rows, marked, groups)

    @cached_property
    def _origin(self) -> dict[str, str]:
        return {
            "device": name_device(self.device),
            "commit": find_commit(),
            **list_versions(),
            **self.made_by,
            **self.saving.checkpoint_facts,
        }

    def _write_checkpoint(self) -> None:
        if not self.saving.checkpoint or self.saving.files is None:
            return
        self.seconds = time.perf_counter() - self.began
        try:
            data = self._encode()
            self.saving.files.write(name_checkpoint(self.name), data)
        except (OSError, Unstorable) as error:  # The numbers do not depend on it, so training goes on.
            print(f"seqdg: no checkpoint of {self.trial.short_name} could be written ({error}).", file=sys.stderr)
        self.written = time.perf_counter()

    def _encode(self) -> bytes:
        state, tensors = save_state(self.algorithm)
        random, more = self.randomness.save()
        named = {f"state/{i}": t for i, t in enumerate(tensors)} | {f"random/{i}": t for i, t in enumerate(more)}
        header = {
            "trials": [self.trial.key],
            "made_by": self._origin,
            "step": self.step,
            "losses": self.losses,
            "evaluations": [asdict(e) for e in self.history],
            "seconds": self.seconds,
            "state": state,
            "random": random,
            "tensors": {name: value.stride() for name, value in named.items()},
        }
        # Cloned, as safetensors refuses tensors that share memory.
        plain = {n: t.detach().cpu().clone(memory_format=torch.contiguous_format) for n, t in named.items()}
        return save(plain, {"seqdg": json.dumps(header)})

    def _resume(self, data: bytes) -> Any:
        """Build the class and put everything back; raise a ValueError where that cannot be."""
        header = read_header(data)
        if header["made_by"] != self._origin:
            raise ValueError("its checkpoint was made by another version or device")
        if header["trials"] != [self.trial.key]:
            raise ValueError("its checkpoint is of another trial")
        try:
            stored = load(data)
        except SafetensorError as error:
            raise ValueError(f"its checkpoint cannot be read ({error})") from None
        cpu = torch.device("cpu")
        named = {name: place_tensor(stored[name], stride, cpu) for name, stride in header["tensors"].items()}
        tensors, random = (
            [named[f"{part}/{i}"] for i in range(sum(name.startswith(f"{part}/") for name in named))]
            for part in ("state", "random")
        )
        algorithm = self._build()
        missing = restore_state(algorithm, header["state"], tensors, self.device)
        if missing:  # what it makes only while it trains: one step, which leaves nothing behind, makes it
            algorithm.update(next(load_minibatches(self.trial, self.split, self.inputs, 0, 1)), None)
            missing = restore_state(algorithm, header["state"], tensors, self.device)
        if missing:
            raise ValueError(f"nothing is known of how it makes {missing[0]}")
        self.randomness.restore(header["random"], random)
        self.step, self.losses, self.seconds = header["step"], header["losses"], header["seconds"]
        self.history = [Evaluation(**e) for e in header["evaluations"]]
        return algorithm

    @property
    def _view(self) -> View:
        return View(self.trial.key, self.trial.description())

    def _make_record(self) -> Record:
        weights = {name: value.detach().cpu() for name, value in self._read_weights().items()}
        save_weights(self.saving, self._view, weights, self.step)
        stayed_finite = all(map(math.isfinite, self.losses)) and is_finite(self.history[-1], self.split)
        return Record(
            key=self.trial.key,
            description=self.trial.description(),
            status=DONE if stayed_finite else DIVERGED,
            history=self.history,
            losses=thin(self.losses, LOSS_POINTS),
            seconds=time.perf_counter() - self.began,
            peak_memory=measure_peak_memory(self.device),
            device=name_device(self.device),
            versions={**list_versions(), **self.made_by},
            commit=find_commit(),
            weights=hash_weights(weights),
            notes=[*self.notes, self._describe_optimizers()],
        )

    def _read_weights(self) -> dict[str, Tensor]:
        return {n: v for n, v in self.algorithm.state_dict().items() if isinstance(v, Tensor)}

    def _describe_optimizers(self) -> str:
        """Say what steps the weights: a reader compares with our optimizers, which differ in how weights decay."""
        kinds = [type(v).__name__ for v in vars(self.algorithm).values() if isinstance(v, torch.optim.Optimizer)]
        names = ", ".join(dict.fromkeys(kinds)) or "none in sight"
        return (
            f"{self.trial.short_name} builds its own net and steps its own optimizer: {names} of torch, whose weight "
            "decay is part of the gradient (adam-l2 here)."
            if set(kinds) == {"Adam"}
            else f"{self.trial.short_name} builds its own net and steps its own optimizers: {names}."
        )


def draw_rows(trial: Trial, split: Split, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return the rows (step, source, batch) that a trial sees in these steps, in the order of the sources, and the keys
    (step,) of their augmentation: those that our algorithms see with the same seed."""
    domain, rows, key = (d[:, 0] for d in Sampler([trial.seed], [split.train], trial.protocol.batch).draw(first, last))
    place = domain.argsort(1)  # where in the path each source is
    return rows.gather(1, place[:, :, None].expand_as(rows)), key


def load_minibatches(
    trial: Trial, split: Split, inputs: Inputs, first: int, last: int
) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Yield the minibatches of these steps, one for each source in their order: the rows that a stack would see."""
    rows, key = draw_rows(trial, split, first, last)
    for x, y in inputs.load_steps(rows[:, None].to(inputs.device), key[:, None].to(inputs.device)):
        yield [(x[0, i].contiguous(), y[0, i].contiguous()) for i in range(x.shape[1])]


def read_loss(values: Mapping[str, Any]) -> float:
    """Return the loss of what `update` returned: `loss`, or the first that is named like one."""
    names = [name for name in values if name == "loss"] + [name for name in values if "loss" in name]
    return float(values[names[0]]) if names else 0.0
