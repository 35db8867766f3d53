"""Train one model on all domains."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from seqdg.base import tree
from seqdg.base.episode import Params
from seqdg.base.errors import UsageError
from seqdg.bench.learner import STACK
from seqdg.estimator.material import Material
from seqdg.estimator.model import Model
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.task import make_task
from seqdg.results.record import DIVERGED, Evaluation
from seqdg.results.select import select_step


@dataclass(frozen=True)
class Fit:
    model: Model
    step: int  # whose weights were taken
    validation: dict[str, dict[str, float]]  # by domain and criterion, where there are rows to validate on


class _BestWeights:
    """Keeps the weights of the evaluation that is best on validation rows, or of the last where there are none."""

    def __init__(self, criterion: str, validates: bool) -> None:
        self.criterion, self.validates = criterion, validates
        self.history: list[Evaluation] = []
        self.weights: Params = {}
        self.step = 0

    def __call__(self, step: int, deployed: Params, evaluations: list[Evaluation]) -> None:
        self.history.append(evaluations[0])
        best = select_step(self.history, self.criterion) if self.validates else None
        if best is None or best[1] == len(self.history) - 1:
            self.step, self.weights = step, tree.unstack(deployed)[0]


def fit_model(material: Material, recipe: Recipe) -> Fit:
    """Train on all domains; the weights are those of the step that the recipe asks for, or that validates best."""
    dataset = material.dataset
    task, net = make_task(material, recipe)
    recipe.algorithm.check(net, len(dataset.domains))
    assert dataset.validation is not None
    rows = {name: int(dataset.validation[dataset.rows(name)].sum()) for name in dataset.domains}
    validates = any(rows.values())
    protocol = recipe.protocol
    stops = (recipe.stop,) if recipe.stop else protocol.evaluation_steps if validates else (protocol.steps,)
    trial = task.make_trial(recipe.name, {}, protocol, (), recipe.seed, algorithm=recipe.algorithm)
    best = _BestWeights(recipe.criterion, validates)
    with _set_threads(dataset.is_image):
        record = STACK.train_one(trial, task, torch.device(recipe.device), stops, best)
    if record.status == DIVERGED:
        raise UsageError(f"Training diverged within {stops[-1]} steps: the loss is not finite. Choose a smaller lr.")
    model = Model(
        input=material.input,
        module=copy.deepcopy(task.build_net(trial).module),
        spec=recipe.spec(dataset.is_image),
        batchnorm=task.batchnorm,
        algorithm=recipe.algorithm,
        name=recipe.name,
        params={name: p.cpu().contiguous() for name, p in best.weights.items()},  # in memory as they will be in a file
        classes=material.classes,
        device=recipe.device,
    )
    chosen = next(e for e in best.history if e.step == best.step)
    validation = {
        name: {criterion: values[i] for criterion, values in chosen.source.items()}
        for i, name in enumerate(dataset.domains)
        if rows[name]
    }
    return Fit(model, best.step, validation)


@contextmanager
def _set_threads(many: bool) -> Iterator[None]:
    """Use one thread for the small nets of tables, which more would only slow down; sums then run in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if many else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
