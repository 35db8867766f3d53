"""The candidates of a comparison: the usual ones for the data at hand, or those that the user names or gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seqdg.base import UsageError
from seqdg.bench import (
    Learner,
    OwnEstimator,
    OwnEstimatorLearner,
    find_learner,
    is_estimator,
    name_estimator,
)
from seqdg.data import Dataset
from seqdg.estimator.compare.folds import Contender, Sweep
from seqdg.estimator.domain_estimator import DomainEstimator

NETS = ("agg", "agg+ema", "coral+ema", "fo-s-mldg+ema", "ffo-s-mldg+ema")
LINEAR, LINEAR_NUMBERS = "logistic", "ridge"
POOLED = ("hist-gradient-boosting", "random-forest", "extra-trees", "svc", "knn")
ALL_USUAL = (*NETS, LINEAR, LINEAR_NUMBERS, *POOLED)


def list_usual(dataset: Dataset) -> tuple[str, ...]:
    """List the usual candidates: nets, and for rows of numbers what people take who train no net."""
    if len(dataset.shape) != 1:
        return NETS
    return (*NETS, LINEAR_NUMBERS if dataset.is_regression else LINEAR, *POOLED)


def choose_learners(
    candidates: Sequence[Any] | None, baseline: str | None, sweep: Sweep
) -> tuple[dict[str, Learner], list[str]]:
    """Return what trains each candidate, by its name, and notes on those that these data cannot train.

    Where all that were named are such, the first one's reason is raised.
    """
    if isinstance(candidates, str) or (candidates is not None and is_estimator(candidates)):
        raise UsageError(f"candidates is {candidates!r}, but it must be a list, such as [{candidates!r}].")
    named = name_candidates(list_usual(sweep.user_data.dataset) if candidates is None else candidates)
    learners = {**({baseline: find_learner(baseline)} if baseline and candidates is not None else {}), **named}
    if not learners:
        raise UsageError("No candidate was named. `seqdg list algorithms` shows all.")
    errors: dict[str, UsageError] = {}
    for name, learner in learners.items():
        contender = Contender(name, learner.build_settings(name), sweep.recipe.protocol.lr)
        try:
            nests = sweep.check(contender)
        except UsageError as error:
            errors[name] = error
            continue
        work = measure_work(sweep.user_data.dataset)
        if candidates is None and work > (learner.most_work or work):
            errors[name] = UsageError("for so many rows, inputs and classes it would take minutes. Name it to have it.")
        if candidates is None and sweep.within and not nests and len(sweep.domains) > 2:
            errors[name] = UsageError(
                f"pairs of the {len(sweep.domains)} domains are held out to judge the choice, and what is left is too "
                "little for it. Name it to have it."
            )
    if all(name in errors for name in named or learners):
        raise next(iter(errors.values()))
    notes = [f"{name} was left out: {error}" for name, error in errors.items()]
    if baseline in learners and baseline not in named and baseline not in errors:
        notes.append(f"{baseline} was not named, but is compared too, as the baseline, and may win.")
    return {name: learner for name, learner in learners.items() if name not in errors}, notes


def measure_work(dataset: Dataset) -> int:
    """Multiply rows, inputs and outputs; two classes are one output, as a number is."""
    classes = len(dataset.classes)
    return len(dataset.y) * math.prod(dataset.shape) * (classes if classes > 2 else 1)


def name_candidates(candidates: Sequence[Any]) -> dict[str, Learner]:
    """Name every candidate: those that are names by themselves, objects by their class, numbered where it recurs."""
    learners: dict[str, Learner] = {}
    for candidate in candidates:
        if isinstance(candidate, str):
            learners[candidate] = find_learner(candidate)
            continue
        if isinstance(candidate, DomainEstimator) or not is_estimator(candidate):
            raise UsageError(
                f"A candidate is {_describe(candidate)}, but it must be a name, such as 'agg+ema' or 'logistic', or "
                "an estimator or pipeline of scikit-learn. How nets are trained is said by `estimator`."
            )
        name = _make_unique(name_estimator(candidate), learners)
        learners[name] = OwnEstimatorLearner(OwnEstimator(candidate))
    return learners


def _make_unique(name: str, taken: Mapping[str, Any]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}-{number}", number + 1
    return unique


def _describe(candidate: Any) -> str:
    return f"the class {candidate.__name__}" if isinstance(candidate, type) else f"{candidate!r}"
