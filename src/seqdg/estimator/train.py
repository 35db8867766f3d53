"""Train one model on all domains, and collect the facts of how it was made."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from seqdg.base import tree
from seqdg.base.episode import Params
from seqdg.base.errors import UsageError
from seqdg.bench.learner import STACK
from seqdg.core.wrapper import count_needed_evaluations
from seqdg.data import Dataset
from seqdg.estimator.model import Model
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.task import make_task
from seqdg.estimator.user_data import UserData
from seqdg.results.record import Evaluation
from seqdg.results.select import select_step
from seqdg.training.protocol import list_evaluation_steps
from seqdg.training.provenance import list_versions


class _BestWeights:
    """Keep the weights of the evaluation that is best on validation rows, or of the last where there are none."""

    def __init__(self, criterion: str, validates: bool) -> None:
        self.criterion, self.validates = criterion, validates
        self.history: list[Evaluation] = []
        self.weights: Params = {}
        self.step = 0

    def __call__(self, step: int, deployed: Params, evaluations: list[Evaluation], losses: Tensor) -> None:
        if not bool(torch.isfinite(losses).all()):
            raise UsageError(f"Training diverged within {step} steps: the loss is not finite. Choose a smaller lr.")
        self.history.append(evaluations[0])
        best = select_step(self.history, self.criterion) if self.validates else None
        if best is None or best[1] == len(self.history) - 1:
            self.step, self.weights = step, tree.unstack(deployed)[0]


def fit_model(user_data: UserData, recipe: Recipe) -> Model:
    """Train on all domains; keep the weights of the step that the recipe asks for, or that validates best."""
    dataset = user_data.dataset
    task, net = make_task(user_data, recipe)
    recipe.algorithm.check(net, len(dataset.domains))
    assert dataset.validation is not None
    rows = {name: int(dataset.validation[dataset.rows(name)].sum()) for name in dataset.domains}
    validates = any(rows.values())
    protocol, needed = recipe.protocol, count_needed_evaluations(recipe.algorithm)
    if needed and not validates:
        raise UsageError(
            f"{recipe.name} reads the loss on validation rows, and none are left out of the training: set validation "
            "to a larger share, or choose +ema or +sma."
        )
    stops = list_evaluation_steps(recipe.algorithm, protocol)
    if recipe.stop:
        stops = (*(s for s in stops if s < recipe.stop and needed), recipe.stop)
    stops = stops if validates else stops[-1:]
    trial = task.make_trial(recipe.name, {}, protocol, (), recipe.seed, algorithm=recipe.algorithm)
    best = _BestWeights(recipe.criterion, validates and recipe.stop is None)
    with _set_threads(dataset.is_image):
        STACK.train_one(trial, task, torch.device(recipe.device), stops, best)
    chosen = next(e for e in best.history if e.step == best.step)
    validation = {
        name: {criterion: values[i] for criterion, values in chosen.source.items()}
        for i, name in enumerate(dataset.domains)
        if rows[name]
    }
    return Model(
        input=user_data.input,
        module=copy.deepcopy(task.build_net(trial).module),
        spec=recipe.choose_spec(dataset.is_image),
        batchnorm=task.batchnorm,
        algorithm=recipe.algorithm,
        name=recipe.name,
        params={name: p.cpu().contiguous() for name, p in best.weights.items()},  # in memory as they will be in a file
        classes=user_data.classes,
        facts=_collect_facts(dataset, recipe, best.step, validation),
        device=recipe.device,
    )


def _collect_facts(
    dataset: Dataset, recipe: Recipe, step: int, validation: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Collect what the model's card says, as JSON holds it: on what data it was trained, how, and by which versions."""
    domains = {}
    for domain in dataset.domains:
        labels = dataset.y[dataset.rows(domain)]
        counts = torch.bincount(labels, minlength=len(dataset.classes)).tolist()
        domains[domain] = {"rows": len(labels), "classes": dict(zip(dataset.classes, counts, strict=True))}
    return {
        "domains": domains,
        "step": step,
        **({"together": recipe.algorithm.together} if recipe.algorithm.together else {}),
        "validation": {d: {c: v if math.isfinite(v) else None for c, v in m.items()} for d, m in validation.items()},
        "parameters": recipe.describe(),
        "versions": list_versions(),
        "notes": list(dataset.notes),
    }


@contextmanager
def _set_threads(many: bool) -> Iterator[None]:
    """Use one thread for the small nets of tables, which more would only slow down; sums then run in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if many else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
