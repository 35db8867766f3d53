"""What a learner is: it turns a group of trials into records, and everything above treats all alike."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch

from seqdg.base import UsageError, unknown
from seqdg.bench.task import Group, Session, Task, Trial
from seqdg.core import (
    Settings,
    describe_settings,
    flatten_settings,
    list_algorithms,
    parse_settings,
    shorten,
    with_settings,
)
from seqdg.data import STANDARD
from seqdg.nets import Net, NetSpec
from seqdg.results import Record
from seqdg.training import Protocol

TRAINING = (
    "steps", "batch", "evaluations", "optimizer", "lr", "momentum", "weight_decay", "precision",
    "schedule", "warmup", "drop_every", "drop", "domains_per_step", "members", "loss",
    "path", "layer_decay", "balance",
)  # fmt: skip
SPACES = ("usual", "domainbed")
DROPOUT = "dropout"  # of the net: a setting too
_NAMED = re.compile(r'^@register_learner\("([^"]+)"\)', re.MULTILINE)
OnStep = Callable[[int], None]  # called with the number of steps taken so far


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its settings, for a path through all domains but one, and how it is trained."""

    name: str
    settings: tuple[tuple[str, str], ...]  # every one, as text
    protocol: Protocol
    net: NetSpec | None = None  # where it is not the task's: a learner that builds its own says so
    dropout: float | None = None  # of the task's net, where it is another


@dataclass(frozen=True)
class Draft:
    """What a learner makes the candidates of an algorithm from."""

    name: str
    protocol: Protocol
    table: Mapping[str, Any] = field(default_factory=dict)  # the benchmark's settings for it
    settings: Mapping[str, str] = field(default_factory=dict)  # the user's, as text, which come before the benchmark's
    count: int = 1  # of candidates
    multiples: tuple[float, float] = (1.0, 1.0)  # of the learning rate, between which others are drawn
    sources: int = 0  # domains to learn from; 0: not known
    shape: tuple[int, ...] = ()  # of one input; (): not known
    space: str = "usual"  # one of SPACES, where candidates are drawn from


class Learner(ABC):
    """How trials of some algorithms are proposed, checked, grouped and trained."""

    name: str = ""  # that it is registered with
    takes_steps: ClassVar[bool] = True  # whether it trains step by step, with a learning rate
    trains_net: ClassVar[bool] = True  # whether it trains the task's net, which is built to check a plan
    simplicity: ClassVar[int] = 20  # rank from the simplest on, which have few parts to go wrong: a linear model is 0
    cost: ClassVar[int] = 6  # rank from the cheapest on, in the time that a comparison takes: a linear model is 0
    scaling: ClassVar[str] = STANDARD  # of the numbers of a table, where it trains no net
    most_work: ClassVar[int | None] = None  # rows x inputs x outputs up to which it is a usual candidate; None: always

    def rank_simplicity(self, name: str) -> tuple[int, int]:
        """Return a rank by which candidates are sorted from the simplest on; those of one rank stay in their order."""
        return self.simplicity, name.count("+")

    def rank_cost(self, name: str) -> int:
        """Return a rank by which candidates are sorted from the cheapest on."""
        return self.cost

    def check_saving(self) -> None:  # noqa: B027  nets can always be saved
        """Raise a UsageError where a model that it fits could not be saved."""

    def build_settings(self, name: str, **settings: Any) -> Settings:
        """Build what a user's data are fitted with: an algorithm, or settings alone."""
        raise UsageError(
            f"{shorten(name)} makes records of trials, and no model that predicts new rows: only `seqdg bench` runs it."
        )

    def list_classes(self, name: str) -> tuple[type, ...]:
        """List the classes whose code decides what a trial of this name computes."""
        return (type(self),)

    @abstractmethod
    def propose(self, draft: Draft) -> list[Candidate]:
        """Make candidates: the first as the draft says, the others with values drawn for what the user left open."""

    def check(self, trial: Trial, task: Task, net: Net | None) -> None:  # noqa: B027  most have nothing to check
        """Raise a UsageError where the trial cannot be trained on this task and net.

        net: the task's; it may be None where the learner trains none.
        """

    def check_device(self, trial: Trial, device: str) -> None:  # noqa: B027  most train anywhere
        """Raise a UsageError where the trial cannot be trained on this kind of device."""

    def caution(self, trial: Trial) -> list[str]:
        """Return sentences that warn of settings which will hardly work, such as an average over too few steps."""
        return []

    def share(self, trial: Trial, task: Task) -> Hashable:
        """Return what trials must have in common to be trained together; by default each is trained alone."""
        return trial.key

    def count_steps(self, trial: Trial) -> int:
        """Count the steps that the trial takes."""
        return trial.protocol.steps

    def time_step(self, group: Group, task: Task, device: torch.device) -> tuple[float, float]:
        """Return the seconds before the first step, and those of a step of the protocol of one training, all stages
        together, from a few steps taken now; 0 where none can be taken."""
        return 0.0, 0.0

    @abstractmethod
    def train(self, group: Group, session: Session, on_step: OnStep = lambda step: None) -> list[Record]:
        """Train and evaluate every trial of the group."""


def make_candidate(name: str, algorithm: Settings, protocol: Protocol) -> Candidate:
    return Candidate(name, tuple(sorted(describe_settings(algorithm).items())), protocol)


def apply_draft(draft: Draft, settings: Settings) -> Settings:
    """Return settings with the benchmark's values and, before those, the user's; refuse one that is not among them."""
    known = flatten_settings(settings)
    for name in (*draft.table, *draft.settings):
        if name not in known and name not in TRAINING:
            raise unknown("setting", name, (*known, *TRAINING), owner=shorten(draft.name))
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in draft.table.items() if k not in TRAINING}
    texts = {k: v for k, v in draft.settings.items() if k not in TRAINING}
    return parse_settings(with_settings(settings, values), texts)


_learners: dict[str, Learner] = {}
Kind = TypeVar("Kind", bound=type[Learner])


def register_learner(name: str) -> Callable[[Kind], Kind]:
    """Name a learner that is no algorithm, so that `seqdg bench --algorithms NAME` runs it."""

    def register(kind: Kind) -> Kind:
        if name in list_algorithms():
            raise UsageError(f"'{name}' is the name of an algorithm. Give the learner {kind.__qualname__} another.")
        other = type(_learners[name]) if name in _learners else kind
        same = (other.__module__, other.__qualname__) == (kind.__module__, kind.__qualname__)
        if not same or list_built_in().get(name, kind.__module__) != kind.__module__:
            raise UsageError(f"Two learners are named '{name}'. Rename one.")
        _learners[name], kind.name = kind(), name
        return kind

    return register


def find_registered(name: str) -> Learner | None:
    """Find a learner by the name that it is registered with; those of this package once their file is imported."""
    return _learners.get(name)


def list_registered() -> dict[str, str]:
    """Return where each learner that is not an algorithm comes from, by name."""
    registered = {name: f"{type(learner).__module__}." for name, learner in _learners.items()}
    return registered | {name: f"{module}." for name, module in list_built_in().items()}


@cache
def list_built_in() -> dict[str, str]:
    """Return the modules of this package's learners, by name. They are read, not imported: scikit-learn takes a
    second."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    texts = {f"{__package__}.{file.stem}": file.read_text(encoding="utf-8") for file in files}
    return {name: module for module, text in texts.items() for name in _NAMED.findall(text)}
