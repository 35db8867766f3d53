"""A trial: one algorithm, one choice of held-out domains, one seed. Its key, and how trials are packed into groups."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from seqdg.base import UsageError, describe_fields, restore_fields
from seqdg.core import (
    Algorithm,
    Averaging,
    adapt_to_path,
    build,
    flatten_settings,
    restore_settings,
    shorten,
    split_chain,
)
from seqdg.nets import NetSpec
from seqdg.results import VERSION, make_key
from seqdg.training import Protocol, list_seeds

Item = TypeVar("Item")


@dataclass(frozen=True)
class Trial:
    """Everything that decides a trial's numbers. Only the first held-out domain is the target; a second one is held
    out with it for selection by leave-one-out within the sources. A fixed split has all its test domains held out."""

    data: str  # fingerprint of the data set
    net: NetSpec
    batchnorm: str  # policy
    weights: str | None  # sha256 of the weight file that the net starts from
    algorithm: str
    settings: tuple[tuple[str, str], ...]  # as text, by name, as `describe_settings` gives them
    protocol: Protocol
    held_out: tuple[str, ...]
    seed: int
    sources: int  # how many domains there are to learn from where only one is held out
    size: int = 0  # side of the images that enter the net
    augment: str = ""  # recipe, for images
    instance: Algorithm | None = field(default=None, compare=False)  # the algorithm, where no name builds it
    estimator: Any = field(default=None, compare=False)  # of scikit-learn's kind, where the user gave an object

    @property
    def short_name(self) -> str:
        """The algorithm's name without the file that it comes from."""
        return shorten(self.algorithm)

    def description(self) -> dict[str, Any]:
        """Canonical: the same for the same trial, whatever the machine. What was added later is left out while it has
        the value that means "as before"."""
        net = {k: v for k, v in describe_fields(self.net).items() if k != "weights"}
        return {
            "version": VERSION,
            "data": self.data,
            "net": {**net, "batchnorm_policy": self.batchnorm, "weights": self.weights},
            "algorithm": self.short_name,
            "settings": dict(self.settings),
            "protocol": describe_fields(self.protocol),
            "held_out": list(self.held_out),
            "seed": self.seed,
            "size": self.size,
            "augment": self.augment,
            **({"together": self.together} if self.together else {}),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], algorithm: str, sources: int, weights: Any) -> Trial:
        """Rebuild the trial that is so described; the inverse of `description`.

        algorithm: its name, with the file that it comes from.   sources: how many domains there are but one.
        weights: the file that the net starts from.
        """
        net = dict(description["net"])
        policy, digest = net.pop("batchnorm_policy"), net.pop("weights")
        same = {name: description[name] for name in ("data", "seed", "size", "augment")}
        return cls(
            **same,
            net=NetSpec(**restore_fields(NetSpec, net), weights=weights),
            batchnorm=policy,
            weights=digest,
            algorithm=algorithm,
            settings=tuple(sorted(description["settings"].items())),
            protocol=Protocol(**restore_fields(Protocol, description["protocol"])),
            held_out=tuple(description["held_out"]),
            sources=sources,
        )

    @cached_property
    def key(self) -> str:
        return make_key(self.description())

    @cached_property
    def together(self) -> int:
        """How many rows of a domain are predicted at once, where the algorithm is transductive; else 0."""
        try:
            return self.build_algorithm().together
        except UsageError:  # the name is that of a learner, which is no algorithm
            return 0

    def build_algorithm(self) -> Algorithm:
        """Build the algorithm with its settings, for a shorter path where more than one domain is held out."""
        if self.instance is not None:
            return self.instance
        fixed = len(self.protocol.train_domains)
        lengths = (fixed or self.sources, fixed or self.sources + 1 - len(self.held_out))
        usual, path = map(self.protocol.count_domains, lengths)
        return _build(self.algorithm, self.settings, usual, path)

    @cached_property
    def members(self) -> tuple[Trial, ...]:
        """The trials that predict together as this one: itself, where it is no ensemble."""
        count = self.protocol.members
        if count == 1:
            return (self,)
        alone = replace(self, protocol=replace(self.protocol, members=1))
        return tuple(replace(alone, seed=seed) for seed in list_seeds(self.seed, count))

    @cached_property
    def training(self) -> Trial:
        """The trial whose training gives this one's weights: the same without the average around the algorithm."""
        if self.instance is None and len(split_chain(self.algorithm)) == 1:
            return self
        algorithm = self.build_algorithm()
        if not isinstance(algorithm, Averaging):
            return self
        kept = flatten_settings(algorithm.base)
        return replace(
            self,
            algorithm="+".join(split_chain(self.algorithm)[:-1]),
            settings=tuple((name, text) for name, text in self.settings if name in kept),
            instance=None if self.instance is None else algorithm.base,
        )


@lru_cache(maxsize=4096)
def _build(name: str, settings: tuple[tuple[str, str], ...], usual: int, path: int) -> Algorithm:
    return adapt_to_path(restore_settings(build(name), dict(settings)), usual, path)


@dataclass(frozen=True)
class Group:
    """Trials that are trained together."""

    trials: tuple[Trial, ...]
    compiles: bool = False  # whether their step is compiled

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(" ".join(trial.key for trial in self.trials).encode()).hexdigest()[:24]

    @cached_property
    def trainings(self) -> tuple[tuple[Trial, ...], ...]:
        """Its trials, those that share a training together."""
        return tuple(tuple(trials) for trials in _collect_trainings(self.trials).values())


def group_trials(trials: Sequence[Trial], capacity: int, share: Callable[[Trial], Hashable]) -> tuple[Group, ...]:
    """Pack the whole plan into groups of at most `capacity` trainings, always the same way.

    share: what trials must have in common to be trained together, the number of members of an ensemble among it. Trials
    that share a training stay together, and so do the members of an ensemble, which are as many trainings.
    """
    packed = []
    for sharing in collect_by(trials, share).values():
        trainings = list(_collect_trainings(sharing).values())
        count = -(-len(trainings) // max(1, capacity // sharing[0].protocol.members))
        size = -(-len(trainings) // count)
        parts = (trainings[i : i + size] for i in range(0, len(trainings), size))
        packed += [Group(tuple(trial for one in part for trial in one)) for part in parts]
    return tuple(packed)


def join_trainings(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Order trials as a group has them: those that share a training next to each other."""
    return tuple(trial for one in _collect_trainings(trials).values() for trial in one)


def collect_by(items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """Collect what has the same key, in the order in which it comes."""
    parts: dict[Any, list[Item]] = {}
    for item in items:
        parts.setdefault(key(item), []).append(item)
    return parts


def _collect_trainings(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Collect trials by the key of their training."""
    return collect_by(trials, lambda trial: trial.training.key)
