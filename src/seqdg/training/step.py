"""One step of all trials of a stack, in place: as the algorithm is written, or compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqdg.base import Episode, Params, UsageError, private
from seqdg.core import Algorithm, Number, with_numbers
from seqdg.nets import Net
from seqdg.training.capture import Carried, copy_carried
from seqdg.training.compilation import CompilationError, compile_at_first_call
from seqdg.training.optimizers import Optimizer, Rates, Slots
from seqdg.training.recording import record_at_first_call

# Takes a step of all trials in place and returns their losses. The last argument is what schedules make of the learning
# rates, (trial,), where there are any.
Step = Callable[[Carried, Episode, Tensor | None], Tensor]


@dataclass(frozen=True)
class StepWriter:
    """Makes the steps of a stack, one for each stage of its algorithm."""

    net: Net
    algorithm: Algorithm
    optimizer: Optimizer
    numbers: Params  # (trial,) the settings in which trials differ
    rates: Rates
    map_over_trials: Callable[[Callable[..., Any]], Callable[..., Any]]  # makes a function of all trials
    precision: str

    def write(self, stage: int, records: bool = False) -> Step:
        """Make the step as it is written. records: run the operations of its first call from then on."""
        direct = self._watch(self.map_over_trials(self._make_direction(stage)))
        direct = record_at_first_call(direct) if records else direct

        def take(carried: Carried, episode: Episode, factor: Tensor | None) -> Tensor:
            params, memory, slots = carried["params"], carried["memory"], select_slots(carried)
            loss: Tensor
            direction, loss, new = direct(params, memory, self.numbers, episode)
            changed = _keep_apart(new, memory, params)
            for pace, part in split_by_pace(self._find_stage(self.numbers, stage), direction):
                self.optimizer.update_in_place(params, part, slots, self._scale_rates(factor, pace))
            if changed:
                private.copy_each([memory[name] for name in changed], list(changed.values()))
            return loss

        return take

    def compile(self, stage: int) -> Step:
        """Make the step as one compiled program, from its definition: the compiler finds what to fuse.

        Its first call compiles it, compares it with the step as it is written, and raises a CompilationError, having
        changed nothing, where that fails.
        """
        direct, vary = self._make_direction(stage), self.rates.vary

        def step_one(
            carried: Carried, numbers: Params, rates: Any, factor: Any, episode: Episode
        ) -> tuple[Carried, Tensor]:
            params, slots = carried["params"], select_slots(carried)
            direction, loss, memory = direct(params, carried["memory"], numbers, episode)
            trial_rates = Rates(*rates) if vary else self.rates
            lr = trial_rates.lr * factor[0] if factor else trial_rates.lr
            for pace, part in split_by_pace(self._find_stage(numbers, stage), direction):
                params, slots = self.optimizer.update(params, part, slots, trial_rates._replace(lr=lr * pace))
            return {"params": params, "memory": memory, **slots}, loss

        stacked = self.map_over_trials(step_one)

        def take(carried: Carried, episode: Episode, factor: Tensor | None) -> Tensor:
            rates, factors = tuple(self.rates) if vary else (), () if factor is None else (factor,)
            loss: Tensor
            new, loss = stacked(carried, self.numbers, rates, factors, episode)
            for kind, tensors in carried.items():
                for name, old in tensors.items():
                    old.copy_(new[kind][name])
            return loss

        compiled, checked = compile_at_first_call(take), list[bool]()

        def take_compiled(carried: Carried, episode: Episode, factor: Tensor | None) -> Tensor:
            if not checked:
                _compare(compiled, self.write(stage), carried, episode, factor)
                checked.append(True)
            return compiled(carried, episode, factor)

        return take_compiled

    def _make_direction(self, stage: int) -> Callable[..., tuple[Params, Tensor, Params]]:
        """Make the function that returns one trial's direction, loss and new memory."""
        half = self.precision == "bf16"

        def direct(params: Params, memory: Params, numbers: Params, episode: Episode) -> Any:
            kind = episode.x.device.type
            with torch.autocast(kind, torch.bfloat16, enabled=half, cache_enabled=False), _fix_order_of_sums():
                return self._find_stage(numbers, stage).step(self.net, params, memory, episode)

        return direct

    def _find_stage(self, numbers: Params, stage: int) -> Algorithm:
        """Return the algorithm of a stage with the numeric settings of one trial."""
        return with_numbers(self.algorithm, numbers).stages()[stage][1]

    def _scale_rates(self, factor: Tensor | None, pace: Number) -> Rates:
        """Return the rates of one step. factor: (trial,) what the schedules make of them."""
        lr, momentum, weight_decay = self.rates
        if factor is not None:
            lr = lr * (factor if self.rates.vary else factor[0])
        if isinstance(pace, Tensor) and pace.dim() and not self.rates.vary:  # trials differ in nothing else
            momentum, weight_decay = (torch.zeros_like(pace) + rate for rate in (momentum, weight_decay))
        return Rates(lr if isinstance(pace, float) and pace == 1.0 else lr * pace, momentum, weight_decay)

    def _watch(self, direct: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function, which raises an error where the algorithm changes weights or memory in place,
        or returns another kind of memory than it was given."""
        kind = type(self.algorithm).__name__

        def watched(params: Params, memory: Params, *others: Any) -> Any:
            parts = {"weights": params, "memory": memory}
            held = [(part, name, t) for part, tensors in parts.items() for name, t in tensors.items()]
            writes = [private.count_writes(t) for _, _, t in held]
            direction, loss, remembered = direct(params, memory, *others)
            for (part, name, t), before in zip(held, writes, strict=True):
                if private.count_writes(t) != before:
                    raise UsageError(
                        f"{kind} changes the {part} that it is given ('{name}') in place: let it make new ones."
                    )
            old, new = ({name: (tuple(t.shape), t.dtype) for name, t in m.items()} for m in (memory, remembered))
            if old != new:
                name = min(n for n in {**old, **new} if old.get(n) != new.get(n))
                raise UsageError(
                    f"{kind} is given '{name}' in its memory as {old.get(name)} and returns it as {new.get(name)} "
                    "(shape over all trials, type): a memory keeps its names, shapes and types."
                )
            return direction, loss, remembered

        return watched


def select_slots(carried: Carried) -> Slots:
    """Return the optimizer's part of what is carried."""
    return {name: values for name, values in carried.items() if name not in ("params", "memory")}


def split_by_pace(algorithm: Algorithm, direction: Params) -> list[tuple[Number, Params]]:
    """Split a direction into the parts whose learning rate is the same multiple of the trial's."""
    parts: dict[Any, tuple[Number, Params]] = {}
    for name, d in direction.items():
        pace = algorithm.pace(name)
        parts.setdefault(id(pace) if isinstance(pace, Tensor) else pace, (pace, {}))[1][name] = d
    return list(parts.values())


def _keep_apart(new: Params, memory: Params, params: Params) -> Params:
    """Return what has changed of a memory, in tensors that stay as they are while weights and memory are written over:
    a new memory may hold weights, or tensors of the old one under other names."""
    held = {t.untyped_storage().data_ptr() for t in (*memory.values(), *params.values())}
    changed = {name: value for name, value in new.items() if value is not memory[name]}
    return {n: v.clone() if v.untyped_storage().data_ptr() in held else v for n, v in changed.items()}


def _compare(compiled: Step, written: Step, carried: Carried, episode: Episode, factor: Tensor | None) -> None:
    """Take one step both ways and raise a CompilationError where they differ by more than rounding."""
    by_compiled, by_written = copy_carried(carried), copy_carried(carried)
    compiled(by_compiled, episode, factor)
    written(by_written, episode, factor)
    for name, before in carried["params"].items():
        share = 1e-6 if before.dtype == torch.float64 else 0.05
        got, expected = by_compiled["params"][name], by_written["params"][name]
        allowed = share * (expected - before).abs().max() + 1e-6 * before.abs().max()
        if not bool((got - expected).abs().max() <= allowed):
            raise CompilationError(f"compiled, it changes '{name}' in another way")


def _fix_order_of_sums() -> Any:
    """Sum gradients of gradients in an order that depends on nothing but the computation.

    torch orders operations by a count that every thread keeps for itself, and on a GPU it goes backward in another
    thread. What this process did before would then decide between (a + b) + c and a + (b + c).
    """
    return torch.autograd.set_multithreading_enabled(False)
