"""Train one model on all domains, and collect the facts of how it was made."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seqdg.base import Params, UsageError, tree
from seqdg.bench import STACK, ArrayLearner, OwnSettings, check_weights, find_learner_of, find_target_scale, weigh_rows
from seqdg.core import Algorithm, count_needed_evaluations, describe_settings
from seqdg.data import Dataset
from seqdg.estimator.model import ROWS, ArrayModel, Model, NetModel
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.task import make_task
from seqdg.estimator.user_data import UserData
from seqdg.results import DONE, Evaluation, select_step
from seqdg.training import fit_temperature, gather_rows, list_evaluation_steps, list_versions


class _BestWeights:
    """Keep the weights of the evaluation that is best on validation rows, or of the last where there are none."""

    def __init__(self, criterion: str, validates: bool, members: int) -> None:
        self.criterion, self.validates, self.members = criterion, validates, members
        self.history: list[Evaluation] = []
        self.weights: Params = {}
        self.step = 0

    def __call__(self, step: int, deployed: Params, evaluations: list[Evaluation], losses: Tensor) -> None:
        if not bool(torch.isfinite(losses).all()):
            raise UsageError(f"Training diverged within {step} steps: the loss is not finite. Choose a smaller lr.")
        self.history.append(evaluations[0])
        best = select_step(self.history, self.criterion) if self.validates else None
        if best is None or best[1] == len(self.history) - 1:
            self.step, self.weights = step, deployed if self.members > 1 else tree.unstack(deployed)[0]


def fit_model(user_data: UserData, recipe: Recipe) -> Model:
    """Train on all domains: a net, or whatever learner the recipe names."""
    if isinstance(recipe.algorithm, Algorithm):
        model: Model = _fit_net(user_data, recipe, recipe.algorithm)
    else:
        model = _fit_arrays(user_data, recipe)
    return model.with_facts(columns=dict(user_data.columns)) if user_data.columns else model


def _fit_arrays(user_data: UserData, recipe: Recipe) -> ArrayModel:
    """Fit a learner that trains no net to the rows that are not left out for validation."""
    task, net = make_task(user_data, recipe)
    estimator = recipe.algorithm.estimator if isinstance(recipe.algorithm, OwnSettings) else None
    settings = describe_settings(recipe.algorithm)
    trial = task.make_trial(recipe.name, settings, recipe.protocol, (), recipe.seed, estimator=estimator)
    learner = find_learner_of(trial)
    assert isinstance(learner, ArrayLearner)  # no other gives settings to a recipe
    learner.check(trial, task, net)
    predict, record = learner.train_one(trial, task)
    if record.status != DONE:
        raise UsageError(f"{recipe.name} gives no finite predictions for the validation rows: change its settings.")
    facts = _collect_facts(user_data.dataset, recipe, 0, record.history[-1])
    return ArrayModel(
        input=user_data.input,
        name=recipe.name,
        classes=user_data.classes,
        facts={**facts, "notes": record.notes},
        device=recipe.device,
        predict=predict,
    )


def _fit_net(user_data: UserData, recipe: Recipe, algorithm: Algorithm) -> NetModel:
    """Train a net; keep the weights of the step that the recipe asks for, or that validates best."""
    dataset = user_data.dataset
    task, net = make_task(user_data, recipe)
    check_weights(algorithm, recipe.name, task)
    algorithm.check(net, recipe.protocol.count_domains(len(dataset.domains)))
    validates = any(_count_validation(dataset).values())
    protocol, needed = recipe.protocol, count_needed_evaluations(algorithm)
    if needed and not validates:
        raise UsageError(
            f"{recipe.name} reads the loss on validation rows, and none are left out of the training: set validation "
            "to a larger share, or choose +ema or +sma."
        )
    stops = list_evaluation_steps(algorithm, protocol)
    if recipe.stop:
        stops = (*(s for s in stops if s < recipe.stop and needed), recipe.stop)
    stops = stops if validates else stops[-1:]
    trial = task.make_trial(recipe.name, {}, protocol, (), recipe.seed, algorithm=algorithm)
    best = _BestWeights(recipe.criterion, validates and recipe.stop is None, protocol.members)
    with _set_threads(dataset.is_image):
        STACK.train_one(trial, task, torch.device(recipe.device), stops, best)
    facts = _collect_facts(dataset, recipe, best.step, next(e for e in best.history if e.step == best.step))
    model = NetModel(
        input=user_data.input,
        module=copy.deepcopy(task.build_net(trial).module),
        spec=recipe.choose_spec(dataset.is_image),
        batchnorm=task.batchnorm,
        algorithm=algorithm,
        name=recipe.name,
        params={name: p.cpu().contiguous() for name, p in best.weights.items()},  # in memory as they will be in a file
        members=protocol.members,
        classes=user_data.classes,
        target=_find_target(dataset),
        facts={
            **facts,
            **({"together": algorithm.together} if algorithm.together else {}),
            "notes": [*facts["notes"], *STACK.caution(trial)],
        },
        device=recipe.device,
    )
    return _calibrate(model, dataset) if protocol.calibrate and validates else model


def _calibrate(model: NetModel, dataset: Dataset) -> NetModel:
    """Give the model the temperature that fits the validation rows, domain by domain as it predicts them."""
    assert dataset.validation is not None
    logits, numbers = [], []
    for domain in dataset.domains:
        rows = dataset.rows(domain)
        rows = rows[dataset.validation[rows]]
        numbers.append(rows)
        for part in torch.split(rows, len(rows) if model.together else ROWS) if len(rows) else ():
            logits.append(torch.from_numpy(model.predict_rows(gather_rows(dataset.x, part, torch.device("cpu")))))
    every, weight = torch.cat(numbers)[None], weigh_rows(dataset)
    temperature = fit_temperature(
        torch.cat(logits)[None],
        dataset.y[every],
        torch.ones_like(every, dtype=torch.bool),
        None if weight is None else weight[every],
    )
    return replace(model, temperature=float(temperature[0]))


def _count_validation(dataset: Dataset) -> dict[str, int]:
    """Count the rows of every domain that are not trained on."""
    assert dataset.validation is not None
    return {name: int(dataset.validation[dataset.rows(name)].sum()) for name in dataset.domains}


def _collect_facts(dataset: Dataset, recipe: Recipe, step: int, chosen: Evaluation) -> dict[str, Any]:
    """Collect what the model's card says, as JSON holds it: on what data it was trained, how, and by which versions."""
    rows = _count_validation(dataset)
    validation = {
        name: {criterion: values[i] for criterion, values in chosen.source.items()}
        for i, name in enumerate(dataset.domains)
        if rows[name]
    }
    domains = {}
    for domain in dataset.domains:
        labels = dataset.y[dataset.rows(domain)]
        domains[domain] = {"rows": len(labels), **_describe_targets(labels, dataset)}
    return {
        "domains": domains,
        "step": step,
        "validation": {d: {c: v if math.isfinite(v) else None for c, v in m.items()} for d, m in validation.items()},
        "parameters": recipe.describe(),
        "versions": list_versions(),
        "notes": list(dataset.notes),
    }


def _find_target(dataset: Dataset) -> tuple[float, float]:
    """Return the mean and deviation that training brought the numbers to 0 and 1 by; 0 and 1 where there are none."""
    scale = find_target_scale(dataset, [dataset.domains])
    return (0.0, 1.0) if scale is None else (float(scale.mean), float(scale.deviation))


def _describe_targets(y: Tensor, dataset: Dataset) -> dict[str, Any]:
    """Return the rows of each class, or where the numbers lie."""
    if dataset.is_regression:
        return {"mean": float(y.mean()), "deviation": float(y.std(correction=0))}
    counts = torch.bincount(y, minlength=len(dataset.classes)).tolist()
    return {"classes": dict(zip(dataset.classes, counts, strict=True))}


@contextmanager
def _set_threads(many: bool) -> Iterator[None]:
    """Use one thread for the small nets of tables, which more would only slow down; sums then run in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if many else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
