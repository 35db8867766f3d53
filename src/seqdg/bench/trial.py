"""A trial: one algorithm, one choice of held-out domains, one seed. Its key, and how trials are packed into stacks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

from seqdg.core.algorithm import Algorithm
from seqdg.core.registry import build
from seqdg.core.settings import adapt_to_path, describe_shape, format_settings, parse_settings
from seqdg.nets import NetSpec
from seqdg.results.record import make_key
from seqdg.training.protocol import Protocol
from seqdg.training.stack import optimizer_name, stage_bounds

DESCRIPTION = 1  # version of the canonical description: a change of meaning gives all trials new keys


@dataclass(frozen=True)
class Trial:
    """Everything that decides a trial's numbers. Only the first held-out domain is the target; a second one is held
    out with it for selection by leave-one-out within the sources."""

    data: str  # fingerprint of the data set
    net: NetSpec
    batchnorm: str  # policy
    weights: str | None  # sha256 of the weight file that the net starts from
    algorithm: str
    settings: tuple[tuple[str, str], ...]  # every one, as text
    protocol: Protocol
    held_out: tuple[str, ...]
    seed: int
    sources: int  # how many domains there are to learn from where only one is held out
    size: int = 0  # side of the images that enter the net
    augment: str = ""  # recipe, for images

    def description(self) -> dict[str, Any]:
        """Canonical: the same for the same trial, whatever the machine."""
        net = {k: v for k, v in _fields(self.net).items() if k != "weights"}
        return {
            "version": DESCRIPTION,
            "data": self.data,
            "net": {**net, "batchnorm_policy": self.batchnorm, "weights": self.weights},
            "algorithm": self.algorithm.rpartition(":")[2],
            "settings": dict(self.settings),
            "protocol": _fields(self.protocol),
            "held_out": list(self.held_out),
            "seed": self.seed,
            "size": self.size,
            "augment": self.augment,
        }

    @cached_property
    def key(self) -> str:
        return make_key(self.description())

    def built(self) -> Algorithm:
        """The algorithm with its settings, fitted to a shorter path where more than one domain is held out."""
        return _built(self.algorithm, self.settings, self.sources, self.sources + 1 - len(self.held_out))


@lru_cache(maxsize=4096)
def _built(name: str, settings: tuple[tuple[str, str], ...], sources: int, path: int) -> Algorithm:
    return adapt_to_path(parse_settings(build(name), dict(settings)), sources, path)


def _fields(plain: NetSpec | Protocol) -> dict[str, Any]:
    """As `asdict` of a dataclass without others in it, in a fraction of the time."""
    return {f.name: getattr(plain, f.name) for f in fields(plain)}


def settings_of(algorithm: Algorithm) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(format_settings(algorithm).items()))


@dataclass(frozen=True)
class Group:
    """Trials that train as one stack."""

    trials: tuple[Trial, ...]

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(" ".join(t.key for t in self.trials).encode()).hexdigest()[:24]

    @property
    def work(self) -> int:
        """In steps of one trial."""
        return sum(t.protocol.steps for t in self.trials)


def group(trials: Sequence[Trial], capacity: int) -> tuple[Group, ...]:
    """The whole plan, packed into stacks of at most `capacity`, always the same way."""
    alike: dict[Any, list[Trial]] = {}
    for trial in trials:
        alike.setdefault(_shared(trial), []).append(trial)
    packed = []
    for members in alike.values():
        count = -(-len(members) // capacity)
        size = -(-len(members) // count)
        packed += [Group(tuple(members[i : i + size])) for i in range(0, len(members), size)]
    return tuple(packed)


def _shared(trial: Trial) -> tuple[Any, ...]:
    """What trials must have in common to share a stack; rates and numeric settings are data."""
    p, algorithm = trial.protocol, trial.built()
    return (
        trial.data, trial.net, trial.batchnorm, trial.weights, trial.size, trial.augment, len(trial.held_out),
        trial.algorithm, describe_shape(algorithm), tuple(stage_bounds(algorithm, p.steps)),
        optimizer_name(algorithm, p),
        p.split, p.validation, p.test, p.steps, p.batch, p.evaluations, p.precision,
    )  # fmt: skip
