"""A user's data as a task, for the same pipeline as a benchmark's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seqdg.base import UsageError
from seqdg.bench import RowsInMemory, Task
from seqdg.estimator.inputs import ImageInput, TableInput
from seqdg.estimator.recipe import CENTERED, Recipe
from seqdg.estimator.user_data import UserData
from seqdg.nets import Net, NetSpec
from seqdg.training import find_number_loss


def make_task(user_data: UserData, recipe: Recipe, scaled: bool = True) -> tuple[Task, Net]:
    """Make the task and its net. scaled: whether the numbers of a table are scaled already, once for all trials."""
    is_image = isinstance(user_data.input, ImageInput)
    spec = recipe.choose_spec(is_image)
    built = recipe.build_net(user_data.input.shape, user_data.dataset.outputs, recipe.seed)
    numbers = len(user_data.input.preprocessing.numeric) if isinstance(user_data.input, TableInput) else None
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
    _check_net(net, user_data)
    return task, net


def _check_net(net: Net, user_data: UserData) -> None:
    """Check that a net, which may be the user's own, reads these inputs and gives a logit per class, or a number."""
    outputs = user_data.dataset.outputs
    try:
        with torch.no_grad():
            out: Any = net(net.params(), torch.zeros(2, *user_data.input.shape))
    except Exception as error:  # whatever a foreign module may raise
        why = str(error).strip().splitlines()
        shape = ", ".join(map(str, user_data.input.shape))
        raise UsageError(
            f"The net cannot read inputs (row, {shape}): {why[0] if why else type(error).__name__}"
        ) from error
    if not isinstance(out, Tensor) or tuple(out.shape) != (2, outputs):
        got = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        wanted = (
            f"and {outputs} classes the net must give logits" if len(user_data.classes) else "the net must give numbers"
        )
        raise UsageError(f"For 2 rows {wanted} [2, {outputs}], but it gives {got}.")
