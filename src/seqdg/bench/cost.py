"""Estimate how long groups will take, from records of the same kind or from a few steps taken now."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from seqdg.bench.executors.process import prepare_process
from seqdg.bench.executors.session import Session
from seqdg.bench.learner import StackLearner, build_stack, find_learner_of
from seqdg.bench.trial import Group
from seqdg.results import Store
from seqdg.training import Stack, name_device

_Kind = tuple[str, int, str]  # algorithm, how many domains are held out, precision
LONG = 10.0  # seconds: a step that takes as long is timed once
ENOUGH = 0.2  # seconds: where steps took as long together, no more are timed
MOST_TIMED = 10  # steps
SAMPLE = 32  # trials of a stack, enough to keep a GPU at work


def estimate_costs(
    groups: Sequence[Group],
    session: Session,
    store: Store,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, float]:
    """Estimate the seconds of each group on one worker, as far as something is known of it.

    progress: hears how many kinds of group were timed, and of how many.
    """
    device = torch.device(session.device)
    here = device.type == "cpu" or torch.cuda.is_available()  # the driver of a cluster may be without
    per_step = store.pace(name_device(device))  # of one training; stages beyond the protocol's steps count in
    kinds = {_name_kind(group): group for group in groups}
    unknown = {kind: group for kind, group in kinds.items() if here and kind not in per_step}
    for done, (kind, group) in enumerate(unknown.items()):
        progress(done, len(unknown))
        per_step[kind] = _time_step(group, session)[1]
    seconds = {
        g.key: per_step[_name_kind(g)] * sum(trials[0].protocol.steps for trials in g.trainings)
        for g in groups
        if per_step.get(_name_kind(g))
    }
    if device.type == "cuda" and here:
        torch.cuda.empty_cache()  # the workers may be other processes
    return seconds


def time_groups(groups: Sequence[Group], session: Session) -> dict[str, float]:
    """Estimate the seconds of each group on one worker from a few steps taken now; what trains no net is left out.

    To scale many columns takes a CPU seconds, which count in.
    """
    known: dict[_Kind, tuple[float, float]] = {}
    for group in groups:
        kind = _name_kind(group)
        if kind not in known:
            known[kind] = _time_step(group, session)
    seconds = {}
    for group in groups:
        before, per_step = known[_name_kind(group)]
        if per_step:
            steps = sum(trials[0].protocol.steps for trials in group.trainings)
            seconds[group.key] = (before if session.device == "cpu" else 0.0) + per_step * steps
    return seconds


def sort_longest_first(groups: Iterable[Group], costs: Mapping[str, float]) -> tuple[Group, ...]:
    """Sort groups so that workers end at about the same time; those of unknown length go first."""
    return tuple(sorted(groups, key=lambda group: -costs.get(group.key, float("inf"))))


class Schedule(Collection[Group]):
    """Groups in the order in which they are best begun, decided when the next one is asked for.

    The longest go first, so that workers end at about the same time. Of a kind whose length is unknown, one goes before
    all others and, when it has ended, tells how long they take.
    """

    def __init__(self, groups: Iterable[Group], costs: Mapping[str, float]) -> None:
        self._costs = costs
        self._pace: dict[_Kind, float] = {}  # seconds of one training, of what has ended
        self._begun: set[_Kind] = set()
        self._waiting: dict[_Kind, deque[Group]] = {}
        for group in sort_longest_first(groups, costs):
            self._waiting.setdefault(_name_kind(group), deque()).append(group)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __contains__(self, group: object) -> bool:
        return any(group in groups for groups in self._waiting.values())

    def __iter__(self) -> Iterator[Group]:
        """Take one group after the other: none is given twice."""
        while self._waiting:
            kind = max(self._waiting, key=self._rank)
            group = self._waiting[kind].popleft()
            if not self._waiting[kind]:
                del self._waiting[kind]
            self._begun.add(kind)
            yield group

    def learn(self, group: Group, seconds: float) -> None:
        """Learn how many seconds each training of a group took."""
        self._pace[_name_kind(group)] = seconds

    def _rank(self, kind: _Kind) -> float:
        """Return the seconds of the next group of a kind; where they are unknown, one of them goes first and the others
        last."""
        group = self._waiting[kind][0]
        if group.key in self._costs:
            return self._costs[group.key]
        if kind in self._pace:
            return self._pace[kind] * len(group.trainings)
        return 0.0 if kind in self._begun else float("inf")


def estimate_makespan(costs: Iterable[float], slots: int) -> float:
    """Estimate the seconds until the last worker is done, when each takes the next group as soon as it is free."""
    free = [0.0] * max(1, slots)
    for cost in costs:
        heapq.heappush(free, heapq.heappop(free) + cost)
    return max(free)


def _name_kind(group: Group) -> _Kind:
    first = group.trials[0]
    return first.short_name, len(first.held_out), first.protocol.precision


def _time_step(group: Group, session: Session) -> tuple[float, float]:
    """Return the seconds before the first step, and those per step of the protocol and training, all stages together;
    0 where no stack can be tried."""
    if not isinstance(find_learner_of(group.trials[0]), StackLearner):
        return 0.0, 0.0
    prepare_process()
    began = time.perf_counter()
    try:
        sample = Group(tuple(trial for trials in group.trainings[:SAMPLE] for trial in trials))
        stack = build_stack(sample, session.task, torch.device(session.device))
        before = time.perf_counter() - began
        stack.captures &= stack.alone  # recording a graph takes longer than it tells of a stack
        begins = [0, *stack.bounds[:-1]]
        seconds = [
            (end - begin) * _time_stage(stack, k, begin, end, session.device == "cpu")
            for k, (begin, end) in enumerate(zip(begins, stack.bounds, strict=True))
        ]
    except Exception:  # It happens again, and is recorded, when the group runs.
        return 0.0, 0.0
    return before, sum(seconds) / stack.protocol.steps / len(group.trainings[:SAMPLE])


def _time_stage(stack: Stack, stage: int, begin: int, end: int, on_cpu: bool) -> float:
    """Return the seconds of the fastest of a few steps of a stage after the first, which prepares what others use.

    Of a machine that others use too, the fastest says most of what a step needs. Steps that are short are timed more
    often: all of two may have had to wait.
    """
    state, fastest, spent = replace(stack.start(), step=begin, stage=stage - 1), 0.0, 0.0
    for i in range(min(end - begin, MOST_TIMED)):
        began = time.perf_counter()
        state = stack.advance(state, begin + i + 1)
        float(state.losses[-1].sum())  # waits for the device
        taken = time.perf_counter() - began
        fastest = min(fastest, taken) if i > 1 else taken
        spent += taken if i else 0.0
        is_long = taken > LONG and (i or on_cpu)  # a GPU's first step compiles and records
        if is_long or (i > 1 and spent > ENOUGH):
            break
    return fastest
