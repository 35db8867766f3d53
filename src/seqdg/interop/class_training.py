"""Train a class of DomainBed: evaluated like ours, with checkpoints from which it goes on to the same bits.

A class keeps its state where it likes: in buffers, optimizers, dictionaries of tensors, objects of its own.
`save_state` walks all of it into a tree of plain values and tensors. `restore_state` puts the values back in place into
an object that was built the same way, so that an optimizer still holds the weights that it steps. No class is named in
the tree and none is made from it: reading it runs no foreign code. What the object made only while it trained (an inner
copy of a network) is not in a new one: `restore_state` says which paths are missing, the caller lets the object train a
step, and restores again.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqdg.base import hold_interrupts
from seqdg.bench import Trial
from seqdg.core import Algorithm
from seqdg.results import DIVERGED, DONE, LOSS_POINTS, Evaluation, Record, thin
from seqdg.training import (
    DomainPredictions,
    Inputs,
    Sampler,
    Saving,
    Split,
    View,
    decode_checkpoint,
    encode_checkpoint,
    find_commit,
    hash_weights,
    is_finite,
    lend_randomness,
    list_evaluation_steps,
    list_versions,
    mark_fifth,
    measure_peak_memory,
    measure_predictions,
    name_checkpoint,
    name_device,
    read_generators,
    reset_peak_memory,
    restore_generators,
    save_step,
    save_weights,
    seed_generators,
    shuffle_order,
)

TOGETHER = 64  # rows that are predicted at once, as DomainBed does: some of its classes learn from them
AHEAD = 64  # steps whose rows are drawn at once
MOMENT = 0.25  # seconds between ticks
CONSTANTS = (
    FunctionType, MethodType, BuiltinFunctionType, ModuleType, type, torch.device, torch.dtype, torch.Size,
    torch.memory_format, range,
)  # fmt: skip
_MODULE = frozenset(vars(nn.Module())) - {"training", "_parameters", "_buffers", "_modules"}  # torch's own hooks
Tree = dict[str, Any]


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
        with lend_randomness(self.trial.seed, self.device), hold_interrupts() as self.interrupted:
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
                seed_generators(self.trial.seed, self.device)
        return self.build().train()

    def _train(self, stop: int) -> None:
        ticked = time.perf_counter()
        while self.step < stop:
            last = min(stop, self.step + AHEAD)
            for minibatches in load_minibatches(self.trial, self.split, self.inputs, self.step, last):
                self.is_whole = False
                self.losses.append(read_loss(self.algorithm.update(minibatches, None)))
                self.step += 1
                self.is_whole = True
                now = time.perf_counter()
                if now - ticked > MOMENT or self.step == stop:
                    self.on_step(self.step)
                    ticked = now
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
        named = {str(i): tensor for i, tensor in enumerate(tensors)}
        header = {
            "trials": [self.trial.key],
            "made_by": self._origin,
            "step": self.step,
            "losses": self.losses,
            "evaluations": [asdict(e) for e in self.history],
            "seconds": self.seconds,
            "state": state,
            "random": read_generators(self.device),
        }
        return encode_checkpoint(header, named)

    def _resume(self, data: bytes) -> Any:
        """Build the class and put everything back; raise a ValueError where that cannot be."""
        header, stored = decode_checkpoint(data, torch.device("cpu"))
        if header["made_by"] != self._origin:
            raise ValueError("its checkpoint was made by another version or device")
        if header["trials"] != [self.trial.key]:
            raise ValueError("its checkpoint is of another trial")
        tensors = list(stored.values())
        algorithm = self.build().train()
        missing = restore_state(algorithm, header["state"], tensors, self.device)
        if missing:  # what it makes only while it trains: one step, which leaves nothing behind, makes it
            algorithm.update(next(load_minibatches(self.trial, self.split, self.inputs, 0, 1)), None)
            missing = restore_state(algorithm, header["state"], tensors, self.device)
        if missing:
            raise ValueError(f"it is not known how the class makes {missing[0]}")
        restore_generators(header["random"], self.device)
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
            f"{self.trial.short_name} builds its own network and steps its own optimizer: {names} of torch, whose "
            "weight decay is part of the gradient (adam-l2 here)."
            if set(kinds) == {"Adam"}
            else f"{self.trial.short_name} builds its own network and steps its own optimizers: {names}."
        )


def draw_rows(trial: Trial, split: Split, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return the rows (step, source, batch) that a trial sees in these steps, in the order of the sources, and the keys
    (step,) of their augmentation: those that our algorithms see with the same seed."""
    domain, rows, key = (d[:, 0] for d in Sampler([trial.seed], [split.train], trial.protocol.batch).draw(first, last))
    position = domain.argsort(1)  # of each source in the path
    return rows.gather(1, position[:, :, None].expand_as(rows)), key


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


class Unstorable(ValueError):
    """An object holds something that cannot be written down."""


def save_state(value: Any) -> tuple[Tree, list[Tensor]]:
    """Return the tree of all that a value holds, and the tensors that it points to by number."""
    saver = _Saver()
    return saver.save(value, ""), saver.tensors


def restore_state(value: Any, saved: Tree, tensors: list[Tensor], device: torch.device | str = "cpu") -> list[str]:
    """Put saved values back into an object; return the paths of those for which it has no room yet.

    device: for tensors that were not on the CPU.
    """
    restorer = _Restorer(tensors, torch.device(device))
    restorer.restore(saved, value, "")
    return restorer.missing


class _Saver:
    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is used twice

    def save(self, value: Any, path: str) -> Tree:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return {"kind": "plain", "value": value}
        if isinstance(value, CONSTANTS):
            return {"kind": "constant"}
        if id(value) in self._seen:
            return {"kind": "same", "number": self._seen[id(value)]}
        number = len(self._seen)
        self._seen[id(value)] = number
        self._alive.append(value)
        return {"number": number, **self._save_object(value, path)}

    def _save_object(self, value: Any, path: str) -> Tree:
        if isinstance(value, Tensor):
            return self._save_tensor(value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            return {"kind": "array", "tensor": self._put(torch.from_numpy(np.array(value)))}
        if isinstance(value, torch.Generator):
            return {"kind": "generator", "tensor": self._put(value.get_state())}
        if isinstance(value, nn.Module):
            return {"kind": "object", "parts": self._save_dict(_read_module(value), path)}
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            return {"kind": "stateful", "state": self.save(value.state_dict(), f"{path} (its state)")}
        if isinstance(value, dict):
            return {"kind": "dict", "parts": self._save_dict(value, path)}
        if isinstance(value, list | tuple | deque):
            kind = next(k.__name__ for k in (list, tuple, deque) if isinstance(value, k))
            return {"kind": kind, "parts": [self.save(v, f"{path}[{i}]") for i, v in enumerate(value)]}
        if isinstance(value, set | frozenset):
            return {"kind": "set", "parts": [self.save(v, path) for v in sorted(value, key=repr)]}
        if hasattr(value, "__dict__"):
            return {"kind": "object", "parts": self._save_dict(vars(value), path)}
        raise Unstorable(f"{path} is of type {type(value).__name__}")

    def _save_tensor(self, value: Tensor) -> Tree:
        saved = {"kind": "tensor", "tensor": self._put(value), "leaf": value.is_leaf and value.requires_grad}
        saved["on_cpu"] = value.device.type == "cpu"  # an optimizer counts its steps there, whatever the device
        if value.is_leaf and value.grad is not None:
            saved["grad"] = self._put(value.grad)
        return saved

    def _save_dict(self, values: dict[Any, Any], path: str) -> list[tuple[Tree, Tree]]:
        return [(self.save(k, path), self.save(v, _join(path, k))) for k, v in values.items()]

    def _put(self, value: Tensor) -> int:
        self.tensors.append(value.detach())
        return len(self.tensors) - 1


class _Restorer:
    def __init__(self, tensors: list[Tensor], device: torch.device) -> None:
        self.tensors, self.device, self.missing = tensors, device, list[str]()
        self._known: dict[int, Any] = {}

    def restore(self, saved: Tree, now: Any, path: str) -> Any:
        """Return the saved value: `now` itself, filled, where it can be filled; what belongs elsewhere stays as is."""
        if saved["kind"] == "plain":
            return saved["value"]
        if saved["kind"] == "constant":
            return now
        if saved["kind"] == "same":
            return self._known.get(saved["number"], now)
        self._known[saved["number"]] = now  # an object may hold itself
        value = self._restore_object(saved, now, path)
        self._known[saved["number"]] = value
        return value

    def _restore_object(self, saved: Tree, now: Any, path: str) -> Any:
        kind = saved["kind"]
        if kind == "tensor":
            return self._restore_tensor(saved, now, path)
        if kind == "array":
            return self.tensors[saved["tensor"]].numpy().copy()
        if kind == "dict":
            now = now if isinstance(now, dict) else {}
            self._fill(now, saved, path)
        elif kind in ("list", "tuple", "deque", "set"):
            return self._restore_sequence(saved, now, path)
        elif kind == "generator" and isinstance(now, torch.Generator):
            now.set_state(self.tensors[saved["tensor"]])
        elif kind == "stateful" and callable(getattr(now, "load_state_dict", None)):
            try:
                now.load_state_dict(self.restore(saved["state"], None, path))
            except (ValueError, KeyError, RuntimeError):  # it is of another shape yet
                self.missing.append(path)
        elif kind == "object" and isinstance(now, nn.Module):
            parts = _read_module(now)
            self._fill(parts, saved, path)
            hooks = {name: value for name, value in vars(now).items() if name in _MODULE}
            vars(now).clear()
            vars(now).update(hooks | parts)
        elif kind == "object" and hasattr(now, "__dict__"):
            self._fill(vars(now), saved, path)
        else:
            self.missing.append(path)
        return now

    def _restore_tensor(self, saved: Tree, now: Any, path: str) -> Any:
        value = self.tensors[saved["tensor"]]
        if not isinstance(now, nn.Parameter):
            return value.to("cpu" if saved["on_cpu"] else self.device, copy=True).requires_grad_(bool(saved["leaf"]))
        if now.shape != value.shape:
            self.missing.append(path)
            return now
        with torch.no_grad():
            now.copy_(value)
        now.grad = self.tensors[saved["grad"]].to(now.device, copy=True) if "grad" in saved else None
        return now

    def _fill(self, values: dict[Any, Any], saved: Tree, path: str) -> None:
        """Fill a dictionary in place, in the saved order."""
        before = dict(values)
        values.clear()
        for key, part in saved["parts"]:
            name = self.restore(key, None, path)
            missing = len(self.missing)
            value = self.restore(part, before.get(name), _join(path, name))
            if value is not None or name in before or len(self.missing) == missing:
                values[name] = value

    def _restore_sequence(self, saved: Tree, now: Any, path: str) -> Any:
        before = list(now) if isinstance(now, list | tuple | deque) else []
        before += [None] * (len(saved["parts"]) - len(before))
        parts = [self.restore(part, before[i], f"{path}[{i}]") for i, part in enumerate(saved["parts"])]
        if saved["kind"] == "list" and isinstance(now, list):
            now[:] = parts
            return now
        if saved["kind"] == "deque":
            return deque(parts, now.maxlen if isinstance(now, deque) else None)
        return {"list": list, "tuple": tuple, "set": set}[saved["kind"]](parts)


def _join(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _read_module(module: nn.Module) -> dict[str, Any]:
    """Return what a module holds beside torch's own hooks."""
    return {name: value for name, value in vars(module).items() if name not in _MODULE}
