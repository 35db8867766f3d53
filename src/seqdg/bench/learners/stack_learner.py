"""The learner of our algorithms: all trials of a group train as one stack; and which learner trains what."""

from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from seqdg.base import GROUP, TARGET, VIEW, Params, UsageError, find_family, import_plugin, prepare_process
from seqdg.bench.learners.contract import (
    Candidate,
    Draft,
    Learner,
    OnStep,
    apply_draft,
    find_registered,
    list_built_in,
    list_registered,
    make_candidate,
)
from seqdg.bench.search import Proposal, draw_from_domainbed, draw_proposals
from seqdg.bench.task import HARMONIZATIONS, Group, Session, Task, Trial
from seqdg.core import (
    Algorithm,
    Averaging,
    SharedTraining,
    build,
    count_needed_evaluations,
    describe_shape,
    find_wrapper,
    is_registered,
    list_inner_names,
    list_layers,
    list_origins,
    refuse_name,
    split_average,
    split_chain,
)
from seqdg.nets import Net
from seqdg.results import Record
from seqdg.training import (
    Job,
    OnEvaluation,
    Split,
    Stack,
    View,
    choose_optimizer,
    count_steps,
    end_stages,
    list_sources,
    make_generator,
    run_stack,
    set_precision,
    split_rows,
)

LONG = 10.0  # seconds: a step that takes as long is timed once
ENOUGH = 0.2  # seconds: where steps took as long together, no more are timed
MOST_TIMED = 10  # steps
SAMPLE = 32  # trainings of a stack, enough to keep a GPU at work
MOST_FIRST = 0.1  # of an average of weights may be those before training, before a note says so


class StackLearner(Learner):
    """Our algorithms: all trials of a group train as one stack."""

    def rank_simplicity(self, name: str) -> tuple[int, int]:
        """AGG is the simplest net, and an average of its weights the next."""
        if not _is_aggregation(name):
            return super().rank_simplicity(name)
        return 2 if "+" not in name else 3, 0

    def rank_cost(self, name: str) -> int:
        return 3 if _is_aggregation(name) else self.cost

    def list_classes(self, name: str) -> tuple[type, ...]:
        return tuple(type(layer) for layer in list_layers(build(name)))

    def build_settings(self, name: str, **settings: Any) -> Algorithm:
        """Build what a user's data are fitted with: trainings may be short, so a moving average's decay grows."""
        usual = {"grows": True} if "ema" in split_chain(name)[1:] else {}
        return build(name, **{**usual, **settings})

    def propose(self, draft: Draft) -> list[Candidate]:
        algorithm = build(draft.name)
        first = Proposal(apply_draft(draft, algorithm), choose_rate(draft, algorithm))
        if draft.space == "domainbed":
            optimizer = choose_optimizer(algorithm, draft.protocol)
            drawn = draw_from_domainbed(
                draft.name, first, draft.protocol, optimizer, draft.count, draft.settings, draft.shape
            )
            candidates = [(make_candidate(draft.name, d.algorithm, d.protocol), d.dropout) for d in drawn]
            return [replace(candidate, dropout=dropout) for candidate, dropout in candidates]
        tried = draw_proposals(first, draft.count, fixed=draft.settings, multiples=draft.multiples)
        return [make_candidate(draft.name, candidate, replace(draft.protocol, lr=lr)) for candidate, lr in tried]

    def check(self, trial: Trial, task: Task, net: Net | None) -> None:
        assert net is not None  # as it trains nets
        algorithm, wanted = trial.build_algorithm(), trial.protocol.domains_per_step
        sources = len(trial.protocol.train_domains) or trial.sources
        check_domains_per_step(wanted, sources, f"A step of {trial.short_name}", task.name)
        if 0 < wanted < sources and algorithm.needs_all:
            raise UsageError(
                f"{trial.short_name} needs rows of every source in every step, and domains_per_step is {wanted}: "
                f"choose 0 for it (--set {trial.short_name}.domains_per_step=0)."
            )
        check_weights(algorithm, trial.short_name, task)
        check_uses(algorithm, trial.short_name, task, trial.held_out)
        if trial.protocol.balance == "class" and task.dataset().is_regression:
            raise UsageError(f"balance is 'class', and {task.name} is a regression task without classes: leave it out.")
        path = len(list_sources(task.dataset(), trial.held_out, trial.protocol))
        loss = task.make_number_loss(trial)
        algorithm.check(net.with_criterion(loss) if loss else net, trial.protocol.count_domains(path))
        least = count_needed_evaluations(algorithm)
        evaluations = min(trial.protocol.evaluations, trial.protocol.steps)
        if evaluations < least:
            short = ", one for each step" if trial.protocol.steps < least else ""
            name = list_inner_names(trial.algorithm)[0]
            more = f"--steps {least}" if short else f"--set '{name}.evaluations={least}'"
            raise UsageError(
                f"{trial.short_name} needs at least {least} evaluations on source validation, but there are "
                f"{evaluations}{short}: raise them ({more}), or choose +ema or +sma, which need none."
            )
        split = split_rows(task.dataset(), trial.protocol, trial.held_out, trial.seed)
        if least and not any(map(len, split.validation)):
            raise UsageError(
                f"{trial.short_name} reads the loss on validation rows, and no source of {task.name} has any: choose a "
                "split that leaves some out, or +ema or +sma."
            )

    def caution(self, trial: Trial) -> list[str]:
        algorithm = trial.build_algorithm()
        if not isinstance(algorithm, Averaging):
            return []
        ends = [0, *end_stages(algorithm, trial.protocol.steps)]
        steps = ends[-1] - ends[-2]  # an average starts anew with every stage
        first = algorithm.weigh_first(steps)
        if first <= MOST_FIRST:
            return []
        return [
            f"After {steps} steps, {100 * first:.0f} % of the average of {trial.short_name} are still its first "
            "weights: train longer, or take a smaller decay."
        ]

    def share(self, trial: Trial, task: Task) -> Hashable:
        """Rates and numeric settings are data of a stack. Its loss is one: class weights follow from the rows that a
        trial trains on, so trials with class weights share these too."""
        p, training = trial.protocol, trial.training
        algorithm = training.build_algorithm()
        return (
            trial.data, trial.net, trial.batchnorm, trial.weights, trial.size, trial.augment, len(trial.held_out),
            training.algorithm, describe_shape(algorithm), tuple(end_stages(algorithm, p.steps)),
            choose_optimizer(algorithm, p), p.split, p.validation, p.test, p.steps, p.batch, p.evaluations, p.precision,
            p.domains_per_step, p.members, p.calibrate, p.scaling, p.train_domains, p.validation_domains, p.loss,
            p.path, p.layer_decay, p.balance,
            None if task.class_weight is None else (trial.held_out, p.split == "random" and trial.seed),
            None if algorithm.stackable else training.key,
        )  # fmt: skip

    def count_steps(self, trial: Trial) -> int:
        return count_steps(trial.build_algorithm(), trial.protocol)

    def train(self, group: Group, session: Session, on_step: OnStep = lambda step: None) -> list[Record]:
        task, device = session.task, torch.device(session.device)
        notes, saving = task.dataset().notes, session.saving
        records = run_stack(lambda: build_stack(group, task, device), group.key, device, on_step, saving, notes=notes)
        index = {trial.key: i for i, trial in enumerate(group.trials)}
        return sorted(records, key=lambda record: index[record.key])

    def time_step(self, group: Group, task: Task, device: torch.device) -> tuple[float, float]:
        prepare_process()
        began = time.perf_counter()
        sample = Group(tuple(trial for trials in group.trainings[:SAMPLE] for trial in trials))
        try:
            stack = build_stack(sample, task, device)
            before = time.perf_counter() - began
            stack.captures &= stack.alone  # recording a graph takes longer than it tells of a stack
            begins = [0, *stack.bounds[:-1]]
            seconds = [
                (end - begin) * _time_stage(stack, k, begin, end)
                for k, (begin, end) in enumerate(zip(begins, stack.bounds, strict=True))
            ]
        except Exception:  # It happens again, and is recorded, when the group runs.
            return 0.0, 0.0
        return before, sum(seconds) / stack.protocol.steps / len(sample.trainings)

    def train_one(
        self, trial: Trial, task: Task, device: torch.device, stops: tuple[int, ...], on_evaluation: OnEvaluation
    ) -> Record:
        """Train one trial with torch as the user has set it. `on_evaluation` gets the weights after each of `stops`."""
        group = Group((trial,))

        def make_stack() -> Stack:
            return build_stack(group, task, device, sets_precision=False)

        return run_stack(make_stack, group.key, device, stops=stops, on_evaluation=on_evaluation)[0]


def _is_aggregation(name: str) -> bool:
    """Return whether a name is that of AGG, or of an average of its weights."""
    base, *around = split_chain(name)
    return base == "agg" and len(around) <= 1 and all(issubclass(find_wrapper(w), Averaging) for w in around)


def check_domains_per_step(wanted: int, sources: int, step: str, name: str) -> None:
    """Raise a UsageError where a step is to meet more domains than there are.

    step, name: what an error calls the step and the data.
    """
    if wanted > sources:
        raise UsageError(
            f"{step} is to meet {wanted} domains (domains_per_step), but {name} has {sources} to learn from: ask for "
            f"{sources} or fewer, or for 0, which means all."
        )


def check_weights(algorithm: Algorithm, name: str, task: Task) -> None:
    """Raise a UsageError where rows have weights, which reach an algorithm by the net's loss, and it looks past it."""
    if task.dataset().weight is not None and algorithm.hard_labels:
        raise UsageError(
            f"{name} reads the label of each row outside the loss, where weights of rows do not reach: leave "
            "sample_weight out, or choose another, such as agg."
        )


def check_uses(algorithm: Algorithm, name: str, task: Task, held_out: tuple[str, ...] = ()) -> None:
    """Raise a UsageError where there is not what an algorithm uses beside minibatches."""
    if TARGET in algorithm.uses and not held_out:
        raise UsageError(
            f"{name} learns from unlabelled rows of the domain that is held out, and a model for new data has none "
            "yet: `seqdg bench` compares it, and `seqdg fit` takes another, such as agg."
        )
    if VIEW in algorithm.uses and not (task.augment and task.dataset().is_image):
        raise UsageError(
            f"{name} compares two augmented views of the same pictures, and {task.name} augments none: add --set "
            "net.augment=pacs, or a function of your own as FILE.py:FUNCTION."
        )
    if GROUP in algorithm.uses and task.dataset().group is None:
        raise UsageError(
            f"{name} reads the group of each row, and {task.name} has no groups: name their column in group_column of "
            "[data]."
        )


def choose_rate(draft: Draft, algorithm: Algorithm) -> float:
    """Choose the learning rate: as it is given for the algorithm, or else the protocol's; divided by the number of
    domains in a step where the loss is a sum over them and the optimizer does not make up for it."""
    has_rate = "lr" in draft.table or "lr" in draft.settings
    if has_rate or not algorithm.sums or choose_optimizer(algorithm, draft.protocol) not in ("sgd", "momentum"):
        return draft.protocol.lr
    return draft.protocol.lr / max(1, draft.protocol.count_domains(draft.sources))


def _time_stage(stack: Stack, stage: int, begin: int, end: int) -> float:
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
        is_long = taken > LONG and (i or stack.inputs.device.type == "cpu")  # a GPU's first step compiles and records
        if is_long or (i > 1 and spent > ENOUGH):
            break
    return fastest


def build_stack(group: Group, task: Task, device: torch.device, sets_precision: bool = True) -> Stack:
    """Build the stack of a group: networks with their first weights, splits and inputs.

    sets_precision: set torch, for all that follows in this process, to the trials' precision and to exact repetition.
    """
    first = group.trials[0]
    if sets_precision:
        set_precision(first.protocol.precision)
    dtype = first.protocol.dtype
    some = task.find_net(first.members[0])
    net = Net(some.module, first.batchnorm, task.make_loss(first, device)).to(dtype=dtype)
    by_seed = {m.seed: m for trial in group.trials for m in trial.members}  # many differ in settings or domain alone
    nets = {seed: some if seed == first.members[0].seed else task.find_net(m) for seed, m in by_seed.items()}
    weights = {seed: _read_weights(built.module, net.names, dtype) for seed, built in nets.items()}
    splits = {(t.held_out, t.seed): t for t in group.trials}  # many differ in settings alone
    rows = {key: split_rows(task.dataset(), t.protocol, t.held_out, t.seed) for key, t in splits.items()}
    begun: dict[tuple[int, int, int], Params] = {}
    jobs = [
        _make_job(member, algorithm, views, net, weights[member.seed], rows[trial.held_out, trial.seed], begun)
        for (trial, *_), (algorithm, views) in zip(group.trainings, share_trainings(group), strict=True)
        for member in trial.members
    ]
    each = [member for trials in group.trainings for member in trials[0].members]
    inputs = task.make_inputs(each, some.normalization, device)
    return Stack(net.to(device), inputs, jobs, compiles=group.compiles, members=first.protocol.members)


def _make_job(
    member: Trial,
    algorithm: Algorithm,
    views: tuple[View | None, ...],
    net: Net,
    weights: Params,
    split: Split,
    begun: dict[tuple[int, int, int], Params],
) -> Job:
    """Make the job of one training. begun: what others of the group start from, by the algorithm's id, seed and number
    of sources; trials that differ in the held-out domain alone start from the same, which a stack copies once."""
    sources = len(split.train)
    algorithm.check(net, member.protocol.count_domains(sources))
    key = id(algorithm), member.seed, sources
    if key not in begun:
        begun[key] = algorithm.init(net, weights, sources, make_generator(member.seed, "extra"))
    return Job(algorithm, member.protocol, split, member.seed, begun[key], views, weights)


def _read_weights(module: nn.Module, names: Collection[str], dtype: torch.dtype) -> Params:
    return {name: p.detach().to(dtype) for name, p in module.named_parameters() if name in names}


def share_trainings(group: Group) -> list[tuple[Algorithm, tuple[View | None, ...]]]:
    """Return what trains and which records are wanted of it, for each training of a group.

    All trainings of a stack have the same averages, as a stack has one shape; where one lacks an average that others
    have, it gets theirs, of which no record is wanted.
    """
    everywhere: dict[tuple[Hashable, int], Averaging] = {}  # by shape, and by number among those of one shape
    by_training = []
    for trials in group.trainings:
        plain: View | None = None
        averages: dict[tuple[Hashable, int], tuple[Averaging, View]] = {}
        for trial in trials:
            view, (_, average) = View(trial.key, trial.description()), split_average(trial.build_algorithm())
            if average is None:
                plain = view
                continue
            shape = describe_shape(average)
            slot = (shape, sum(other == shape for other, _ in averages))
            averages[slot] = (average, view)
            everywhere.setdefault(slot, average)
        by_training.append((trials[0].training.build_algorithm(), plain, averages))
    shared = []
    for algorithm, plain, averages in by_training:
        chosen = [averages.get(slot, (average, None)) for slot, average in everywhere.items()]
        trains = SharedTraining(algorithm, tuple(a for a, _ in chosen)) if chosen else algorithm
        shared.append((trains, (plain, *(view for _, view in chosen))))
    return shared


STACK = StackLearner()


def find_learner(name: str) -> Learner:
    """Find what trains an algorithm: a registered learner of that name, or the stack that trains all algorithms."""
    first, *around = split_chain(name)
    if around and around[-1] in HARMONIZATIONS:
        from seqdg.bench.learners.harmonization import harmonize  # now: nets have no use for it

        return harmonize(find_learner(first), name)
    if (make_member := find_family(first.partition(":")[0])) is not None:
        member: Learner = make_member(name)
        return member
    module, _, short = first.rpartition(":")
    if module:
        import_plugin(module)
    if (built_in := list_built_in().get(short)) is not None:
        importlib.import_module(built_in)
    if (learner := find_registered(short)) is not None:
        return learner
    if not is_registered(short):
        raise refuse_name(first, {**list_origins(), **list_registered()})
    return STACK


def find_learner_of(trial: Trial) -> Learner:
    """Find what trains a trial: the estimator or the algorithm that it carries, or else what its name says."""
    if trial.estimator is not None:
        from seqdg.bench.learners.estimators import OwnEstimatorLearner  # now: scikit-learn takes a second

        return OwnEstimatorLearner(trial.estimator)
    return STACK if trial.instance is not None else find_learner(trial.algorithm)


def list_learners() -> tuple[str, ...]:
    """List the names of learners that are not algorithms."""
    return tuple(sorted(list_registered()))
