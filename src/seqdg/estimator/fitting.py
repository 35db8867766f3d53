"""Train one model on all domains, and collect the facts of how it was made."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seqdg.base import Params, UsageError, tree
from seqdg.bench import (
    STACK,
    ArrayLearner,
    OwnSettings,
    RowsInMemory,
    Task,
    check_uses,
    check_weights,
    find_learner_of,
    find_target_scale,
    weigh_rows,
)
from seqdg.core import Algorithm, count_needed_evaluations, describe_settings
from seqdg.data import Dataset, ProgressCallback
from seqdg.estimator.model import ROWS, ArrayModel, EnsembleModel, Model, NetModel, share_input
from seqdg.estimator.model_inputs import ImageInput, TableInput
from seqdg.estimator.recipe import CENTERED, WEIGHTED, Recipe, Winner, adapt_recipe
from seqdg.estimator.shifts import find_priors
from seqdg.estimator.user_data import UserData
from seqdg.nets import Net, NetSpec, check_outputs
from seqdg.results import DONE, Evaluation, select_step
from seqdg.training import (
    find_number_loss,
    fit_temperature,
    gather_rows,
    list_evaluation_steps,
    list_versions,
    measure_rows,
)


def fit_model(user_data: UserData, recipe: Recipe, on_progress: ProgressCallback = lambda done, total: None) -> Model:
    """Train on all domains: a net, or whatever learner the recipe names.

    on_progress: called with the steps of a net that are taken, and their total.
    """
    if isinstance(recipe.algorithm, Algorithm):
        model: Model = _fit_net(user_data, recipe, recipe.algorithm, on_progress)
    else:
        model = _fit_arrays(user_data, recipe)
    model = replace(model, source=None if user_data.frame is None else user_data.frame.source)
    made = () if model.source is None else model.source.names
    columns = {name: what for name, what in user_data.columns.items() if name not in made}
    about = {"columns": columns, "profile": dict(user_data.profile)}
    return model.with_facts(**{name: what for name, what in about.items() if what})


def _fit_arrays(user_data: UserData, recipe: Recipe) -> ArrayModel:
    """Fit a learner that trains no net to the rows that are not left out for validation."""
    task, net, _ = make_task(user_data, recipe)
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
        facts={**facts, **({"together": "all"} if trial.together else {}), "notes": record.notes},
        device=recipe.device,
        predict=predict,
    )


def _fit_net(user_data: UserData, recipe: Recipe, algorithm: Algorithm, on_progress: ProgressCallback) -> NetModel:
    """Train a net; keep the weights of the step that the recipe asks for, or that validates best."""
    dataset = user_data.dataset
    task, net, module = make_task(user_data, recipe)
    check_weights(algorithm, recipe.name, task)
    check_uses(algorithm, recipe.name, task)
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
    history: list[Evaluation] = []
    weights: Params = {}

    def find_kept() -> Evaluation:
        """Find the evaluation that is best on validation rows, or the last where they do not choose."""
        best = select_step(history, recipe.criterion) if validates and recipe.stop is None else None
        return history[-1 if best is None else best[1]]

    def keep_best(step: int, deployed: Params, evaluations: list[Evaluation], losses: Tensor) -> None:
        nonlocal weights
        if not bool(torch.isfinite(losses).all()):
            raise UsageError(f"Training diverged within {step} steps: the loss is not finite. Choose a smaller lr.")
        history.append(evaluations[0])
        on_progress(step, stops[-1])
        if find_kept() is evaluations[0]:
            weights = deployed if protocol.members > 1 else tree.unstack(deployed)[0]

    with _set_threads(dataset.is_image):
        STACK.train_one(trial, task, torch.device(recipe.device), stops, keep_best)
    facts = _collect_facts(dataset, recipe, find_kept().step, find_kept())
    scale = find_target_scale(dataset, [dataset.domains])  # of numbers, which training brings to mean 0, deviation 1
    model = NetModel(
        input=user_data.input,
        module=copy.deepcopy(module),
        spec=recipe.choose_spec(dataset.is_image),
        batchnorm=task.batchnorm,
        algorithm=algorithm,
        name=recipe.name,
        params={name: p.cpu().contiguous() for name, p in weights.items()},  # in memory as they will be in a file
        members=protocol.members,
        classes=user_data.classes,
        target=(0.0, 1.0) if scale is None else (float(scale.mean), float(scale.deviation)),
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


def fit_ensemble(
    user_data: UserData,
    members: Sequence[tuple[Winner, Recipe]],
    may_fit: Callable[[int], bool] = lambda index: True,
    on_progress: ProgressCallback = lambda done, total: None,
) -> EnsembleModel:
    """Train the members of a weighted ensemble on all domains, in their order.

    user_data: with missing values of a table left open.   may_fit: whether there is time for a member, by its index;
    asked for all but the first. Those that are left out, or that diverge, are named in the model's notes.
    """
    scaled: dict[str, UserData] = {}
    fitted: list[tuple[Model, Winner]] = []
    left_out: list[str] = []
    for index, (member, recipe) in enumerate(members):
        if fitted and not may_fit(index):
            left_out.append(f"{member.name} is not in the ensemble: no time was left to fit it.")
            continue
        scaling = recipe.protocol.scaling
        if scaling not in scaled:
            scaled[scaling] = replace(user_data.scale(scaling), profile={})  # the ensemble has it, once
        rows = scaled[scaling]
        try:
            fitted.append((fit_model(rows, adapt_recipe(recipe, rows.dataset)), member))
        except UsageError as error:
            left_out.append(f"{member.name} is not in the ensemble: {error}")
        on_progress(index + 1, len(members))
    if not fitted:
        raise UsageError(f"No member of the ensemble could be fitted. {left_out[0]}")
    total = sum(member.weight for _, member in fitted)
    kept = tuple((replace(m, source=None), replace(member, weight=member.weight / total)) for m, member in fitted)
    notes = [note for model, _ in kept for note in model.facts["notes"]]
    about = max((model for model, _ in kept), key=lambda model: isinstance(model, NetModel))  # with all parameters
    model = EnsembleModel(
        members=kept,
        input=share_input(about.input),
        name=WEIGHTED,
        classes=user_data.classes,
        source=fitted[0][0].source,
        device=about.device,
    )
    facts = {
        **about.facts,
        "step": 0,
        "validation": _validate(model, user_data),
        **({} if model.is_regression else {"priors": _mix_priors(kept)}),
        "parameters": {**about.facts["parameters"], "algorithm": WEIGHTED, "settings": {}, "stop": None},
        "notes": list(dict.fromkeys([*notes, *left_out])),
        **({"profile": dict(user_data.profile)} if user_data.profile else {}),
    }
    together = {"together": "all" if model.least else model.together} if model.together else {}
    return replace(model, facts={**{k: v for k, v in facts.items() if k != "together"}, **together})


def _mix_priors(members: Sequence[tuple[Model, Winner]]) -> list[float]:
    """Average the shares of classes that the members' probabilities are of, as these are averaged."""
    weights = [member.weight for _, member in members]
    mixed: list[float] = np.average([m.facts["priors"] for m, _ in members], axis=0, weights=weights).tolist()
    return mixed


def _validate(model: EnsembleModel, user_data: UserData) -> dict[str, dict[str, float | None]]:
    """Measure an ensemble on the rows of every domain that no member was trained on."""
    dataset, measured = user_data.dataset, {}
    assert dataset.validation is not None
    for domain in dataset.domains:
        rows = dataset.rows(domain)
        rows = rows[dataset.validation[rows]]
        if not len(rows):
            continue
        if user_data.frame is None:
            inputs = gather_rows(dataset.x, rows, torch.device("cpu"))
        else:
            inputs = model.input.read(user_data.frame.take(rows.numpy()))[0]
        weight = None if dataset.weight is None else dataset.weight[rows]
        values = measure_rows(torch.from_numpy(model.predict_rows(inputs)), dataset.y[rows], weight)
        measured[domain] = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return measured


def _count_validation(dataset: Dataset) -> dict[str, int]:
    """Count the rows of every domain that are not trained on."""
    assert dataset.validation is not None
    return {name: int(dataset.validation[dataset.rows(name)].sum()) for name in dataset.domains}


def _collect_facts(dataset: Dataset, recipe: Recipe, step: int, chosen: Evaluation) -> dict[str, Any]:
    """Collect what the model's card says, as JSON holds it: on what data it was trained, how, and by which versions."""
    rows = _count_validation(dataset)
    validation = {
        name: {c: values[i] if math.isfinite(values[i]) else None for c, values in chosen.source.items()}
        for i, name in enumerate(dataset.domains)
        if rows[name]
    }
    domains: dict[str, dict[str, Any]] = {}
    for domain in dataset.domains:
        y = dataset.y[dataset.rows(domain)]
        domains[domain] = {"rows": len(y)}
        if dataset.is_regression:
            domains[domain] |= {"mean": float(y.mean()), "deviation": float(y.std(correction=0))}
        else:
            counts = torch.bincount(y, minlength=len(dataset.classes)).tolist()
            domains[domain]["classes"] = dict(zip(dataset.classes, counts, strict=True))
    return {
        "domains": domains,
        "step": step,
        **({} if dataset.is_regression else {"priors": find_priors(dataset, recipe.algorithm, recipe.class_weight)}),
        "validation": validation,
        "parameters": recipe.describe(),
        "versions": list_versions(),
        "notes": list(dataset.notes),
    }


@contextmanager
def _set_threads(many: bool) -> Iterator[None]:
    """Use one thread for the small networks of tables, which more would only slow down; sums then run in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if many else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_task(user_data: UserData, recipe: Recipe, scaled: bool = True) -> tuple[Task, Net, nn.Module]:
    """Make the task, its net, and the module of this.

    scaled: whether the numbers of a table are scaled already, once for all trials.
    """
    is_image = isinstance(user_data.input, ImageInput)
    spec = recipe.choose_spec(is_image)
    built = recipe.build_net(user_data.input.shape, user_data.dataset.outputs, recipe.seed)
    numbers = len(user_data.input.numeric) if isinstance(user_data.input, TableInput) else None
    task = Task(
        name="the data",
        rows=RowsInMemory(user_data.dataset),
        net=spec or NetSpec("mlp"),
        batchnorm=recipe.choose_batchnorm(built.module),
        protocol=recipe.protocol,
        size=user_data.input.size if isinstance(user_data.input, ImageInput) else 0,
        augment=recipe.augment,
        module=recipe.net if isinstance(recipe.net, nn.Module) else None,
        normalization=CENTERED if is_image and spec is not None and spec.name == "mlp" else None,
        class_weight=recipe.class_weight,
        numbers=None if scaled else numbers,
    )
    number_loss = find_number_loss(recipe.protocol.loss) if recipe.is_regression else None
    net = Net(built.module, task.batchnorm, number_loss or cross_entropy)
    x = torch.zeros(2, *user_data.input.shape)
    check_outputs("The net", partial(net, net.params()), x, user_data.dataset.outputs)
    return task, net, built.module
