"""One step of all trials of a stack, in place: as the algorithm is written, compiled, or captured as a CUDA graph.

Compiled, a whole step is one program of torch's compiler, which fuses what a hand would have to fuse method by method.
The step is traced down to single operations first, so that gradients of gradients, `torch.func.vmap` and whatever
Python an algorithm is written in are gone before the compiler sees it. The compiler keeps its results on disk: the same
step compiles sooner the next time.

Captured, a step is launched once instead of once a kernel. The order of domains, the minibatches and the keys of many
steps lie on the device, and a counter there says which step is next, so one graph serves all of them.
"""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from seqdg.base import Episode, Params, UsageError, private, state_reason
from seqdg.core import Algorithm, Number, with_numbers
from seqdg.nets import Net
from seqdg.results import pause_garbage_collection
from seqdg.training.optimizers import OPTIMIZERS, Optimizer, Rates, Slots
from seqdg.training.replay import record_at_first_call

WARM_UP = 3  # steps outside the graph, in which libraries choose their kernels and workspaces
Carried = dict[str, Params]  # what a step takes over from the one before: weights, memory and slots
# Takes a step of all trials in place and returns their losses. The last argument is what schedules make of the learning
# rates, (trial,), where there are any.
Step = Callable[[Carried, Episode, Tensor | None], Tensor]
StepData = dict[str, Tensor]  # what steps see: domain, rows, key and progress, each (step, trial, ...)
DrawnStep = Callable[[Carried, StepData], Tensor]  # takes the step of these draws in place and returns the loss


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
    layer_decay: float = 1.0

    def write(self, stage: int, records: bool = False) -> Step:
        """Make the step as it is written. records: run the operations of its first call from then on."""
        direct = self._watch(self.map_over_trials(self._make_direction(stage)))
        direct = record_at_first_call(direct, renews=False) if records else direct

        def take(carried: Carried, episode: Episode, factor: Tensor | None) -> Tensor:
            params, memory, slots = carried["params"], carried["memory"], select_slots(carried)
            loss: Tensor
            direction, loss, new = direct(params, memory, self.numbers, episode)
            changed = _keep_apart(new, memory, params)
            taken = self._find_stage(self.numbers, stage)
            if taken.moves:
                moved = _keep_apart(direction, params, memory)
                private.copy_each([params[name] for name in moved], list(moved.values()))
            for optimizer, pace, part in self._split(taken, {} if taken.moves else direction):
                optimizer.update_in_place(params, part, slots, self._scale_rates(factor, pace))
            if changed:
                private.copy_each([memory[name] for name in changed], list(changed.values()))
            return loss.clone() if records else loss  # what is recorded writes over it in the next step

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
            taken = self._find_stage(numbers, stage)
            params = {**params, **direction} if taken.moves else params
            for optimizer, pace, part in self._split(taken, {} if taken.moves else direction):
                own = {name: slots[name] for name in optimizer.names}
                params, own = optimizer.update(params, part, own, trial_rates._replace(lr=lr * pace))
                slots = {**slots, **own}
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

    def init_slots(self, params: Params) -> Slots:
        """Return the slots with which one trial begins: of every weight, those of its own optimizer."""
        slots: Slots = {}
        for optimizer, part in self._split_by_optimizer(self.algorithm, params):
            for slot, values in optimizer.init(part).items():
                slots.setdefault(slot, {}).update(values)
        return slots

    def _split_by_optimizer(self, algorithm: Algorithm, values: Params) -> list[tuple[Optimizer, Params]]:
        """Split weights, or a direction, by what optimizes them: the run's, or one that the algorithm chooses."""
        parts: dict[str, Params] = {}
        for name, value in values.items():
            parts.setdefault(algorithm.choose_optimizer(name), {})[name] = value
        return [(OPTIMIZERS[kind] if kind else self.optimizer, part) for kind, part in parts.items()]

    def _split(self, algorithm: Algorithm, direction: Params) -> list[tuple[Optimizer, Number, Params]]:
        """Split a direction into parts by what optimizes them and by their learning rates."""
        return [
            (optimizer, pace, part)
            for optimizer, own in self._split_by_optimizer(algorithm, direction)
            for pace, part in self._split_by_rate(algorithm, own)
        ]

    def _split_by_rate(self, algorithm: Algorithm, direction: Params) -> list[tuple[Number, Params]]:
        """Split a direction into parts by their learning rates, which are lower the further below the head they are."""
        if self.layer_decay == 1.0:
            return split_by_pace(algorithm, direction)
        by_depth: dict[int, Params] = {}
        for name, d in direction.items():
            by_depth.setdefault(self.net.find_depth(name), {})[name] = d
        return [
            (pace * self.layer_decay**depth, part)
            for depth, together in by_depth.items()
            for pace, part in split_by_pace(algorithm, together)
        ]

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
        or returns another kind of memory than it gets."""
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
    a new memory may hold weights, or tensors of the old one under other names. The same of weights, and a memory."""
    held = {t.untyped_storage().data_ptr() for t in (*memory.values(), *params.values())}
    changed = {name: value for name, value in new.items() if not _is_same_memory(value, memory[name])}
    return {n: v.clone() if v.untyped_storage().data_ptr() in held else v for n, v in changed.items()}


def _is_same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one, or another view of the same numbers in the same memory."""
    return a is b or (
        a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.numel() > 0
    )


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


# ---------------------------------------------------------------------------- compiled


class CompilationError(RuntimeError):
    """Why a step could not be compiled."""


def compile_at_first_call(function: Callable[..., Tensor], backend: str = "inductor") -> Callable[..., Tensor]:
    """Return the same function of tensors, compiled for the shapes of its first call. It may write over its inputs.

    backend: "inductor", torch's compiler, or "none", which runs what was traced operation by operation.
    Raises a CompilationError, and changes nothing, where it cannot be compiled.
    """
    made: list[Callable[..., Any]] = []

    def call(*arguments: Any) -> Tensor:
        flat, structure = private.flatten(arguments)
        if not made:
            try:
                made.append(_compile(lambda *leaves: (function(*private.unflatten(leaves, structure)),), flat, backend))
            except Exception as error:  # whatever a compiler may raise
                raise CompilationError(state_reason(error)) from error
        (out,) = made[0](*flat)
        result: Tensor = out
        return result

    return call


def _compile(function: Callable[..., tuple[Tensor]], flat: list[Any], backend: str) -> Callable[..., Any]:
    tensors: list[Any] = [value for value in flat if isinstance(value, Tensor)]

    def of_tensors(*values: Tensor) -> tuple[Tensor]:
        inputs = iter(values)
        return function(*(next(inputs) if isinstance(value, Tensor) else value for value in flat))

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a compiler warns of is not the user's to change
        graph = _spell_out_factors(_trace(of_tensors, tensors))
        inductor = backend == "inductor"
        compiled = private.compile_graph(graph, tensors, _choose_options()) if inductor else graph
    return lambda *values: compiled(*(value for value in values if isinstance(value, Tensor)))


def _trace(function: Callable[..., Any], tensors: list[Any]) -> torch.fx.GraphModule:
    """Write down every operation of the function, without taking them where that is possible."""
    try:
        return private.trace_operations(function, tensors)
    except RuntimeError:  # forward-mode derivatives inside others do not know the device of tensors without numbers
        return make_fx(function, tracing_mode="real")(*(t.clone() for t in tensors))


def _spell_out_factors(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Write `a + alpha * b`, which is one operation of torch, as two.

    Where one of the two is a product of matrices, the compiler makes `addmm` of the sum and forgets alpha (pytorch
    issue 167313): the weight decay of a network that trains alone was 1.
    """
    sums = (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in sums and node.kwargs.get("alpha", 1) != 1:
            first, second = node.args
            with graph.graph.inserting_before(node):
                scaled = graph.graph.call_function(torch.ops.aten.mul.Tensor, (second, node.kwargs["alpha"]))
            node.args, node.kwargs = (first, scaled), {}
    graph.recompile()
    return graph


def _choose_options() -> dict[str, Any]:
    """Choose nothing by the clock: the same step is the same program after a crash, and sums in the same order."""
    wanted = {"deterministic": True, "triton.autotune_pointwise": False, "fallback_random": True}
    return {name: value for name, value in wanted.items() if private.has_compiler_option(name)}


# ---------------------------------------------------------------------------- captured


class CaptureError(RuntimeError):
    """Why a step could not be recorded."""


class CapturedStep:
    """One stage's step, recorded for a fixed shape of weights and draws."""

    def __init__(self, step: DrawnStep, carried: Carried, draws: StepData, ahead: int) -> None:
        self._step = step
        self._carried = copy_carried(carried)
        self._draws = {name: d.new_zeros((ahead, *d.shape[1:])) for name, d in draws.items()}
        first = next(iter(draws.values()))
        self._counter = torch.zeros(1, dtype=torch.int64, device=first.device)
        self._losses = torch.zeros((ahead, first.shape[1]), dtype=draws["progress"].dtype, device=first.device)
        self._load(carried, draws)
        self._graph = self._record()

    def run(self, carried: Carried, draws: StepData) -> tuple[Carried, Tensor]:
        """Take all steps that the data hold; the loss is (step, trial)."""
        steps = self._load(carried, draws)
        for _ in range(steps):
            self._graph.replay()
        return copy_carried(self._carried), self._losses[:steps].clone()

    def _load(self, carried: Carried, draws: StepData) -> int:
        for kind, tensors in carried.items():
            for name, t in tensors.items():
                self._carried[kind][name].copy_(t)
        for name, d in draws.items():
            self._draws[name][: len(d)].copy_(d)
        self._counter.zero_()
        return len(next(iter(draws.values())))

    def _take_step(self) -> None:
        """Take one step: new values of weights, memory, slots, loss and counter go to where the old were."""
        now = {name: d.index_select(0, self._counter).squeeze(0) for name, d in self._draws.items()}
        loss = self._step(self._carried, now)
        self._losses.index_copy_(0, self._counter, loss.detach().to(self._losses.dtype).unsqueeze(0))
        self._counter.add_(1).remainder_(len(self._losses))

    def _record(self) -> Any:
        aside = _get_stream(self._counter.device)
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._take_step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        gc.collect()  # now and not inside: freeing what another graph held would spoil a recording
        with pause_garbage_collection(), _restore_stream(), torch.cuda.graph(graph, stream=aside):
            self._take_step()
        return graph


def capture_step(step: DrawnStep, carried: Carried, draws: StepData, ahead: int) -> CapturedStep:
    """Record a step for at most `ahead` steps at once; raise a CaptureError where that fails."""
    before = sys.exc_info()[1]
    try:
        return CapturedStep(step, carried, draws, ahead)
    except RuntimeError as error:
        cause = _describe_cause(error, before)
    raise CaptureError(cause)


def _describe_cause(error: BaseException, before: BaseException | None) -> str:
    """Return the first line of the first error in the chain, but not `before`, which was being handled already.

    Frames of the errors are cleared: one of torch's may hold a guard under which every gradient is zero, and it would
    hold it for as long as somebody keeps the error.
    """
    traceback.clear_frames(error.__traceback__)
    while error.__context__ is not None and error.__context__ is not before and not error.__suppress_context__:
        error = error.__context__
        traceback.clear_frames(error.__traceback__)
    return state_reason(error)


def copy_carried(carried: Carried) -> Carried:
    return {kind: {name: t.clone() for name, t in tensors.items()} for kind, tensors in carried.items()}


@cache
def _get_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which all graphs are warmed up and recorded: libraries keep a workspace for every stream
    that they have seen, and it must not be part of a graph's own memory."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def _restore_stream() -> Iterator[None]:
    """Make the current stream current again: where a recording fails, torch does not."""
    before = torch.cuda.current_stream()
    try:
        yield
    finally:
        torch.cuda.set_stream(before)
