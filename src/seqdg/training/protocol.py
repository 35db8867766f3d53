"""How a trial is trained and judged: its split, its length, its optimizer, its loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import cross_entropy

from seqdg.base import UsageError, added_field, unknown
from seqdg.core import Algorithm
from seqdg.data import SCALINGS, STANDARD
from seqdg.nets import Criterion
from seqdg.training.optimizers import OPTIMIZERS

SPLITS = ("random", "official")
TESTS = ("whole", "split")
PRECISIONS = ("float32", "tf32", "bf16", "float64")
SCHEDULES = ("constant", "cosine", "steps")
PATHS = ("random", "fixed")
BALANCES = _, BY_CLASS = ("rows", "class")  # what minibatches of a domain are drawn from alike
MOST = 10**9  # steps, rows of a batch, evaluations or members
AUTO = "auto"  # cross-entropy of classes, the squared loss of numbers
NUMBER_LOSSES = ("squared", "absolute", "huber")
_CHOICES = {
    "split": SPLITS, "test": TESTS, "precision": PRECISIONS, "optimizer": ("auto", *OPTIMIZERS),
    "schedule": SCHEDULES, "scaling": SCALINGS, "loss": (AUTO, *NUMBER_LOSSES), "path": PATHS,
    "balance": BALANCES,
}  # fmt: skip
_RATE = lambda value: math.isfinite(value) and value >= 0, "a finite number of at least 0"
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {  # what is allowed of a field, and how an error says it
    "domains_per_step": (lambda n: isinstance(n, int) and n >= 0, "a number of domains, or 0 for all"),
    "calibrate": (lambda value: isinstance(value, bool), "true or false"),
    "lr": _RATE,
    "momentum": _RATE,
    "weight_decay": _RATE,
    "validation": (lambda share: 0 < share < 1, "a share between 0 and 1"),
    "warmup": (lambda share: 0 <= share < 1, "a share of the steps, from 0 to below 1"),
    "drop_every": (lambda share: 0 < share <= 1, "a share of the steps, above 0"),
    "layer_decay": (lambda factor: 0 < factor <= 1, "a factor above 0 and at most 1"),
    "drop": (lambda factor: 0 < factor <= 1, "a factor above 0 and at most 1"),
}


@dataclass(frozen=True)
class Protocol:
    """What a benchmark fixes for every algorithm; an algorithm's own table may set its training fields.

    split: `random` draws each domain's validation rows from the trial's seed, `official` takes the data set's own.
    validation: share of each domain for validation under a random split.
    test: a held-out domain is tested `whole`, or only on the rows that its `split` gives to validation (VLCS).
    """

    split: str = "random"
    validation: float = 0.3
    test: str = "whole"
    steps: int = 1000
    batch: int = 32  # per domain
    evaluations: int = 10  # spread over the last `steps` steps; the last is after the last step
    optimizer: str = "auto"  # the algorithm's own
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-5
    # tf32: of matrix products on a GPU; bf16: of gradients, weights stay float32 and predict in tf32; float64: the same
    # on every machine
    precision: str = "float32"
    # Of the learning rate. cosine: falls to 0; steps: falls by the factor `drop` after every share `drop_every`.
    schedule: str = added_field("constant")
    warmup: float = added_field(0.0)  # share of the steps over which the rate first rises from 0, linearly
    drop_every: float = added_field(0.3)  # share of the steps
    drop: float = added_field(0.1)
    domains_per_step: int = added_field(0)  # how many of the sources a step meets, drawn at random; 0: all
    scaling: str = added_field(STANDARD)  # how a trial scales the numbers of a table that is not scaled yet
    calibrate: bool = added_field(False)  # divide logits by a temperature that fits the sources' validation rows
    members: int = added_field(1)  # how many trainings, from other seeds, predict together (a deep ensemble)
    loss: str = added_field(AUTO)  # of numbers: squared (auto), absolute or huber
    # Of a fixed split, in place of every domain held out in turn: the domains that are trained on, and those that are
    # neither trained on nor tested, but may choose. Empty: the split is not fixed.
    train_domains: tuple[str, ...] = added_field(())
    validation_domains: tuple[str, ...] = added_field(())
    layer_decay: float = added_field(1.0)  # factor of the learning rate for each block that weights are below the head
    balance: str = added_field("rows")  # class: every class of a domain is drawn alike; rows: every row is
    held_out_together: int = added_field(
        1
    )  # domains that each trial holds out at once, every choice of so many in turn
    path: str = added_field("random")  # in which order a step visits the domains; fixed: in that of the data set

    def __post_init__(self) -> None:
        for name in ("train_domains", "validation_domains"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a stored description has lists
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown(name, str(getattr(self, name)), allowed)
        for name in ("steps", "batch", "evaluations", "members", "held_out_together"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value}, but at least 1 is needed.")
            if value > MOST:
                raise UsageError(f"{name} is {value}, but at most {MOST} are possible.")
        for name, (is_allowed, wanted) in _RULES.items():
            if not is_allowed(getattr(self, name)):
                raise UsageError(f"{name} is {getattr(self, name)!r}, but it must be {wanted}.")

    @property
    def is_fixed(self) -> bool:
        """Whether the split is fixed, so that all test domains are held out at once."""
        return bool(self.train_domains)

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate changes from step to step."""
        return self.schedule != "constant" or self.warmup > 0

    @property
    def schedule_fields(self) -> tuple[object, ...]:
        """All that `scale_rate` depends on, but for the step and the total."""
        return self.steps, self.schedule, self.warmup, self.drop_every, self.drop

    def scale_rate(self, step: int, total: int) -> float:
        """Return what the schedule makes of the learning rate at a step (from 0) of a training of `total` steps.

        Where stages take more than the protocol's steps, what they take in excess, at the start, has a schedule of its
        own: MetaReg's second stage is a whole training.
        """
        extra = max(0, total - self.steps)
        first, length = (0, extra) if step < extra else (extra, total - extra)
        share = (step - first) / length
        if share < self.warmup:
            return (step - first + 1) / (self.warmup * length + 1)
        if self.schedule == "steps":
            return self.drop ** math.floor(share / self.drop_every + 1e-9)
        rest = (share - self.warmup) / (1 - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * rest)) if self.schedule == "cosine" else 1.0

    def count_domains(self, sources: int) -> int:
        """Count the domains that a step meets of so many sources. Where one source less is learned from, for selection
        by leave-one-out, a step that met all meets all that are left."""
        return min(self.domains_per_step, sources) or sources

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and inputs."""
        return torch.float64 if self.precision == "float64" else torch.float32


def choose_optimizer(algorithm: Algorithm, protocol: Protocol) -> str:
    """Name the optimizer: the protocol's, or the algorithm's own where the protocol leaves it open."""
    return algorithm.optimizer if protocol.optimizer == "auto" else protocol.optimizer


def end_stages(algorithm: Algorithm, steps: int) -> list[int]:
    """List after how many steps each stage of the algorithm ends. Where the shares sum above 1, all stages together
    take more than `steps` steps."""
    shares = [share for share, _ in algorithm.stages()]
    if sum(shares) < 1.0 - 1e-9:
        raise UsageError(
            f"The stages of {type(algorithm).__name__} take {sum(shares):g} of the steps, but they must take all of "
            "them: let their shares sum to 1, or above 1 where stages come on top."
        )
    return [round(steps * sum(shares[: i + 1])) for i in range(len(shares))]


def count_steps(algorithm: Algorithm, protocol: Protocol) -> int:
    """Count the steps of a training, all stages together."""
    return end_stages(algorithm, protocol.steps)[-1]


def list_evaluation_steps(algorithm: Algorithm, protocol: Protocol) -> tuple[int, ...]:
    """List after how many steps a training is evaluated: spread over the last `protocol.steps` of them, so that all
    algorithms are evaluated equally often, and none before what comes on top of the protocol's steps is done."""
    count, before = min(protocol.evaluations, protocol.steps), count_steps(algorithm, protocol) - protocol.steps
    return tuple(before + round(protocol.steps * (i + 1) / count) for i in range(count))


# ---------------------------------------------------------------------------- losses


@dataclass(frozen=True)
class WeightedCrossEntropy:
    """Mean over rows of weight[y] * cross-entropy."""

    weight: Tensor  # (class,), 1 on average over the rows that are drawn; on the device that trains

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        weight = self.weight.to(logits.dtype).index_select(0, y)
        return (weight * cross_entropy(logits, y, reduction="none")).mean()


@dataclass(frozen=True)
class NumberLoss:
    """Mean over rows of a loss of the difference d = f(x) - y, in units of the sources' deviation.

    squared: d^2     absolute: |d|     huber: d^2 / 2 where |d| < 1, else |d| - 1/2  (Huber, 1964)
    """

    name: str = "squared"
    is_regression: ClassVar[bool] = True  # so that a net knows its task

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """outputs: (row, 1)   y: (row,)"""
        difference = outputs.squeeze(-1) - y
        if self.name == "squared":
            return (difference**2).mean()
        size = difference.abs()
        if self.name == "absolute":
            return size.mean()
        return torch.where(size < 1.0, difference**2 / 2, size - 0.5).mean()


@dataclass(frozen=True)
class RowWeighted:
    """Mean over rows of w * loss, of targets (row, 2): the label or number of each row, and its weight w.

    The mean divides by the number of rows, so that a minibatch of heavy rows counts more than one of light rows.
    """

    criterion: Criterion

    @property
    def is_regression(self) -> bool:
        return bool(getattr(self.criterion, "is_regression", False))

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        y, weight = targets.unbind(-1)
        y = y if self.is_regression else y.long()
        each: Tensor = vmap(lambda row, target: self.criterion(row, target))(outputs.unsqueeze(1), y.unsqueeze(1))
        return (weight * each).mean()


def find_number_loss(name: str) -> NumberLoss:
    """Return the loss of that name; `auto` is the squared one."""
    return NumberLoss("squared" if name == AUTO else name)


def make_loss(
    class_weight: Any, labels: Sequence[Tensor], classes: Sequence[Any], device: torch.device | str = "cpu"
) -> Criterion:
    """Make the loss for a class weight, from the labels (row,) of every source as class numbers.

    None: all rows weigh the same.   "balanced": every class weighs the same over minibatches of equal size from every
    source.   A mapping: classes with their weights, 1 where missing.
    """
    if class_weight is None:
        return cross_entropy
    shares = torch.stack([torch.bincount(y, minlength=len(classes)) / len(y) for y in labels]).double().mean(0)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise unknown("class weight", class_weight, ("balanced",))
        weight = torch.where(shares > 0, 1 / shares.clamp(min=1e-12), 0.0)
    elif isinstance(class_weight, Mapping):
        weight = torch.tensor(_read_weights(class_weight, classes), dtype=torch.float64)
    else:
        raise UsageError(f"class_weight is {class_weight!r}, but it must be None, 'balanced', or a weight by class.")
    mean = (weight * shares).sum()
    if not float(mean) > 0:
        raise UsageError("class_weight gives no weight to any row: give at least one class a positive weight.")
    return WeightedCrossEntropy((weight / mean).float().to(device))


def _read_weights(table: Mapping[Any, Any], classes: Sequence[Any]) -> list[float]:
    names = [str(c) for c in classes]
    by_name = {str(key): value for key, value in table.items()}
    for name, value in by_name.items():
        if name not in names:
            raise unknown("class", name, names)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value < float("inf"):
            raise UsageError(f"The weight of class {name} is {value!r}, but it must be a number of at least 0.")
    return [float(by_name.get(name, 1.0)) for name in names]
