"""What an analysis trains, and how it looks into the training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqdg.algorithms import _branches as branches
from seqdg.base import Params, UsageError
from seqdg.bench import Benchmark, Executor, Group, InProcess, Request, Session, Trial, build_stack
from seqdg.data import Dataset
from seqdg.training import Stack, State, list_sources

OnProgress = Callable[[int], None]
Numbers = dict[str, Any]  # what JSON can hold
Result = TypeVar("Result")


def ignore_steps(steps: int) -> None:
    """Do nothing with the number of steps taken."""


@dataclass(frozen=True)
class Study:
    """One held-out domain, some seeds, and each algorithm with the benchmark's settings for it and the user's."""

    benchmark: Benchmark
    session: Session
    algorithms: Sequence[str]
    held_out: str
    trials: int = 1
    seed: int = 0
    steps: int | None = None
    settings: Sequence[str] = ()
    points: int = 20  # how often a curve is looked at
    first_steps: int | None = None  # of the first phase, where an analysis has two; None: as many as of the second
    domain: str | None = None  # of interest, where an analysis has one
    everywhere: bool = False  # hold out every domain in turn, where an analysis can
    executor: Executor = field(default=InProcess())  # of whole trials, where an analysis runs such
    on_progress: OnProgress = field(default=ignore_steps)

    def __post_init__(self) -> None:
        if self.first_steps is not None and self.first_steps < 1:
            raise UsageError(f"first_steps is {self.first_steps}, but at least 1 is needed.")

    @property
    def dataset(self) -> Dataset:
        return self.session.task.dataset()

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return list_sources(self.dataset, (self.held_out,))

    @cached_property
    def plan(self) -> dict[str, tuple[Trial, ...]]:
        """The trials by the names of their algorithms; checked as for a run."""
        request = Request(self.algorithms, [self.held_out], self.trials, self.steps, self.seed, self.settings)
        if self.dataset.is_regression:
            raise UsageError(
                f"The paper's analyses are of classes, and {self.benchmark.name} is a regression task: choose "
                "another benchmark."
            )
        plan: dict[str, tuple[Trial, ...]] = {}
        for trial in self.benchmark.plan(self.session.task, request).trials:
            if trial.protocol.members > 1:
                raise UsageError(
                    f"An analysis looks at one training, and {trial.short_name} is an ensemble of "
                    f"{trial.protocol.members}: choose 1 for it (--set {trial.short_name}.members=1)."
                )
            plan[trial.short_name] = (*plan.get(trial.short_name, ()), trial)
        return plan

    @property
    def names(self) -> list[str]:
        return list(self.plan)

    def build_stack(self, name: str) -> Stack:
        """Build the stack of all trials of an algorithm, at their start."""
        return build_stack(Group(self.plan[name]), self.session.task, torch.device(self.session.device))

    def describe(self) -> Numbers:
        """Return what the numbers are of."""
        first = {} if self.first_steps is None else {"first_steps": self.first_steps}
        return {
            **first,
            "benchmark": self.benchmark.name,
            "data": self.dataset.fingerprint,
            "held_out": "each domain in turn" if self.everywhere else self.held_out,
            "algorithms": self.names,
            "settings": {name: dict(trials[0].settings) for name, trials in self.plan.items()},
            "steps": {name: trials[0].protocol.steps for name, trials in self.plan.items()},
            "seeds": [self.seed + i for i in range(self.trials)],
        }


def choose_steps(steps: int, points: int) -> list[int]:
    """Return steps at even distances from 0 to the last, at most `points` + 1 of them."""
    count = min(points, steps)
    return [round(steps * i / count) for i in range(count + 1)]


class Refused(Exception):
    """An algorithm has nothing of this kind to analyze: a sentence that says why."""


class Diverged(Refused):
    """Training left the finite numbers, so there is nothing to analyze."""


def analyze_each(study: Study, analyze: Callable[[str, Stack], Result]) -> tuple[dict[str, Result], dict[str, str]]:
    """Return the results of `analyze` by the names of the algorithms, and why it refused the others."""
    results, refused = {}, {}
    for name in study.names:
        try:
            results[name] = analyze(name, study.build_stack(name))
        except Refused as reason:
            refused[name] = str(reason)
    return results, refused


def walk(stack: Stack, name: str, points: int, on_progress: OnProgress = ignore_steps) -> Iterator[State]:
    """Yield the state at the start and at even distances up to the end; raise Diverged where any trial has."""
    state = stack.start()
    for step in choose_steps(stack.bounds[-1], points):
        state = stack.advance(state, step, on_progress)
        state.losses = []
        finite = torch.stack([w.isfinite().flatten(1).all(1) for w in state.params.values()]).all(0)
        if lost := int((~finite).sum()):
            trials = "its one trial" if len(finite) == 1 else f"{lost} of its {len(finite)} trials"
            raise Diverged(f"{name} is not shown: {trials} diverged by step {step}.")
        yield state


def trace(
    study: Study, name: str, stack: Stack, measure: Callable[[State], Result]
) -> tuple[list[int], list[Result], State]:
    """Train a stack; return the steps at which it is looked at, what was measured there, and the last state."""
    steps, measured = [], []
    for state in walk(stack, name, study.points, study.on_progress):
        steps.append(state.step)
        measured.append(measure(state))
    return steps, measured, state


def make_curve(at: Sequence[float], values: Sequence[Tensor]) -> Numbers:
    """Return a curve of values (trial,): their mean and standard error at each of the positions."""
    mean, spread = mean_and_spread(torch.stack(list(values), 1))
    return {"at": list(at), "mean": mean, "spread": spread}


def make_curves(at: Sequence[float], measured: Sequence[Sequence[Tensor]], names: Sequence[str]) -> Numbers:
    """Return what was measured (trial,) at each of the positions: mean and standard error by name."""
    curves: Numbers = {"at": list(at)}
    for name, values in zip(names, zip(*measured, strict=True), strict=True):
        curves[name], curves[f"{name}_spread"] = mean_and_spread(torch.stack(values, 1))
    return curves


def deploy_trainable(stack: Stack, state: State) -> Params:
    """Return (trial, ...) the deployed weights of one net that a loss has gradients of: no statistics of BatchNorm."""
    deployed = stack.deploy(state)
    return {name: deployed[name] for name in stack.net.names}


def is_one_net(stack: Stack, weights: Params) -> bool:
    """Whether the deployed weights are those of a single net."""
    return all(name in weights for name in stack.net.names)


def embed(stack: Stack, weights: Params, rows: Tensor, together: int | None = None) -> Tensor:
    """Return (trial, row, feature) what enters the head of the deployed net; for an ensemble, of all its networks.

    together: how many rows enter at once, which counts where these are normalized by their own statistics.
    """

    def embed_trial(weights: Params, x: Tensor) -> Tensor:
        if is_one_net(stack, weights):
            return stack.net.features(weights, x)
        each = torch.func.vmap(lambda w: stack.net.features(w, x))(branches.select_copies(weights))
        return each.transpose(0, 1).flatten(1)

    features = []
    with torch.no_grad():
        for part in torch.split(rows.to(stack.inputs.device), together or 256, dim=1):
            x, _ = stack.inputs.serve(part)
            features.append(stack.map_over_trials(embed_trial)(weights, x))
    return torch.cat(features, 1)


def explain_missing_features(stack: Stack, name: str) -> str | None:
    """Say why there are no features to look at; None where there are."""
    weights = stack.deploy(stack.start())
    ensemble = all(n in branches.select_copies(weights) for n in stack.net.names)
    if not stack.net.has_features:
        return f"{name}: this net has no layer below its head, so it has no features to look at."
    if not is_one_net(stack, weights) and not ensemble:
        return f"{name} deploys neither one net nor an ensemble of networks, so it has no features to look at."
    return None


def mean_and_spread(values: Tensor) -> tuple[list[float], list[float] | None]:
    """Return the mean over the first axis, trials, and the standard error where there are several."""
    values = values.double().cpu()
    mean = values.mean(0)
    if len(values) < 2:
        return mean.tolist(), None
    return mean.tolist(), (values.std(0) / len(values) ** 0.5).tolist()


def require(condition: bool, sentence: str) -> None:
    """Raise a UsageError with the sentence unless the condition holds."""
    if not condition:
        raise UsageError(sentence)
