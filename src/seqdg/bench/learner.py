"""Learners: what turns a group of trials into records. Everything above treats them alike.

`StackLearner` trains our algorithms as one stack. `ArrayLearner` is for what is fitted once to arrays and then
predicts, such as an estimator of scikit-learn: a subclass says how. `@register_learner("name")` names a learner. Those
of this package are in `learners/`, each in the file of its name, which is imported when the learner is first asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from seqdg.base.episode import Params
from seqdg.base.errors import UsageError, unknown
from seqdg.base.words import count_things
from seqdg.bench.search import RATE, Proposal, draw_proposals
from seqdg.bench.task import Task
from seqdg.bench.trial import Group, Trial
from seqdg.core.algorithm import Algorithm, Settings, setting
from seqdg.core.names import list_inner_names, shorten, split_chain
from seqdg.core.registry import build, import_plugin, list_algorithms
from seqdg.core.settings import (
    describe_settings,
    describe_shape,
    flatten_settings,
    parse_settings,
    with_settings,
)
from seqdg.core.wrapper import Averaging, SharedTraining, count_needed_evaluations, list_layers, split_average
from seqdg.nets import Net, NetSpec
from seqdg.results.record import DIVERGED, DONE, Record
from seqdg.results.select import average_finite
from seqdg.testing import ContractError, check_memory
from seqdg.training.evaluated import mark_fifth
from seqdg.training.predictions import DomainPredictions
from seqdg.training.protocol import Protocol, choose_optimizer, count_steps, end_stages, list_sources, split_rows
from seqdg.training.provenance import find_commit, list_versions, measure_peak_memory, name_device
from seqdg.training.run_stack import Keep, Watch, keep_step, measure_predictions, run_stack
from seqdg.training.sampler import make_generator
from seqdg.training.stack import Job, Stack, View, set_precision

TRAINING = (
    "steps", "batch", "evaluations", "optimizer", "lr", "momentum", "weight_decay", "precision",
    "schedule", "warmup", "drop_every", "drop", "domains_per_step",
)  # fmt: skip
MOST_FIRST = 0.1  # of an average of weights may be those before training, before a note says so
Tick = Callable[[int], None]  # hears how many steps have been taken
Arrays = NDArray[Any]
Predict = Callable[[Arrays], Arrays]  # rows (row, input) to probabilities (row, class)


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its settings, for a path through all domains but one, and how it is trained."""

    name: str
    settings: tuple[tuple[str, str], ...]  # every one, as text
    protocol: Protocol
    net: NetSpec | None = None  # where it is not the task's: a learner that builds its own says so


@dataclass(frozen=True)
class Draft:
    """What candidates of an algorithm are made from."""

    name: str
    protocol: Protocol
    table: Mapping[str, Any] = field(default_factory=dict)  # the benchmark's settings for it
    settings: Mapping[str, str] = field(default_factory=dict)  # the user's, as text, which come before the benchmark's
    count: int = 1  # of candidates
    multiples: tuple[float, float] = (1.0, 1.0)  # of the learning rate, between which others are drawn
    sources: int = 0  # domains to learn from; 0: not known
    shape: tuple[int, ...] = ()  # of one input; (): not known


@dataclass(frozen=True)
class Packed:
    """What is kept of a fitted model: arrays by name, and values that JSON can hold."""

    arrays: Mapping[str, Arrays]
    values: Mapping[str, Any] = field(default_factory=dict)


class Learner(ABC):
    """How trials of some algorithms are proposed, checked, grouped and trained."""

    takes_steps: ClassVar[bool] = True  # whether it trains step by step, with a learning rate

    def build_settings(self, name: str, **settings: Any) -> Settings:
        """Build what a user's data are fitted with: an algorithm, or settings alone."""
        raise UsageError(
            f"{shorten(name)} makes records of trials, and no model that predicts new rows: only `seqdg bench` runs it."
        )

    @abstractmethod
    def propose(self, draft: Draft) -> list[Candidate]:
        """Make candidates: the first as the draft says, the others with values drawn for what the user left open."""

    def check(self, trial: Trial, task: Task, net: Net) -> None:  # noqa: B027  most have nothing to check
        """Raise a UsageError where the trial cannot be trained on this task and net."""

    def check_device(self, trial: Trial, device: str) -> None:  # noqa: B027  most train anywhere
        """Raise a UsageError where the trial cannot be trained on this kind of device."""

    def caution(self, trial: Trial) -> list[str]:
        """Say in sentences what in the trial will hardly do what it is meant for."""
        return []

    def share(self, trial: Trial, task: Task) -> Hashable:
        """Return what trials must have in common to be trained together; by default each is trained alone."""
        return trial.key

    def count_steps(self, trial: Trial) -> int:
        """Count the steps that the trial takes."""
        return trial.protocol.steps

    @abstractmethod
    def train(
        self, group: Group, task: Task, device: torch.device, tick: Tick = lambda step: None, keep: Keep | None = None
    ) -> list[Record]:
        """Train and evaluate every trial of the group."""


class StackLearner(Learner):
    """Our algorithms: all trials of a group train as one stack."""

    def build_settings(self, name: str, **settings: Any) -> Algorithm:
        return build(name, **settings)

    def propose(self, draft: Draft) -> list[Candidate]:
        algorithm = build(draft.name)
        _check_names(draft, flatten_settings(algorithm))
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in draft.table.items() if k not in TRAINING}
        texts = {k: v for k, v in draft.settings.items() if k not in TRAINING}
        first = Proposal(parse_settings(with_settings(algorithm, values), texts), choose_rate(draft, algorithm))
        tried = draw_proposals(first, draft.count, fixed=draft.settings, multiples=draft.multiples)
        return [make_candidate(draft.name, candidate, replace(draft.protocol, lr=lr)) for candidate, lr in tried]

    def check(self, trial: Trial, task: Task, net: Net) -> None:
        algorithm, wanted = trial.build_algorithm(), trial.protocol.domains_per_step
        sources = len(trial.protocol.train_domains) or trial.sources
        if wanted > sources:
            raise UsageError(
                f"A step of {trial.short_name} is to meet {wanted} domains (domains_per_step), but {task.name} has "
                f"{sources} to learn from: ask for {sources} or fewer, or for 0, which means all."
            )
        if 0 < wanted < sources and algorithm.needs_all:
            raise UsageError(
                f"{trial.short_name} needs rows of every source in every step, and domains_per_step is {wanted}: "
                f"choose 0 for it (--set {trial.short_name}.domains_per_step=0)."
            )
        path = len(list_sources(task.dataset(), trial.held_out, trial.protocol))
        algorithm.check(net, trial.protocol.count_domains(path))
        if not all(type(layer).__module__.startswith("seqdg.") for layer in list_layers(algorithm)):
            _check_memory(algorithm)  # that of seqdg's own is known to be right
        least = count_needed_evaluations(algorithm)
        evaluations = min(trial.protocol.evaluations, trial.protocol.steps)
        if evaluations < least:
            short = trial.protocol.steps < least
            more = (
                f"--steps {least}" if short else f"--set '{list_inner_names(trial.algorithm)[0]}.evaluations={least}'"
            )
            raise UsageError(
                f"{trial.short_name} needs at least {least} evaluations on source validation, but there are "
                f"{evaluations}{', one for each step' if short else ''}: raise them ({more}), or choose +ema or +sma, "
                "which need none."
            )
        if least and not any(
            map(len, split_rows(task.dataset(), trial.protocol, trial.held_out, trial.seed).validation)
        ):
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
            p.domains_per_step, p.train_domains, p.validation_domains,
            None if task.class_weight is None else (trial.held_out, p.split == "random" and trial.seed),
        )  # fmt: skip

    def count_steps(self, trial: Trial) -> int:
        return count_steps(trial.build_algorithm(), trial.protocol)

    def train(
        self, group: Group, task: Task, device: torch.device, tick: Tick = lambda step: None, keep: Keep | None = None
    ) -> list[Record]:
        notes = task.dataset().notes
        records = run_stack(lambda: build_stack(group, task, device), group.key, device, tick, keep, notes=notes)
        place = {trial.key: i for i, trial in enumerate(group.trials)}
        return sorted(records, key=lambda record: place[record.key])

    def train_one(self, trial: Trial, task: Task, device: torch.device, stops: tuple[int, ...], watch: Watch) -> Record:
        """Train one trial with torch as the user has set it; `watch` sees the weights of every evaluation, after these
        steps."""
        group = Group((trial,))

        def make_stack() -> Stack:
            return build_stack(group, task, device, sets_precision=False)

        return run_stack(make_stack, group.key, device, stops=stops, watch=watch)[0]


def count_work(group: Group) -> int:
    """Count the steps of all trainings of a group."""
    learner = find_learner(group.trials[0].algorithm)
    return sum(learner.count_steps(trials[0]) for trials in group.trainings)


def choose_rate(draft: Draft, algorithm: Algorithm) -> float:
    """Choose the learning rate: as it is given for the algorithm, or else the protocol's; divided by the number of
    domains in a step where the loss is a sum over them and the optimizer does not make up for it."""
    given = "lr" in draft.table or "lr" in draft.settings
    if given or not algorithm.sums or choose_optimizer(algorithm, draft.protocol) not in ("sgd", "momentum"):
        return draft.protocol.lr
    return draft.protocol.lr / max(1, draft.protocol.count_domains(draft.sources))


def make_candidate(name: str, algorithm: Settings, protocol: Protocol) -> Candidate:
    return Candidate(name, tuple(sorted(describe_settings(algorithm).items())), protocol)


def build_stack(group: Group, task: Task, device: torch.device, sets_precision: bool = True) -> Stack:
    """Build the stack of a group: nets with their first weights, splits and inputs.

    sets_precision: set torch, for all that follows in this process, to the trials' precision and to exact repetition.
    """
    first = group.trials[0]
    if sets_precision:
        set_precision(first.protocol.precision)
    dtype = first.protocol.dtype
    by_seed = {trial.seed: trial for trial in group.trials}  # many differ in settings or held-out domain alone
    built = {seed: task.build_net(trial) for seed, trial in by_seed.items()}
    net = Net(built[first.seed].module, first.batchnorm, task.make_loss(first, device)).to(dtype=dtype)
    weights = {
        seed: {name: p.detach().to(dtype) for name, p in b.module.named_parameters() if name in net.names}
        for seed, b in built.items()
    }
    jobs = [
        _make_job(trials[0], algorithm, views, net, weights[trials[0].seed], task)
        for trials, (algorithm, views) in zip(group.trainings, share_trainings(group), strict=True)
    ]
    each = [trials[0] for trials in group.trainings]
    inputs = task.make_inputs(each, built[first.seed], device)
    return Stack(net.to(device), inputs, jobs, compiles=group.compiles)


def _make_job(
    trial: Trial, algorithm: Algorithm, views: tuple[View | None, ...], net: Net, weights: Params, task: Task
) -> Job:
    split = split_rows(task.dataset(), trial.protocol, trial.held_out, trial.seed)
    algorithm.check(net, trial.protocol.count_domains(len(split.train)))
    params = algorithm.init(net, weights, len(split.train), make_generator(trial.seed, "extra"))
    return Job(algorithm, trial.protocol, split, trial.seed, params, views)


@lru_cache(maxsize=256)
def _check_memory(algorithm: Algorithm) -> None:
    """Refuse a memory that changes its shape or that nothing reads, before training."""
    try:
        check_memory(algorithm)
    except ContractError as error:
        raise UsageError(str(error)) from None


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
            place = (shape, sum(other == shape for other, _ in averages))
            averages[place] = (average, view)
            everywhere.setdefault(place, average)
        by_training.append((trials[0].training.build_algorithm(), plain, averages))
    shared = []
    for algorithm, plain, averages in by_training:
        chosen = [averages.get(place, (average, None)) for place, average in everywhere.items()]
        trains = SharedTraining(algorithm, tuple(a for a, _ in chosen)) if chosen else algorithm
        shared.append((trains, (plain, *(view for _, view in chosen))))
    return shared


class ArrayLearner(Learner):
    """What is fitted once to arrays and then predicts probabilities. A subclass has `settings` and `fit`.

    `fit` may return any function. Where models are to be saved, it returns an instance of `fitted`, or the subclass
    says how with `pack` and `unpack`.
    """

    settings: ClassVar[Mapping[str, Any]] = {}  # the defaults, by name
    estimator: ClassVar[type | None] = None  # the class that does the work, whose docstring has the equations
    rules: ClassVar[
        Mapping[str, Mapping[str, Any]]
    ] = {}  # by name, as `setting` takes them: {"least": 0, "above": 0, "most": 1, "search": Range(0.1, 1)}
    fitted: ClassVar[type | None] = None  # a dataclass of arrays and of values for JSON, whose instances predict
    needs: ClassVar[int] = 1  # source domains, at least
    takes_steps = False

    @abstractmethod
    def fit(self, x: Arrays, y: Arrays, domain: Arrays, classes: int, seed: int, **settings: Any) -> Predict:
        """Fit rows (row, input) with their classes and source domains (numbers from 0), and return what predicts."""

    def describe_fit(self, rows: int, **settings: Any) -> list[str]:
        """Say in sentences what a reader of the results should know of a fit to so many rows."""
        return []

    def pack(self, predict: Predict) -> Packed:
        """Return all of what `fit` returned that must be kept in a file: nothing in it is code."""
        if self.fitted is None or not isinstance(predict, self.fitted):
            raise UsageError(_refuse_saving(type(self)))
        values = {f.name: getattr(predict, f.name) for f in fields(self.fitted)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return Packed(arrays, {name: value for name, value in values.items() if name not in arrays})

    def unpack(self, packed: Packed) -> Predict:
        """Return what predicts as the one that was packed."""
        if self.fitted is None:
            raise UsageError(_refuse_saving(type(self)))
        predict: Predict = self.fitted(**packed.arrays, **packed.values)
        return predict

    def check_saving(self) -> None:
        """Raise a UsageError where nothing says how its models are saved."""
        if self.fitted is None and type(self).pack is ArrayLearner.pack:
            raise UsageError(_refuse_saving(type(self)))

    def build_settings(self, name: str, **settings: Any) -> Settings:
        return with_settings(_declare_settings(type(self), shorten(name))(), settings)

    def propose(self, draft: Draft) -> list[Candidate]:
        _check_names(draft, self.settings)
        first = with_settings(
            self.build_settings(draft.name), {k: v for k, v in draft.table.items() if k not in TRAINING}
        )
        first = parse_settings(first, {k: v for k, v in draft.settings.items() if k not in TRAINING})
        tried = draw_proposals(Proposal(first, draft.protocol.lr), draft.count, fixed=(*draft.settings, RATE))
        return [make_candidate(draft.name, settings, draft.protocol) for settings, _ in tried]

    def check(self, trial: Trial, task: Task, net: Net) -> None:
        if "+" in trial.short_name:
            raise UsageError(f"{trial.short_name}: {split_chain(trial.short_name)[0]} trains no net to wrap.")
        dataset = task.dataset()
        if len(dataset.shape) != 1:
            held = "images" if dataset.is_image else f"arrays of shape {list(dataset.shape)}"
            raise UsageError(f"{trial.short_name} reads rows of numbers, and {task.name} holds {held}.")
        if task.class_weight is not None:
            raise UsageError(f"{trial.short_name} weighs no classes: leave class_weight out.")
        sources = len(list_sources(dataset, trial.held_out, trial.protocol))
        if sources < self.needs:
            raise UsageError(
                f"{trial.short_name} needs at least {count_things(self.needs, 'source domain')} to learn from, and "
                f"there {'is' if sources == 1 else 'are'} {sources}."
            )

    def train(
        self, group: Group, task: Task, device: torch.device, tick: Tick = lambda step: None, keep: Keep | None = None
    ) -> list[Record]:
        return [self.train_one(trial, task, tick, keep)[1] for trial in group.trials]

    def train_one(
        self, trial: Trial, task: Task, tick: Tick = lambda step: None, keep: Keep | None = None
    ) -> tuple[Predict, Record]:
        """Fit one trial; return what predicts, and its record."""
        began, dataset, cpu = time.perf_counter(), task.dataset(), torch.device("cpu")
        split = split_rows(dataset, trial.protocol, trial.held_out, trial.seed)
        inputs = task.make_inputs([trial], task.build_net(trial), cpu)
        x, y = (values[0].numpy() for values in inputs.serve(torch.cat(split.train)[None]))
        domain = np.repeat(np.arange(len(split.train)), [len(rows) for rows in split.train])
        settings = flatten_settings(parse_settings(self.build_settings(trial.algorithm), dict(trial.settings)))
        predict = self.fit(x, y, domain, len(dataset.classes), trial.seed, **settings)
        steps, sources = trial.protocol.steps, len(split.validation)
        tick(steps)
        parts = []
        for rows, fifth in zip(
            split.evaluated,
            (*[()] * sources, *([f] for f in split.fifth), *[()] * len(split.outside or ())),
            strict=True,
        ):
            entering, labels = inputs.serve(rows[None])
            p = predict(entering[0].numpy()) if len(rows) else np.empty((0, len(dataset.classes)))
            mask = torch.ones(1, len(rows), dtype=torch.bool)
            log_p = torch.from_numpy(take_logarithm(p))[None]
            groups, marked = inputs.find_groups(rows[None]), mark_fifth(rows[None], fifth, cpu)
            parts.append(DomainPredictions(log_p, labels, mask, rows[None], marked, groups))
        evaluation = measure_predictions(parts, sources, steps, split.held_out_at_once)[0]
        only, held_out = replace(keep or Keep(), chosen=False), parts[sources : sources + len(split.test)]  # no weights
        keep_step(only, View(trial.key, trial.description()), [evaluation], True, dict, lambda: held_out)
        losses = evaluation.list_values("log_loss")
        finite = all(np.isfinite(loss) for loss, rows in zip(losses, split.evaluated, strict=True) if len(rows))
        return predict, Record(
            key=trial.key,
            description=trial.description(),
            status=DONE if finite else DIVERGED,
            history=[evaluation],
            losses=[average_finite(evaluation.source["log_loss"])],  # it has no steps: on source validation
            seconds=time.perf_counter() - began,
            peak_memory=measure_peak_memory(cpu),
            device=name_device(cpu),
            versions=list_versions(),
            commit=find_commit(),
            notes=[*dataset.notes, *self.describe_fit(len(y), **settings)],
        )


def take_logarithm(p: Arrays) -> NDArray[np.float64]:
    """Return the logarithm of probabilities, those of 0 as of 1e-12."""
    logarithm: NDArray[np.float64] = np.log(np.clip(np.asarray(p, np.float64), 1e-12, 1.0))
    return logarithm


@cache
def _declare_settings(kind: type[ArrayLearner], name: str) -> type[Settings]:
    """Make the class of a learner's settings from its defaults and rules."""
    declared = [(n, type(value), setting(value, **kind.rules.get(n, {}))) for n, value in kind.settings.items()]
    return make_dataclass(name, declared, bases=(Settings,), frozen=True)


def _refuse_saving(kind: type) -> str:
    return (
        f"{kind.__qualname__} does not say how its models are saved: give it `fitted`, a dataclass of arrays whose "
        "instances predict and which `fit` returns, or `pack` and `unpack`."
    )


def _check_names(draft: Draft, known: Mapping[str, Any]) -> None:
    for name in (*draft.table, *draft.settings):
        if name not in known and name not in TRAINING:
            raise unknown(f"setting of {shorten(draft.name)}", name, (*known, *TRAINING))


STACK = StackLearner()
# Learners of other projects, by the prefix of their names. Their modules stand above this package, so they are named
# here and imported when such a name is first asked for. That works in every process, also in a worker, where no command
# has registered anything.
FAMILIES = {"domainbed": "seqdg.interop.domainbed.learner"}
_learners: dict[str, Learner] = {}
Kind = TypeVar("Kind", bound=type[Learner])


def register_learner(name: str) -> Callable[[Kind], Kind]:
    """Name a learner that is no algorithm, so that `seqdg bench --algorithms NAME` runs it."""

    def register(kind: Kind) -> Kind:
        if name in list_algorithms():
            raise UsageError(f"'{name}' is the name of an algorithm. Give the learner {kind.__qualname__} another.")
        _load_learner(name)
        other = type(_learners[name]) if name in _learners else kind
        if (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
            raise UsageError(f"Two learners are named '{name}'. Rename one.")
        _learners[name] = kind()
        return kind

    return register


def find_learner(name: str) -> Learner:
    """Find what trains an algorithm: a registered learner of that name, or the stack that trains all algorithms."""
    first = split_chain(name)[0]
    prefix = first.partition(":")[0]
    if prefix in FAMILIES:
        member: Learner = importlib.import_module(FAMILIES[prefix]).make_learner(name)
        return member
    place, _, short = first.rpartition(":")
    if place:
        import_plugin(place)
    _load_learner(short)
    return _learners.get(short, STACK)


def list_learners() -> tuple[str, ...]:
    """List the names of learners that are not algorithms."""
    return tuple(sorted({*_learners, *_list_files()}))


@cache
def _list_files() -> dict[str, str]:
    """Return the modules of the learners of this package, by name; none is imported."""
    found = pkgutil.iter_modules([str(Path(__file__).with_name("learners"))])
    names = (module.name for module in found if not module.name.startswith("_"))
    return {name.replace("_", "-"): f"seqdg.bench.learners.{name}" for name in names}


def _load_learner(name: str) -> None:
    """Import the file of one of this package's learners."""
    if name in _list_files():
        importlib.import_module(_list_files()[name])
