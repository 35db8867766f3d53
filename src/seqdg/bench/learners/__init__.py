"""Learners by name. A learner turns trials into records; `contract.py` says what it has to offer.

`StackLearner` trains our algorithms as one stack. `ArrayLearner` is for what is fitted once to arrays and then
predicts, such as an estimator of scikit-learn: a subclass says how, and `@register_learner("name")` names it. A file of
this folder is imported when one of its learners is first asked for.
"""

from __future__ import annotations

import importlib

from seqdg.base import find_family
from seqdg.bench.learners.contract import Learner, find_registered, list_built_in, list_registered
from seqdg.bench.trial import Trial
from seqdg.core import import_plugin, is_registered, list_origins, refuse_name, split_chain


def find_learner(name: str) -> Learner:
    """Find what trains an algorithm: a registered learner of that name, or the stack that trains all algorithms."""
    first = split_chain(name)[0]
    if (make_member := find_family(first.partition(":")[0])) is not None:
        member: Learner = make_member(name)
        return member
    module, _, short = first.rpartition(":")
    if module:
        import_plugin(module)
    if (built_in := list_built_in().get(short)) is not None:
        importlib.import_module(built_in)
    if (learner := find_registered(short)) is not None:
        return learner
    if not is_registered(short):
        raise refuse_name(first, {**list_origins(), **list_registered()})
    from seqdg.bench.learners.stack_learner import STACK  # now: it needs all that trains

    return STACK


def find_learner_of(trial: Trial) -> Learner:
    """Find what trains a trial: the estimator or the algorithm that it carries, or else what its name says."""
    if trial.estimator is not None:
        from seqdg.bench.learners.estimators import OwnEstimatorLearner  # now: scikit-learn takes a second

        return OwnEstimatorLearner(trial.estimator)
    if trial.instance is not None:
        from seqdg.bench.learners.stack_learner import STACK

        return STACK
    return find_learner(trial.algorithm)


def list_learners() -> tuple[str, ...]:
    """List the names of learners that are not algorithms."""
    return tuple(sorted(list_registered()))
