"""Learners that are fitted once to arrays and then predict, such as estimators of scikit-learn."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqdg.base import UsageError, count_things
from seqdg.bench.learners.contract import Candidate, Draft, Learner, OnStep, apply_draft, make_candidate
from seqdg.bench.search import RATE, Proposal, draw_proposals
from seqdg.bench.task import Group, Session, Task, Trial, collect_by
from seqdg.core import Settings, flatten_settings, parse_settings, setting, shorten, split_chain, with_settings
from seqdg.data import Dataset
from seqdg.nets import Net, Normalization
from seqdg.results import DIVERGED, DONE, Evaluation, Record, average_finite, choose_loss
from seqdg.training import (
    DomainPredictions,
    Inputs,
    RowWeighted,
    Split,
    View,
    WeightedCrossEntropy,
    as_outputs,
    is_finite,
    list_sources,
    mark_fifth,
    measure_peak_memory,
    measure_predictions,
    name_origin,
    save_step,
    split_rows,
)

Arrays = NDArray[Any]
Predict = Callable[[Arrays], Arrays]  # rows (row, input) to probabilities (row, class), or to numbers (row,)


@dataclass(frozen=True)
class Packed:
    """A fitted model as it is saved: arrays by name, and values that JSON can hold."""

    arrays: Mapping[str, Arrays]
    values: Mapping[str, Any] = field(default_factory=dict)


class ArrayLearner(Learner):
    """A learner that is fitted once to arrays and then predicts probabilities, or numbers. A subclass has `settings`
    and `fit`.

    `fit` may return any function. Where models are to be saved, it returns an instance of `fitted`, or the subclass
    says how with `pack` and `unpack`.
    """

    settings: ClassVar[Mapping[str, Any]] = {}  # the defaults, by name
    estimator: ClassVar[type | None] = None  # the class that does the work, whose docstring has the equations
    # By name, as `setting` takes them: {"least": 0, "above": 0, "most": 1, "search": Range(0.1, 1)}.
    rules: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    fitted: ClassVar[type | None] = None  # a dataclass of arrays and of values for JSON, whose instances predict
    needs: ClassVar[int] = 1  # source domains, at least
    weighs: bool = False  # whether `fit` takes `weight`, a number for each row
    draws: ClassVar[bool] = True  # whether the seed makes a difference
    compares_rows: ClassVar[bool] = False  # whether it compares `most_rows`, a setting, with one another
    tells_classes: bool = True
    predicts_numbers: bool = False  # then `fit` gets 0 classes, and what it returns gives (row,)
    takes_steps = False
    trains_net = False

    @abstractmethod
    def fit(self, x: Arrays, y: Arrays, domain: Arrays, classes: int, seed: int, **settings: Any) -> Predict:
        """Fit rows (row, input) with their classes and source domains (numbers from 0), and return what predicts.

        For regression, y holds the targets, as float64 in the user's units, and classes is 0.
        """

    def describe_fit(self, rows: int, **settings: Any) -> list[str]:
        """Say in sentences what a reader of the results should know of a fit to so many rows."""
        most = settings["most_rows"] if self.compares_rows else rows
        some = f"{most:,} of {rows:,} rows with one another, drawn from every class of every domain"
        return [f"{self.name} compares {some}."] if most < rows else []

    def pack(self, predict: Predict) -> Packed:
        """Return what a file must hold of a fitted model. Nothing in it is code."""
        if self.fitted is None or not isinstance(predict, self.fitted):
            raise UsageError(_refuse_saving(type(self)))
        values = {f.name: getattr(predict, f.name) for f in fields(self.fitted)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return Packed(arrays, {name: value for name, value in values.items() if name not in arrays})

    def unpack(self, packed: Packed) -> Predict:
        """Return the model that was packed."""
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
        first = apply_draft(draft, self.build_settings(draft.name))
        tried = draw_proposals(Proposal(first, draft.protocol.lr), draft.count, fixed=(*draft.settings, RATE))
        protocol = replace(draft.protocol, members=1, calibrate=False, scaling=self.scaling)  # it is fitted once
        return [make_candidate(draft.name, settings, protocol) for settings, _ in tried]

    def check(self, trial: Trial, task: Task, net: Net | None) -> None:
        if "+" in trial.short_name:
            raise UsageError(f"{trial.short_name}: {split_chain(trial.short_name)[0]} trains no net to wrap.")
        dataset = task.dataset()
        if len(dataset.shape) != 1:
            held = "images" if dataset.is_image else f"arrays of shape {list(dataset.shape)}"
            raise UsageError(f"{trial.short_name} reads rows of numbers, and {task.name} holds {held}.")
        if task.class_weight is not None and not self.weighs:
            raise UsageError(f"{trial.short_name} weighs no classes: leave class_weight out.")
        if dataset.weight is not None and not self.weighs:
            raise UsageError(f"{trial.short_name} weighs no rows: leave sample_weight out, or choose another.")
        if not (self.predicts_numbers if dataset.is_regression else self.tells_classes):
            does, has, other = (
                ("is a classifier", "a regression task", "ridge")
                if dataset.is_regression
                else ("is a regressor", "a classification task", "logistic")
            )
            raise UsageError(f"{trial.short_name} {does}, and {task.name} is {has}: choose another, such as {other}.")
        sources = len(list_sources(dataset, trial.held_out, trial.protocol))
        if sources < self.needs:
            raise UsageError(
                f"{trial.short_name} needs at least {count_things(self.needs, 'source domain')} to learn from, and "
                f"there {'is' if sources == 1 else 'are'} {sources}."
            )

    def share(self, trial: Trial, task: Task) -> Hashable:
        """Trials that differ in the seed alone are fitted once, where the seed makes no difference."""
        return trial.key if self.draws or trial.protocol.split == "random" else replace(trial, seed=0).key

    def train(self, group: Group, session: Session, on_step: OnStep = lambda step: None) -> list[Record]:
        # A group is one fit as a rule. Its progress is reported once it has its records: a callback may interrupt.
        shared = collect_by(group.trials, lambda trial: self.share(trial, session.task))
        records = {r.key: r for trials in shared.values() for r in self._train_alike(trials, session)[1]}
        return [records[trial.key] for trial in group.trials]

    def read_settings(self, trial: Trial) -> dict[str, Any]:
        """Return the settings of a trial by name, as `fit` takes them."""
        return flatten_settings(parse_settings(self.build_settings(trial.algorithm), dict(trial.settings)))

    def train_one(self, trial: Trial, task: Task) -> tuple[Predict, Record]:
        """Fit one trial; return what predicts, and its record."""
        predict, (record,) = self._train_alike([trial], Session(task))
        return predict, record

    def _train_alike(self, trials: Sequence[Trial], session: Session) -> tuple[Predict, list[Record]]:
        """Fit trials that share a fit; return what predicts, and the record of each. Their seeds differ in no more than
        the fifth of the held-out rows that `oracle-split` chooses by."""
        began, task, cpu, first = time.perf_counter(), session.task, torch.device("cpu"), trials[0]
        dataset = task.dataset()
        splits = [split_rows(dataset, trial.protocol, trial.held_out, trial.seed) for trial in trials]
        split, inputs = splits[0], task.make_inputs([first], Normalization(), cpu)
        x, y = (values[0].numpy() for values in inputs.serve(torch.cat(split.train)[None]))
        domain = np.repeat(np.arange(len(split.train)), [len(rows) for rows in split.train])
        settings = self.read_settings(first)
        weight = {"weight": _weigh_rows(task, first, torch.cat(split.train))} if self.weighs else {}
        predict = self.fit(x, y, domain, len(dataset.classes), first.seed, **weight, **settings)
        parts, serving = _predict_domains(predict, split, inputs, dataset)
        histories = [_measure(parts, each, first.protocol.steps) for each in splits]
        only, sources = replace(session.saving, chosen=False), len(split.validation)  # there are no weights
        held_out = parts[sources : sources + len(split.test)]
        for trial, history in zip(trials, histories, strict=True):
            save_step(only, View(trial.key, trial.description()), history, True, dict, lambda: held_out)
        source = histories[0][0].source
        record = Record(
            key=first.key,
            description=first.description(),
            status=DONE if is_finite(histories[0][0], split) else DIVERGED,
            history=histories[0],
            losses=[average_finite(source[choose_loss(source)])],  # it has no steps: on source validation
            seconds=time.perf_counter() - began,
            peak_memory=measure_peak_memory(cpu),
            **name_origin(cpu),
            notes=[*dataset.notes, *self.describe_fit(len(y), **settings)],
            serving=1000 * serving / max(1, sum(map(len, split.evaluated))),
        )
        each = zip(trials, histories, strict=True)
        return predict, [replace(record, key=t.key, description=t.description(), history=h) for t, h in each]


def _predict_domains(
    predict: Predict, split: Split, inputs: Inputs, dataset: Dataset
) -> tuple[list[DomainPredictions], float]:
    """Predict the rows of every domain; return also the seconds that it takes."""
    parts, seconds = [], 0.0
    for rows in split.evaluated:
        entering, labels = inputs.serve(rows[None])
        before = time.perf_counter()
        p = predict(entering[0].numpy()) if len(rows) else np.empty((0, len(dataset.classes)))
        seconds += time.perf_counter() - before
        mask = torch.ones(1, len(rows), dtype=torch.bool)
        log_p = torch.from_numpy(as_outputs(p, dataset.is_regression))[None]
        groups, weights = inputs.find_groups(rows[None]), inputs.find_weights(rows[None])
        parts.append(DomainPredictions(log_p, labels, mask, rows[None], groups=groups, weight=weights))
    return parts, seconds


def _measure(parts: Sequence[DomainPredictions], split: Split, step: int) -> list[Evaluation]:
    """Return the one evaluation of a trial with this split."""
    fifths = (*[()] * len(split.validation), *([fifth] for fifth in split.fifth), *[()] * len(split.outside or ()))
    marks = [mark_fifth(rows[None], f, rows.device) for rows, f in zip(split.evaluated, fifths, strict=True)]
    marked = [part._replace(fifth=mark) for part, mark in zip(parts, marks, strict=True)]
    return measure_predictions(marked, len(split.validation), step, split.held_out_at_once)


def _weigh_rows(task: Task, trial: Trial, rows: Tensor) -> Arrays | None:
    """Return the weights of training rows (row,): the user's, 1 on average, times those of their classes; None where
    all weigh the same."""
    loss, dataset = task.make_loss(trial, torch.device("cpu")), task.dataset()
    row_weight = None if dataset.weight is None else dataset.weight[rows].numpy()
    weight = None if row_weight is None else row_weight / row_weight.mean()
    loss = loss.criterion if isinstance(loss, RowWeighted) else loss
    if not isinstance(loss, WeightedCrossEntropy):
        return weight
    by_class: Arrays = loss.weight.numpy()[dataset.y[rows].numpy()].astype(np.float64)
    return by_class if weight is None else weight * by_class


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


def choose_rows(y: NDArray[Any], domain: NDArray[Any], most: int, seed: int) -> NDArray[np.intp]:
    """Choose at most so many rows, every class of every domain in proportion, in their order; all where they fit."""
    if len(y) <= most:
        return np.arange(len(y))
    draw = np.random.default_rng(seed)
    rank = np.empty(len(y))  # of each row in its class of its domain, from 0 to 1
    for label, source in np.unique(np.stack([y, domain]), axis=1).T:
        rows = np.flatnonzero((y == label) & (domain == source))
        rank[rows] = draw.permutation(len(rows)) / len(rows)
    return np.sort(np.lexsort((draw.random(len(y)), rank))[:most])


def weigh_domains(weight: Arrays | None, domain: Arrays, balance: bool) -> Arrays | None:
    """Return the weights of rows (row,), None where all weigh the same; balance: every domain is to count the same."""
    if not balance:
        return weight
    counts = np.bincount(domain)
    shares: Arrays = (len(domain) / (len(counts) * counts))[domain]
    return shares if weight is None else weight * shares
