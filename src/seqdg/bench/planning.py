"""Plan trials from a task and a choice, pack them into groups that train together, and estimate how long each takes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from seqdg.base import UsageError, unknown
from seqdg.bench.learners.contract import Candidate
from seqdg.bench.learners.stack_learner import find_learner_of
from seqdg.bench.task import Group, Task, Trial, group_trials
from seqdg.data import Dataset
from seqdg.nets import Net, is_from_package, is_own_net
from seqdg.results import Store
from seqdg.training import list_sources, split_rows

COMPILING = ("auto", "on", "off")
MOST = 256  # trainings in a stack on a GPU
WORTH_COMPILING = 5_000_000_000_000  # steps of weights
LONE_STEPS = 20_000  # of a network of another package that trains alone
Kind = tuple[str, int, str]  # algorithm, how many domains are held out, precision


@dataclass(frozen=True)
class Plan:
    """All trials that are asked for, in groups, and the groups that are missing."""

    trials: tuple[Trial, ...]
    groups: tuple[Group, ...]
    missing: tuple[Group, ...]
    parameters: int  # of the net; 0: none is trained

    @property
    def work(self) -> int:
        """The steps of what is missing."""
        return sum(count_work(g) for g in self.missing)


def plan(
    task: Task,
    candidates: Sequence[Candidate],
    held_out: Sequence[tuple[str, ...]],
    seeds: Sequence[int],
    device: str = "cpu",
    finished: Iterable[str] = (),
) -> Plan:
    """Plan every candidate with every choice of held-out domains and every seed. finished: keys of trials."""
    dataset, first = task.dataset(), candidates[0]
    example = task.make_trial(first.name, dict(first.settings), first.protocol, held_out[0], seeds[0])
    for names in held_out:
        if not list_sources(dataset, names, first.protocol):
            raise UsageError(f"Holding out {', '.join(names)} leaves no domain of {dataset.name} to learn from.")
    split_rows(dataset, first.protocol, held_out[0], seeds[0])  # every domain can be split
    built = task.find_net(example) if task.net.reads_file or is_own_net(task.net.name) else None
    weights, code = (None, "") if built is None else (built.weights_sha256, built.code)
    trials = [
        make_trial(task, c, names, seed, weights, code) for c in candidates for names in held_out for seed in seeds
    ]
    return plan_further(task, trials, device, finished)


def make_trial(
    task: Task, candidate: Candidate, held_out: tuple[str, ...], seed: int, weights: str | None = None, code: str = ""
) -> Trial:
    """Make the trial of a candidate, a choice of held-out domains and a seed."""
    c = candidate
    trial = task.make_trial(c.name, dict(c.settings), c.protocol, held_out, seed, weights=weights, code=code, net=c.net)
    return trial if c.dropout is None else replace(trial, net=replace(trial.net, dropout=c.dropout))


def plan_further(task: Task, trials: Sequence[Trial], device: str = "cpu", finished: Iterable[str] = ()) -> Plan:
    """Plan trials of this task, with its own net, if any of them trains it."""
    trains_net = any(find_learner_of(trial).trains_net for trial in trials)
    module = task.find_net(replace(trials[0], net=task.net)).module if trains_net else None
    net = None if module is None else Net(module, task.batchnorm)
    return plan_trials(task, trials, net, device, finished)


def plan_trials(
    task: Task,
    trials: Sequence[Trial],
    net: Net | None,
    device: str = "cpu",
    finished: Iterable[str] = (),
    most: int = MOST,
) -> Plan:
    """Check trials and pack them into groups of at most so many trainings; a trial that is asked for twice is run
    once.

    net: None where no trial trains one.
    """
    unique = tuple({trial.key: trial for trial in trials}.values())
    check_trials(task, unique, net, device)
    parameters = sum(p.numel() for p in net.params().values()) if net else 0
    wide = any(trial.protocol.precision == "float64" for trial in unique)
    capacity = count_together(2 * parameters if wide else parameters, task.dataset(), device, most)
    groups = group_trials(unique, capacity, lambda trial: find_learner_of(trial).share(trial, task))
    done = set(finished)
    left = [replace(g, trials=tuple(t for t in g.trials if t.key not in done)) for g in groups]
    return Plan(unique, groups, tuple(g for g in left if g.trials), parameters)


def choose_compiled(plan: Plan, device: str, compiling: str = "auto") -> Plan:
    """Choose the groups whose step is compiled: `on`, `off`, or `auto` for those that take long enough.

    Compiling takes some ten seconds and saves 2 to 8 ps of each step of each weight on a large GPU. For a network of
    another package that trains alone it takes most of a minute, and saves about 6 ms of a step; ours have kernels of
    their own. The whole group decides, not what is left of it, so that one that is resumed stays as it was.
    """
    if compiling not in COMPILING:
        raise unknown("choice for compiling", compiling, COMPILING)

    def choose(whole: Group) -> bool:
        if compiling != "auto":
            return compiling == "on"
        if torch.device(device).type != "cuda":
            return False
        first, count = whole.trials[0], len(whole.trainings)
        if count == 1:
            return is_from_package(first.net.name) and first.protocol.steps >= LONE_STEPS
        return plan.parameters * count * first.protocol.steps >= WORTH_COMPILING

    compiled = {trial.key for whole in plan.groups if choose(whole) for trial in whole.trials}
    groups, missing = (
        tuple(replace(group, compiles=group.trials[0].key in compiled) for group in groups)
        for groups in (plan.groups, plan.missing)
    )
    return replace(plan, groups=groups, missing=missing)


def check_trials(task: Task, trials: Sequence[Trial], net: Net | None, device: str = "cpu") -> None:
    """Raise a UsageError where an algorithm cannot train this net on so many domains, or not on this kind of device."""
    cases = {(trial.algorithm, trial.settings, len(trial.held_out)): trial for trial in reversed(trials)}
    for trial in reversed(cases.values()):
        learner = find_learner_of(trial)
        learner.check_device(trial, device)
        learner.check(trial, task, net)


def count_together(parameters: int, dataset: Dataset, device: str, most: int = MOST) -> int:
    """Say how many trials a stack holds: images train alone, small networks together."""
    if dataset.is_image:
        return 1
    if device == "cpu":  # enough for the gain of stacking, and so few that several workers have some each
        return max(1, min(16, 1_000_000 // max(1, parameters)))
    return max(1, min(most, 200_000_000 // max(1, parameters)))


def count_work(group: Group) -> int:
    """Count the steps of all trainings of a group."""
    learner = find_learner_of(group.trials[0])
    return sum(learner.count_steps(trials[0]) for trials in group.trainings)


def name_kind(group: Group) -> Kind:
    """Name the kind of a group: those of one kind take about as long per training and step."""
    first = group.trials[0]
    return first.short_name, len(first.held_out), first.protocol.precision


def time_groups(
    groups: Sequence[Group],
    task: Task,
    device: str,
    pace: Mapping[Kind, float] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """Estimate the seconds of each group on one worker: by the pace of earlier trainings of its kind, or from a few
    steps taken now. Groups of which nothing is known are left out.

    pace: seconds per step of one training, by kind; stages beyond the protocol's steps count in.
    on_progress: called with how many kinds of group were timed, and how many there are.
    """
    here = torch.device(device)
    seconds = {kind: (0.0, per_step) for kind, per_step in (pace or {}).items()}  # before the first step, and of each
    unknown_kinds = {name_kind(group): group for group in groups if name_kind(group) not in seconds}
    if here.type == "cuda" and not torch.cuda.is_available():  # the driver of a cluster may have no GPU
        unknown_kinds = {}
    for done, (kind, group) in enumerate(unknown_kinds.items()):
        on_progress(done, len(unknown_kinds))
        before, per_step = find_learner_of(group.trials[0]).time_step(group, task, here)
        seconds[kind] = (before if here.type == "cpu" else 0.0), per_step  # to scale many columns takes a CPU seconds
    if here.type == "cuda" and unknown_kinds:
        torch.cuda.empty_cache()  # the workers may be other processes
    known = [(group, *seconds[name_kind(group)]) for group in groups if name_kind(group) in seconds]
    return {g.key: before + per_step * _count_steps(g) for g, before, per_step in known if per_step}


def _count_steps(group: Group) -> int:
    """Count the steps of the protocol over all trainings of a group."""
    return sum(trials[0].protocol.steps for trials in group.trainings)


# Shards ---------------------------------------------------------------------------------------------------------------

AUTO = "auto"
SHARD = "shard"  # in the store of a shard: its `Part`
# What job arrays call the number of a task, and from which number they count.
ARRAYS = {
    "SLURM_ARRAY_TASK_ID": 1,
    "PBS_ARRAY_INDEX": 1,
    "SGE_TASK_ID": 1,
    "LSB_JOBINDEX": 1,
    "JOB_COMPLETION_INDEX": 0,  # an indexed job of Kubernetes
}


@dataclass(frozen=True)
class Shard:
    """Shard `index` of `count`, from 1 on."""

    index: int
    count: int

    @property
    def folder(self) -> str:
        return f"shard-{self.index}-of-{self.count}"


def parse_shard(text: str, environment: Mapping[str, str] = os.environ) -> Shard:
    """Parse `3/8`, or `auto/8`, whose index is the number that a job array gives its task."""
    found = re.fullmatch(rf"(\d+|{AUTO})/(\d+)", text.strip())
    if not found:
        raise UsageError(
            f"--shard is '{text}'. Give its number and how many there are, from 1/8 to 8/8, or auto/8 in a job array."
        )
    count = int(found[2])
    index = _find_task(environment) if found[1] == AUTO else int(found[1])
    if not 1 <= index <= count:
        of = f", and this task of the job array is number {index}" if found[1] == AUTO else ""
        raise UsageError(f"--shard is '{text}'{of}. The shards of {count} are 1 to {count}.")
    return Shard(index, count)


def _find_task(environment: Mapping[str, str]) -> int:
    """Find the number of this task of a job array, from 1 on."""
    for name, first in ARRAYS.items():
        if environment.get(name, "").isdigit():
            return int(environment[name]) + 1 - first
    raise UsageError(f"--shard auto/N is for job arrays, and none of {', '.join(ARRAYS)} is set. Give a number: 1/N.")


def take_shard(plan: Plan, shard: Shard) -> Plan:
    """Take the groups i, i + n, i + 2 n, ... of a plan, for shard i of n. A group is what trains together, so a trial
    has the same numbers in a shard as in one run of the whole plan."""
    groups = plan.groups[shard.index - 1 :: shard.count]
    keys = {trial.key for group in groups for trial in group.trials}
    missing = tuple(group for group in plan.missing if group.trials[0].key in keys)
    return replace(plan, trials=tuple(t for t in plan.trials if t.key in keys), groups=groups, missing=missing)


@dataclass(frozen=True)
class Part:
    """What the store of a shard knows of the whole plan.

    plan: a hash of all trials and their groups.   positions: of the shard's own trials in the plan, by key.
    """

    index: int
    count: int
    plan: str
    trials: int
    positions: Mapping[str, int]


def note_part(store: Store, plan: Plan, shard: Shard) -> None:
    """Note in the store of a shard which part of which plan it is."""
    group_keys = {trial.key: group.key for group in plan.groups for trial in group.trials}
    text = json.dumps([[trial.key, group_keys[trial.key]] for trial in plan.trials])
    own = {trial.key for trial in take_shard(plan, shard).trials}
    positions = {trial.key: i for i, trial in enumerate(plan.trials) if trial.key in own}
    digest = hashlib.sha256(text.encode()).hexdigest()
    store.set_meta(SHARD, json.dumps(asdict(Part(shard.index, shard.count, digest, len(plan.trials), positions))))
