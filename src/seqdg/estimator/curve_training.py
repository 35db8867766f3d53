"""Train on more and more of the domains, and see how each model does on the others: `learning_curve`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.base import clone

from seqdg.base import UsageError, count_things
from seqdg.bench import (
    Executor,
    InProcess,
    MemorySink,
    OwnSettings,
    Progress,
    Session,
    Trial,
    Workers,
    estimate_makespan,
    execute,
    find_learner_of,
    is_short,
    plan_trials,
    time_groups,
)
from seqdg.core import Algorithm, adapt_to_path, describe_settings, is_registered, shorten, split_chain
from seqdg.estimator.auto import adapt_recipe
from seqdg.estimator.compare import choose_estimator
from seqdg.estimator.domain_curve import LearningCurve, Measured, Subset
from seqdg.estimator.estimator import DomainEstimator
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.task import make_task
from seqdg.estimator.user_data import make_user_data, read_input, warn_of_order
from seqdg.results import DONE, Record, format_duration, select_step
from seqdg.training import make_stream

SUBSETS = 12  # of the domains, for each number of them
MOST_SIZES = 8  # numbers of domains that are tried


def learning_curve(
    model: Any,
    X: Any,
    y: Any,
    domains: Any,
    *,
    seeds: int = 1,
    subsets: int = SUBSETS,
    workers: int = 0,
    say: Callable[[str], None] = lambda sentence: None,
    show: Callable[[Progress], None] = lambda progress: None,
    sample_weight: Any = None,
) -> LearningCurve:
    """Train on k = 1, 2, ..., N - 1 of the N domains, and see how each model does on the domains it was not trained on.

    model: a `DomainClassifier` or `DomainRegressor`, which says the algorithm, its training and the criterion. Or the
        algorithm alone, as `compare` takes a candidate: a name, what `seqdg.build` gives, an `Algorithm` of yours, an
        estimator of scikit-learn. It is trained as usual, as a `DomainRegressor` where y holds numbers with fractions.
    seeds: trainings of each choice of domains.   subsets: choices of k domains, at most; drawn by the model's
        random_state so that each domain is in about as many. Of more than nine domains only eight numbers k are tried.
    workers: processes to train in; 0 is this one.   say: hears beforehand how many trainings there are and how long
        they take.   show: hears how far they are.
    sample_weight: (row,) how much each row counts, in training and in every score.
    """
    warn_of_order(X, y=y, domains=domains, sample_weight=sample_weight)
    is_whole = isinstance(model, DomainEstimator)
    template = clone(model) if is_whole else choose_estimator(y).set_params(algorithm=model)
    recipe = template.make_recipe()
    if recipe.stop is not None:
        raise UsageError("The step is chosen by source validation in every training: leave stop out.")
    if seeds < 1 or subsets < 1:
        raise UsageError(f"{seeds} seeds and {subsets} subsets were asked for, but at least 1 of each is needed.")
    data = make_user_data(
        read_input(X), template.read_targets(y), domains, recipe, gaps=True, sample_weight=sample_weight
    )
    names = data.dataset.domains
    if len(names) < 2:
        raise UsageError(f"There is only the domain '{names[0]}': to hold it out, at least one other is needed.")
    recipe = adapt_recipe(recipe, data.dataset)
    task, net = make_task(data, recipe, scaled=False)
    settings = describe_settings(adapt_to_path(recipe.algorithm, len(names), len(names) - 1))
    notes, planned = list[str](), list[Trial]()
    for size in choose_sizes(len(names)):
        objects = _take_objects(recipe, len(names), size)
        trials = [
            task.make_trial(
                recipe.name, settings, recipe.protocol, tuple(d for d in names if d not in chosen), seed, **objects
            )
            for chosen in choose_subsets(names, size, subsets, recipe.seed)
            for seed in range(recipe.seed, recipe.seed + seeds)
        ]
        try:
            find_learner_of(trials[0]).check(trials[0], task, net)
        except UsageError as error:
            notes.append(f"{count_things(size, 'domain')} cannot be trained on: {error}")
            continue
        planned += trials
    if not planned:
        raise UsageError(notes[-1])
    sink, session = MemorySink(), Session(task, recipe.device)
    if not find_learner_of(planned[-1]).takes_steps:  # then one fit says how long the others take
        execute(plan_trials(task, planned[-1:], net, recipe.device), session, InProcess(), sink)
    plan = plan_trials(task, planned, net, recipe.device, sink.records)
    costs = time_groups(plan.missing, session)
    if sink.records:
        costs = dict.fromkeys((g.key for g in plan.missing), sink.records[planned[-1].key].seconds)
    known = [costs.get(group.key) for group in plan.missing]
    executor: Executor = Workers(workers) if workers and not is_short(known) else InProcess()
    seconds = [cost for cost in known if cost is not None]
    took = "" if None in known else f", {format_duration(estimate_makespan(seconds, executor.slots))}"
    say(f"{count_things(len(plan.trials), 'training')} of {recipe.name} on {min(map(_count, planned))} to "
        f"{max(map(_count, planned))} of {len(names)} domains{took}.")  # fmt: skip
    execute(plan, session, executor, sink, costs, show)
    measured = [m for trial in plan.trials for m in _measure(sink.records[trial.key], names, recipe.criterion)]
    lost = sum(sink.records[trial.key].status != DONE for trial in plan.trials)
    if lost:
        notes.append(f"{count_things(lost, 'training')} diverged and are left out.")
    if not measured:
        raise UsageError("Every training diverged. Choose a smaller lr.")
    return LearningCurve(recipe.name, names, recipe.criterion, tuple(measured), tuple(notes))


def _take_objects(recipe: Recipe, domains: int, size: int) -> dict[str, Any]:
    """Return what a trial on so many of the domains carries because no name makes it."""
    if isinstance(recipe.algorithm, OwnSettings):
        return {"estimator": recipe.algorithm.estimator}
    if isinstance(recipe.algorithm, Algorithm) and not is_registered(shorten(split_chain(recipe.name)[0])):
        return {"algorithm": adapt_to_path(recipe.algorithm, domains, size)}
    return {}


def choose_sizes(count: int) -> list[int]:
    """Choose how many of the domains to train on: every number, or of many some at growing distances."""
    every = range(1, count)
    if len(every) <= MOST_SIZES:
        return list(every)
    return sorted({round(v) for v in np.geomspace(1, count - 1, MOST_SIZES)})


def choose_subsets(domains: Sequence[str], size: int, most: int, seed: int) -> list[Subset]:
    """Choose sets of so many domains: all of them, or `most` that each have about as many of every domain.

    They are neighbors on a circle of the domains in random order, and on further circles where one does not suffice.
    """
    if math.comb(len(domains), size) <= most:
        return list(combinations(domains, size))
    chosen: dict[Subset, None] = {}
    stream = make_stream(seed, "subsets", size)
    while len(chosen) < most:
        circle = stream.permutation(len(domains)).tolist()
        for first in range(len(circle)):
            places = sorted(circle[(first + i) % len(circle)] for i in range(size))
            if len(chosen) < most:
                chosen[tuple(domains[i] for i in places)] = None
    return list(chosen)


def _count(trial: Trial) -> int:
    """Count the domains that a trial trains on."""
    return trial.sources + 1 - len(trial.held_out)


def _measure(record: Record, domains: Sequence[str], criterion: str) -> list[Measured]:
    """List what a training reached on every unseen domain, at the step that source validation chose."""
    best = select_step(record.history, criterion) if record.status == DONE else None
    if best is None:
        return []
    values = record.history[best[1]].held_out[criterion]
    trained_on = tuple(d for d in domains if d not in record.held_out)
    return [Measured(trained_on, d, v) for d, v in zip(record.held_out, values, strict=True)]
