"""What a training step costs: time, gradient evaluations, peak memory, and all of it as a multiple of AGG's."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.func import grad
from torch.utils.flop_counter import FlopCounterMode

from seqdg import report
from seqdg.base import Minibatch, private
from seqdg.paper.study import Numbers, Study
from seqdg.training import Stack, State

ALGORITHMS = (
    "agg", "dann", "crossgrad", "metareg", "fo-mldg", "mldg", "ffo-s-mldg", "fo-s-mldg", "s-mldg", "undo-bias",
    "s-undo-bias", "ensemble",
)  # fmt: skip
ROUNDS, STEPS, WARM = 5, 10, 3


@dataclass(frozen=True)
class Cost:
    """Of one training step of a stack."""

    seconds: float  # median over the rounds
    gradients: float  # arithmetic in units of one domain's minibatch gradient, per trial
    memory: int  # bytes at the peak, beyond the data set


def compute(study: Study) -> Numbers:
    """Measure all algorithms in turn, several rounds, so that whatever else the machine does falls on all alike."""
    stacks = {name: study.build_stack(name) for name in study.names}
    costs = measure(stacks, on_progress=study.on_progress)
    return {
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "sources": len(study.sources),
        "device": str(next(iter(stacks.values())).inputs.device.type),
        "stacked": study.trials,
        "refused": {},
    }


def measure(
    stacks: Mapping[str, Stack], rounds: int = ROUNDS, steps: int = STEPS, on_progress: Any = lambda steps: None
) -> dict[str, Cost]:
    """Measure a step of every stack, timed in turn; an algorithm with stages costs the sum of them by their shares, the
    mean where these sum to 1."""
    stages = {name: _find_stages(stack, steps) for name, stack in stacks.items()}
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for name, stack in stacks.items():
            for i, stage in enumerate(stages[name]):
                seconds.setdefault((name, i), []).append(_time_step(stack, stage))
                on_progress(stage.steps)
    costs = {}
    for name, stack in stacks.items():
        costs[name] = Cost(
            sum(stage.share * median(seconds[name, i]) for i, stage in enumerate(stages[name])),
            sum(stage.share * count_gradients(stack, stage.state) for stage in stages[name]),
            max(measure_peak_memory(stack, stage.state) for stage in stages[name]),
        )
    return costs


@dataclass(frozen=True)
class Stage:
    """A part of the training that has its own cost."""

    share: float
    state: State  # some steps into it
    steps: int  # that can be timed from there


def _find_stages(stack: Stack, steps: int) -> list[Stage]:
    stages, state, begin = [], stack.start(), 0
    for end in stack.bounds:
        if end > begin:
            warm = min(WARM, end - begin - 1)
            state = stack.advance(state, begin + warm)
            stages.append(Stage((end - begin) / stack.protocol.steps, state, min(steps, end - begin - warm)))
        begin = end
    return stages


def _time_step(stack: Stack, stage: Stage) -> float:
    """Return the seconds that a step takes."""
    _wait_for_device(stack)
    began = time.perf_counter()
    stack.advance(stage.state, stage.state.step + stage.steps)
    _wait_for_device(stack)
    return (time.perf_counter() - began) / stage.steps


def _wait_for_device(stack: Stack) -> None:
    if stack.inputs.device.type == "cuda":
        torch.cuda.synchronize(stack.inputs.device)


def count_gradients(stack: Stack, state: State) -> float:
    """Return the arithmetic of a step in units of one gradient of the plain loss on one minibatch, per trial."""
    plain, step = _make_stack_as_written(stack), FlopCounterMode(display=False)
    with step:
        plain.advance(state, state.step + 1)
    draws = stack.upcoming.sampler.draw(0, 1)
    x, y = stack.inputs.serve(draws.rows[0, 0, 0])
    weights = {name: w.to(stack.inputs.device) for name, w in stack.net.params().items()}
    one = FlopCounterMode(display=False)
    with one:
        grad(stack.net.loss)(weights, Minibatch(x, y, draws.key[0, 0]))
    return float(step.get_total_flops() / one.get_total_flops() / len(stack.jobs))


def _make_stack_as_written(stack: Stack) -> Stack:
    """Return the same trials, whose steps run as they are written: a CUDA graph shows no arithmetic, and the first of
    recorded steps is run twice."""
    return Stack(stack.net, stack.inputs, stack.jobs, capture=False, recorded_from=sys.maxsize)


def measure_peak_memory(stack: Stack, state: State) -> int:
    """Return the bytes that a step holds at its peak, weights and optimizer included, the data set not."""
    held = _count_bytes([*state.params.values(), *(w for slot in state.slots.values() for w in slot.values())])
    if stack.inputs.device.type == "cuda":
        plain = _make_stack_as_written(stack)
        torch.cuda.reset_peak_memory_stats(stack.inputs.device)
        before = torch.cuda.memory_allocated(stack.inputs.device)
        plain.advance(state, state.step + 1)
        return torch.cuda.max_memory_allocated(stack.inputs.device) - before + held
    living = LivingMemory()
    with living:
        stack.advance(state, state.step + 1)
    return living.peak + held


def _count_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.untyped_storage().nbytes() for t in tensors)


class LivingMemory(private.DispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors made within it, as long as they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        old = {private.identify_storage(storage) for storage in _list_storages((args, kwargs))}
        for storage in _list_storages(out):
            self._count(storage, old)
        return out

    def _count(self, storage: torch.UntypedStorage, old: set[int]) -> None:
        memory, size = private.identify_storage(storage), storage.nbytes()
        if memory in old or memory in self._seen or not size:
            return
        self._seen.add(memory)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, memory, size)

    def _free(self, memory: int, size: int) -> None:
        self._seen.discard(memory)
        self.now -= size


def _list_storages(values: Any) -> list[torch.UntypedStorage]:
    """Return the storages of all tensors among the values; tensors that stand for zeros have none."""
    tensors: list[Tensor] = []
    private.map_tensors(tensors.append, values)
    return [tensor.untyped_storage() for tensor in tensors if not private.is_zero_tensor(tensor)]


BASE = "agg"


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    """Show the cost table, with the paper's ratios beside it."""
    numbers = payload["numbers"]
    costs = numbers["costs"]
    base, looks = costs.get(BASE), report.pick_styles(looks, costs)
    parts = (("seconds", "time of a step"), ("gradients", "gradient evaluations"), ("memory", "peak memory"))
    panels = []
    for key, heading in parts:
        unit = base[key] if base else 1.0
        values = {name: c[key] / unit for name, c in costs.items()}
        rows = [report.make_row(name, value, note=f"{value:.2f}" if base else "") for name, value in values.items()]
        label = f"times {BASE}'s" if base else {"seconds": "seconds", "memory": "bytes"}.get(key, "per step")
        known = [value for value in values.values() if value]
        wide = bool(known) and max(known) / min(known) > 5
        panels.append(report.draw_rows(rows, label, looks, heading.capitalize(), log=wide))
    head = ["algorithm", "ms per step", "× agg", "gradients", "MiB at peak", "× agg", "paper: minutes", "× AGG"]
    table = report.Table("Cost of a training step", head, [_format_row(name, costs) for name in costs])
    caption = (
        "Gradient evaluations: arithmetic of a step in units of one domain's minibatch gradient. Peak memory: weights, "
        "optimizer and all that a step makes, without the data."
    )
    figure = report.Figure("step-cost", "Cost of a step", panels, caption, looks)
    text = [_describe_machine(payload), *payload["numbers"]["refused"].values(),
            "The paper's minutes are for 3,000 steps of ResNet-18 on PACS on a TITAN X (Pascal), another net, machine "
            "and implementation, with Undo-Bias on the last layer alone: set beside ours, not compared."]  # fmt: skip
    return report.Section("step-cost", "Cost of a step", text, (), [figure], [table], findings=_state_findings(costs))


def _describe_machine(payload: Mapping[str, Any]) -> str:
    numbers = payload["numbers"]
    together = f"{numbers['stacked']} trials in a stack" if numbers["stacked"] > 1 else "one trial"
    held_out = report.describe_study(payload).split(". ")[0]
    return f"{held_out}. {together.capitalize()}, {numbers['sources']} sources, {numbers['device']}."


def _format_row(name: str, costs: Mapping[str, Any]) -> tuple[str, list[str]]:
    c, base = costs[name], costs.get(BASE)
    column = report.find_column(name)
    minutes = report.load_minutes().get(column) if column else None
    return name, [
        f"{1000 * c['seconds']:.2f}",
        f"{c['seconds'] / base['seconds']:.2f}" if base else "-",
        f"{c['gradients']:.2f}",
        f"{c['memory'] / 2**20:.1f}",
        f"{c['memory'] / base['memory']:.2f}" if base else "-",
        f"{minutes:.2f}" if minutes else "-",
        f"{minutes / report.load_minutes()['AGG']:.2f}" if minutes else "-",
    ]


def _state_findings(costs: Mapping[str, Any]) -> list[str]:
    if BASE not in costs or len(costs) < 2:
        return []
    ratios = {name: c["seconds"] / costs[BASE]["seconds"] for name, c in costs.items() if name != BASE}
    low, high = min(ratios, key=lambda n: ratios[n]), max(ratios, key=lambda n: ratios[n])
    if low == high:
        return [f"A step of {low} takes {ratios[low]:.1f} times as long as one of {BASE}."]
    return [
        f"A step takes from {ratios[low]:.1f} ({low}) to {ratios[high]:.1f} ({high}) times as long as one of {BASE}."
    ]


report.register_analysis(report.AnalysisKind(
    "cost", compute, show, ALGORITHMS, trials=1, steps=100, order=70
))  # fmt: skip
