"""From material and a recipe to a model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqdg.base import tree
from seqdg.base.episode import Params
from seqdg.base.errors import UsageError
from seqdg.data.augment import ImageTransform, find_augmentation
from seqdg.estimator.inputs import ImageInput
from seqdg.estimator.loss import loss_of
from seqdg.estimator.material import Material
from seqdg.estimator.model import Model
from seqdg.estimator.recipe import Recipe, torch_device
from seqdg.nets import BuiltNet, Net
from seqdg.results.criteria import score
from seqdg.training.inputs import Inputs
from seqdg.training.prefetch import fits, resident
from seqdg.training.protocol import Split
from seqdg.training.runner import judged
from seqdg.training.sampler import torch_generator
from seqdg.training.stack import Job, Stack

Tick = Callable[[int], None]


@dataclass(frozen=True)
class Fit:
    model: Model
    step: int  # whose weights were taken
    validation: dict[str, dict[str, float]]  # by domain and criterion, where there are rows to validate on


def trained(material: Material, recipe: Recipe, tick: Tick = lambda steps: None) -> Fit:
    """Trained on all domains; the weights are those of the step that the recipe asks for, or that validates best."""
    dataset = material.dataset
    built = recipe.built(material.input.shape, len(material.classes), recipe.seed)
    rows = [dataset.rows(name) for name in dataset.domains]
    assert dataset.validation is not None
    held = dataset.validation
    train, validation = [r[~held[r]] for r in rows], [r[held[r]] for r in rows]
    labels = [dataset.y[r] for r in train]
    criterion = loss_of(recipe.class_weight, labels, material.classes.tolist(), torch_device(recipe))
    net = Net(built.module, recipe.policy(built.module), criterion)
    check_net(net, material)
    recipe.algorithm.check(net, len(train))
    params = recipe.algorithm.init(net, net.params(), len(train), torch_generator(recipe.seed, "extra"))
    judged_on = [name for name, r in zip(dataset.domains, validation, strict=True) if len(r)]
    split = Split(tuple(train), tuple(r for r in validation if len(r)), ())
    job = Job(recipe.algorithm, recipe.protocol, split, recipe.seed, params)
    stack = Stack(net.to(torch_device(recipe)), _inputs(material, built, recipe), [job])
    with _threads(dataset.is_image):
        deployed, step, metrics = _best(stack, recipe, bool(judged_on), tick)
    model = Model(
        input=material.input,
        module=copy.deepcopy(built.module),
        spec=recipe.spec(dataset.is_image),
        batchnorm=net.policy,
        algorithm=recipe.algorithm,
        name=recipe.name,
        params={name: p.cpu().contiguous() for name, p in deployed.items()},  # in memory as they will be in a file
        classes=material.classes,
        device=recipe.device,
    )
    by_domain = {d: {c: values[i] for c, values in metrics.items()} for i, d in enumerate(judged_on)}
    return Fit(model, step, by_domain)


def check_net(net: Net, material: Material) -> None:
    """Where the net is the user's own, whether it reads these inputs and gives a logit per class."""
    classes = len(material.classes)
    try:
        with torch.no_grad():
            out: Any = net(net.params(), torch.zeros(2, *material.input.shape))
    except Exception as error:  # whatever a foreign module may raise
        why = str(error).strip().splitlines()
        shape = ", ".join(map(str, material.input.shape))
        raise UsageError(
            f"The net cannot read inputs (row, {shape}): {why[0] if why else type(error).__name__}"
        ) from error
    if not isinstance(out, Tensor) or tuple(out.shape) != (2, classes):
        got = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise UsageError(
            f"For 2 rows and {classes} classes the net must give logits [2, {classes}], but it gives {got}."
        )


def _inputs(material: Material, built: BuiltNet, recipe: Recipe) -> Inputs:
    device, dataset = torch_device(recipe), material.dataset
    transform = None
    if isinstance(material.input, ImageInput):
        transform = ImageTransform(material.input.size, built.normalization, find_augmentation(recipe.augment))
    x = resident(dataset.x, device) if fits(dataset.x, device) else dataset.x
    return Inputs(x, dataset.y, device, transform=transform)


def _best(stack: Stack, recipe: Recipe, judge: bool, tick: Tick) -> tuple[Params, int, dict[str, list[float]]]:
    """The deployed weights of the step asked for, or of the one that validates best, or else of the last."""
    protocol = recipe.protocol
    steps = (recipe.stop,) if recipe.stop is not None else protocol.evaluation_steps() if judge else (protocol.steps,)
    state, found, best = stack.start(), None, -math.inf
    for step in steps:
        state = stack.advance(state, step, tick)
        _check_finite(state.losses, step)
        deployed = stack.deploy(state)
        metrics = judged(stack, state, deployed)[0].source if judge else {}
        reached = score(_mean(metrics[recipe.criterion]), recipe.criterion) if metrics else 0.0
        if found is None or reached > best:
            best, found = reached, (tree.unstack(deployed)[0], step, metrics)
    assert found is not None
    return found


@contextmanager
def _threads(many: bool) -> Iterator[None]:
    """One thread for the small nets of tables, which more would only slow down; sums then run in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if many else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _mean(values: list[float]) -> float:
    """Over the domains that have one: without both classes there is no AUROC."""
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan


def _check_finite(losses: list[Tensor], step: int) -> None:
    if not all(bool(torch.isfinite(part).all()) for part in losses):
        raise UsageError(f"Training diverged within {step} steps: the loss is not finite. Choose a smaller lr.")
    losses.clear()
