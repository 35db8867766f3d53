"""What a training step costs: time, gradient evaluations, peak memory, and all of it as a multiple of AGG's."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.func import grad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from seqdg.paper.study import Numbers, Study
from seqdg.training.stack import Stack, State

ROUNDS, STEPS, WARM = 5, 10, 3


@dataclass(frozen=True)
class Cost:
    """Of one training step of a stack."""

    seconds: float  # median over the rounds
    gradients: float  # arithmetic in units of one domain's minibatch gradient, per trial
    memory: int  # bytes at the peak, beyond the data set


def cost(study: Study) -> Numbers:
    """All algorithms in turn, several rounds, so that whatever else the machine does falls on all alike."""
    stacks = {name: study.stack(name) for name in study.names}
    found = measure(stacks, tick=study.tick)
    return {
        "costs": {
            name: {"seconds": c.seconds, "gradients": c.gradients, "memory": c.memory} for name, c in found.items()
        },
        "sources": len(study.sources),
        "device": str(next(iter(stacks.values())).inputs.device.type),
        "stacked": study.trials,
        "refused": {},
    }


def measure(
    stacks: Mapping[str, Stack], rounds: int = ROUNDS, steps: int = STEPS, tick: Any = lambda steps: None
) -> dict[str, Cost]:
    """The cost of a step of every stack, timed in turn; of an algorithm with stages, of each by its share."""
    stages = {name: _stages(stack, steps) for name, stack in stacks.items()}
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for name, stack in stacks.items():
            for i, stage in enumerate(stages[name]):
                seconds.setdefault((name, i), []).append(_timed(stack, stage))
                tick(stage.steps)
    found = {}
    for name, stack in stacks.items():
        own = stages[name]
        found[name] = Cost(
            sum(stage.share * median(seconds[name, i]) for i, stage in enumerate(own)),
            sum(stage.share * gradients(stack, stage.state) for stage in own),
            max(peak_memory(stack, stage.state) for stage in own),
        )
    return found


@dataclass(frozen=True)
class Stage:
    """A part of the training that has its own cost."""

    share: float
    state: State  # some steps into it
    steps: int  # that can be timed from there


def _stages(stack: Stack, steps: int) -> list[Stage]:
    found, state, begin = [], stack.start(), 0
    for end in stack.bounds:
        if end > begin:
            warm = min(WARM, end - begin - 1)
            state = stack.advance(state, begin + warm)
            found.append(Stage((end - begin) / stack.bounds[-1], state, min(steps, end - begin - warm)))
        begin = end
    return found


def _timed(stack: Stack, stage: Stage) -> float:
    """Seconds of a step."""
    _wait(stack)
    began = time.perf_counter()
    stack.advance(stage.state, stage.state.step + stage.steps)
    _wait(stack)
    return (time.perf_counter() - began) / stage.steps


def _wait(stack: Stack) -> None:
    if stack.inputs.device.type == "cuda":
        torch.cuda.synchronize(stack.inputs.device)


def gradients(stack: Stack, state: State) -> float:
    """Arithmetic of a step over that of one gradient of the plain loss on one domain's minibatch, per trial."""
    step = FlopCounterMode(display=False)
    with step, _uncaptured(stack):
        stack.advance(state, state.step + 1)
    draws = stack.upcoming.samplers[0].draw(0, 1)
    x, y = stack.inputs.serve(draws.rows[0, 0].to(stack.inputs.device))
    weights = {name: w.to(stack.inputs.device) for name, w in stack.net.params().items()}
    one = FlopCounterMode(display=False)
    with one:
        grad(stack.net.loss)(weights, (x, y))
    return float(step.get_total_flops() / one.get_total_flops() / len(stack.jobs))


class _uncaptured:
    """A CUDA graph shows no arithmetic: within this, steps run kernel by kernel."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def __enter__(self) -> None:
        self.was, self.stack.captures = self.stack.captures, False
        self.graphs, self.stack._graphs = self.stack._graphs, {}

    def __exit__(self, *error: object) -> None:
        self.stack.captures, self.stack._graphs = self.was, self.graphs


def peak_memory(stack: Stack, state: State) -> int:
    """Bytes that a step holds at its peak, weights and optimizer included, the data set not."""
    held = _bytes([*state.params.values(), *(w for slot in state.slots.values() for w in slot.values())])
    if stack.inputs.device.type == "cuda":
        with _uncaptured(stack):
            torch.cuda.reset_peak_memory_stats(stack.inputs.device)
            before = torch.cuda.memory_allocated(stack.inputs.device)
            stack.advance(state, state.step + 1)
            return torch.cuda.max_memory_allocated(stack.inputs.device) - before + held
    living = Living()
    with living:
        stack.advance(state, state.step + 1)
    return living.peak + held


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.untyped_storage().nbytes() for t in tensors)


class Living(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors made within it, as long as they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        old = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(out):
            self._count(storage, old)
        return out

    def _count(self, storage: torch.UntypedStorage, old: set[int]) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place in old or place in self._seen or not size:
            return
        self._seen.add(place)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, place, size)

    def _free(self, place: int, size: int) -> None:
        self._seen.discard(place)
        self.now -= size


def _storages(values: Any) -> list[torch.UntypedStorage]:
    """Of all tensors among the values; those that stand for zeros have none."""
    found: list[Tensor] = []
    tree_map_only(Tensor, found.append, values)
    return [tensor.untyped_storage() for tensor in found if not torch._is_zerotensor(tensor)]
