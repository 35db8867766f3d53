"""The trials that an analysis trains and looks into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqdg.algorithms import _branches as branches
from seqdg.base.episode import Params
from seqdg.base.errors import UsageError
from seqdg.bench.benchmark import Choice
from seqdg.bench.executors.context import Context, Executor
from seqdg.bench.executors.local import InProcess
from seqdg.bench.plan import make_plan
from seqdg.bench.trial import Group, Trial
from seqdg.core import Algorithm
from seqdg.data.domain import Dataset
from seqdg.training.place import stack_of
from seqdg.training.protocol import sources
from seqdg.training.stack import Stack, State

Tick = Callable[[int], None]
Numbers = dict[str, Any]  # what JSON can hold
Found = TypeVar("Found")


def unheard(steps: int) -> None:
    """A tick that nobody listens to."""


@dataclass(frozen=True)
class Study:
    """One held-out domain, some seeds, and each algorithm with the benchmark's settings for it and the user's."""

    context: Context
    algorithms: Sequence[str]
    held_out: str
    trials: int = 1
    seed: int = 0
    steps: int | None = None
    settings: Sequence[str] = ()
    points: int = 20  # how often a curve is looked at
    domain: str | None = None  # of interest, where an analysis has one
    everywhere: bool = False  # hold out every domain in turn, where an analysis can
    executor: Executor = field(default=InProcess())  # of whole trials, where an analysis runs such
    tick: Tick = field(default=unheard)

    @property
    def dataset(self) -> Dataset:
        return self.context.dataset()

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return sources(self.dataset, (self.held_out,))

    @cached_property
    def plan(self) -> dict[str, tuple[Trial, ...]]:
        """By name of the algorithm; checked as for a run."""
        choice = Choice(self.algorithms, [self.held_out], self.trials, self.steps, self.seed, self.settings)
        found: dict[str, tuple[Trial, ...]] = {}
        for trial in make_plan(self.context, choice).trials:
            short = str(trial.description()["algorithm"])
            found[short] = (*found.get(short, ()), trial)
        return found

    @property
    def names(self) -> list[str]:
        return list(self.plan)

    def stack(self, name: str) -> Stack:
        """All trials of an algorithm, at their start."""
        return stack_of(Group(self.plan[name]), self.context.place())

    def of(self, algorithms: Sequence[str]) -> Study:
        return replace(self, algorithms=algorithms)

    def described(self) -> Numbers:
        """What the numbers are of."""
        return {
            "benchmark": self.context.benchmark.name,
            "data": self.dataset.fingerprint,
            "held_out": "each domain in turn" if self.everywhere else self.held_out,
            "algorithms": self.names,
            "settings": {name: dict(trials[0].settings) for name, trials in self.plan.items()},
            "steps": {name: trials[0].protocol.steps for name, trials in self.plan.items()},
            "seeds": [self.seed + i for i in range(self.trials)],
        }


def looks(steps: int, points: int) -> list[int]:
    """From 0 to the last step, at most `points` + 1 of them."""
    count = min(points, steps)
    return [round(steps * i / count) for i in range(count + 1)]


class Refused(Exception):
    """An algorithm has nothing of the kind to look at: a sentence that says why."""


class Diverged(Refused):
    """Training left the finite numbers, so there is nothing to look at."""


def of_each(study: Study, look: Callable[[str, Stack], Found]) -> tuple[dict[str, Found], dict[str, str]]:
    """What `look` finds, by the names of the algorithms, and why it found nothing of the others."""
    found, refused = {}, {}
    for name in study.names:
        try:
            found[name] = look(name, study.stack(name))
        except Refused as reason:
            refused[name] = str(reason)
    return found, refused


def walk(stack: Stack, name: str, points: int, tick: Tick = unheard) -> Iterator[State]:
    """The state at the start and at even distances up to the end; raises Diverged where any trial has."""
    state = stack.start()
    for step in looks(stack.protocol.steps, points):
        state = stack.advance(state, step, tick)
        state.losses = []
        finite = torch.stack([w.isfinite().flatten(1).all(1) for w in state.params.values()]).all(0)
        if lost := int((~finite).sum()):
            trials = "its one trial" if len(finite) == 1 else f"{lost} of its {len(finite)} trials"
            raise Diverged(f"{name} is not shown: {trials} diverged by step {step}.")
        yield state


def deployed(stack: Stack, state: State) -> Params:
    """(trial, ...) what serves an unseen domain."""
    return stack.deploy(state)


def in_training(stack: Stack, state: State) -> Params:
    """(trial, ...) the deployed weights of one net, to be trained on: without statistics of BatchNorm."""
    served = stack.deploy(state)
    return {name: served[name] for name in stack.net.names}


def is_one_net(stack: Stack, weights: Params) -> bool:
    """Whether what is deployed are the weights of a single net."""
    return all(name in weights for name in stack.net.names)


def embed(stack: Stack, weights: Params, rows: Tensor) -> Tensor:
    """(trial, row, feature) of deployed weights: what enters the head; of an ensemble, of all its nets side by side."""

    def one(own: Params, x: Tensor) -> Tensor:
        if is_one_net(stack, own):
            return stack.net.features(own, x)
        each = torch.func.vmap(lambda w: stack.net.features(w, x))(branches.own(own))
        return each.transpose(0, 1).flatten(1)

    found = []
    with torch.no_grad():
        for part in torch.split(rows.to(stack.inputs.device), 256, dim=1):
            x, _ = stack.inputs.serve(part)
            found.append(stack.over_trials(one)(weights, x))
    return torch.cat(found, 1)


def why_no_features(stack: Stack, name: str) -> str | None:
    """A sentence where there are no features to look at."""
    weights = stack.deploy(stack.start())
    ensemble = all(n in branches.own(weights) for n in stack.net.names)
    if not stack.net.has_features:
        return f"{name}: this net has no layer below its head, so it has no features to look at."
    if not is_one_net(stack, weights) and not ensemble:
        return f"{name} deploys neither one net nor an ensemble of nets, so it has no features to look at."
    return None


def algorithm_of(stack: Stack, given: Params) -> Algorithm:
    """The algorithm of one trial, with its numbers."""
    from seqdg.core.settings import with_numbers

    return with_numbers(stack.algorithm, given)


def mean_and_spread(values: Tensor) -> tuple[list[float], list[float] | None]:
    """Over the first axis, trials: mean, and standard error where there are several."""
    values = values.double().cpu()
    mean = values.mean(0)
    if len(values) < 2:
        return mean.tolist(), None
    return mean.tolist(), (values.std(0) / len(values) ** 0.5).tolist()


def need(condition: bool, sentence: str) -> None:
    if not condition:
        raise UsageError(sentence)
