"""Learners by name. The contract is in `contract.py`.

`StackLearner` (`stack_learner.py`) trains our algorithms as one stack. `ArrayLearner` (`array_learner.py`) is for what
is fitted once to arrays and then predicts, such as an estimator of scikit-learn: a subclass says how.
`@register_learner("name")` names a learner. Those of this package are in `learners/`, each in the file of its name,
which is imported when the learner is first asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from seqdg.base import UsageError
from seqdg.bench.array_learner import ArrayLearner, Arrays, Packed, Predict, take_logarithm
from seqdg.bench.contract import TRAINING, Candidate, Draft, Learner, OnStep
from seqdg.bench.stack_learner import STACK, StackLearner, build_stack, choose_rate, share_trainings
from seqdg.bench.trial import Group, Trial
from seqdg.core import import_plugin, is_registered, list_algorithms, list_origins, refuse_name, split_chain

__all__ = [
    "STACK",
    "TRAINING",
    "ArrayLearner",
    "Arrays",
    "Candidate",
    "Draft",
    "Learner",
    "OnStep",
    "Packed",
    "Predict",
    "StackLearner",
    "build_stack",
    "choose_rate",
    "count_work",
    "find_learner",
    "find_learner_of",
    "list_learners",
    "register_learner",
    "share_trainings",
    "take_logarithm",
]

# Learners of other projects, by the prefix of their names. Their modules stand above this package, so they are named
# here and imported when such a name is first asked for. That works in every process, also in a worker, where no command
# has registered anything.
FAMILIES = {"domainbed": "seqdg.interop.domainbed.classes"}
_learners: dict[str, Learner] = {}
Kind = TypeVar("Kind", bound=type[Learner])


def register_learner(name: str) -> Callable[[Kind], Kind]:
    """Name a learner that is no algorithm, so that `seqdg bench --algorithms NAME` runs it."""

    def register(kind: Kind) -> Kind:
        if name in list_algorithms():
            raise UsageError(f"'{name}' is the name of an algorithm. Give the learner {kind.__qualname__} another.")
        _load_learner(name)
        other = type(_learners[name]) if name in _learners else kind
        if (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
            raise UsageError(f"Two learners are named '{name}'. Rename one.")
        _learners[name] = kind()
        return kind

    return register


def find_learner(name: str) -> Learner:
    """Find what trains an algorithm: a registered learner of that name, or the stack that trains all algorithms."""
    first = split_chain(name)[0]
    prefix = first.partition(":")[0]
    if prefix in FAMILIES:
        member: Learner = importlib.import_module(FAMILIES[prefix]).make_learner(name)
        return member
    place, _, short = first.rpartition(":")
    if place:
        import_plugin(place)
    _load_learner(short)
    if short not in _learners and not is_registered(short):
        ours = {name: _list_files().get(name, type(_learners.get(name)).__module__) + "." for name in list_learners()}
        raise refuse_name(first, {**list_origins(), **ours})
    return _learners.get(short, STACK)


def find_learner_of(trial: Trial) -> Learner:
    """Find what trains a trial: the estimator or the algorithm that it carries, or else what its name says."""
    if trial.instance is not None:
        return STACK
    if trial.estimator is None:
        return find_learner(trial.algorithm)
    from seqdg.bench.estimator_learner import OwnEstimatorLearner  # now: scikit-learn takes a second

    return OwnEstimatorLearner(trial.estimator)


def list_learners() -> tuple[str, ...]:
    """List the names of learners that are not algorithms."""
    return tuple(sorted({*_learners, *_list_files()}))


@cache
def _list_files() -> dict[str, str]:
    """Return the modules of the learners of this package, by name; none is imported."""
    found = pkgutil.iter_modules([str(Path(__file__).with_name("learners"))])
    names = (module.name for module in found if not module.name.startswith("_"))
    return {name.replace("_", "-"): f"seqdg.bench.learners.{name}" for name in names}


def _load_learner(name: str) -> None:
    """Import the file of one of this package's learners."""
    if name in _list_files():
        importlib.import_module(_list_files()[name])


def count_work(group: Group) -> int:
    """Count the steps of all trainings of a group."""
    learner = find_learner_of(group.trials[0])
    return sum(learner.count_steps(trials[0]) for trials in group.trainings)
