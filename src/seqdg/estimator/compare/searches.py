"""The settings that a comparison tries: a candidate's own as they are, a grid of the user's, or some that are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seqdg.base import UsageError, unknown
from seqdg.bench import (
    RATE,
    Fixed,
    Learner,
    Optuna,
    OwnEstimatorLearner,
    Proposal,
    Search,
    draw_proposals,
    find_learner,
    make_grid,
    split_settings,
)
from seqdg.core import flatten_settings, parse_settings, shorten
from seqdg.estimator.compare.candidates import ALL_USUAL
from seqdg.estimator.recipe import Recipe, to_plain

SAMPLERS = ("random", "optuna")


def make_searches(
    learners: Mapping[str, Learner], settings: Mapping[str, Mapping[str, Any]], count: int, sampler: str, recipe: Recipe
) -> dict[str, Search]:
    """Make a search for every candidate: its settings as they are, a grid of them, or `count` that are drawn."""
    for name in settings:
        if name not in learners:
            raise unknown("candidate to compare", name, learners)
    searches: dict[str, Search] = {}
    for name, learner in learners.items():
        tried = _expand_settings(name, learner, settings.get(name, {}), recipe)
        fixed = [*settings.get(name, {}), *([] if learner.takes_steps else [RATE])]
        if len(tried) > 1 and count > 1:
            raise UsageError(f"{name} has a grid of settings and a search for others: choose one of the two.")
        if count > 1 and sampler == "optuna":
            searches[name] = Optuna(tried[0], count, recipe.seed, fixed=fixed)
        else:
            searches[name] = Fixed(
                tried if len(tried) > 1 else draw_proposals(tried[0], count, recipe.seed, fixed=fixed)
            )
    return searches


def _expand_settings(name: str, learner: Learner, values: Mapping[str, Any], recipe: Recipe) -> list[Proposal]:
    """List every combination of the values of an algorithm's settings and of its learning rate."""
    if isinstance(learner, OwnEstimatorLearner):
        return [Proposal(learner.build_settings(name, **values), recipe.protocol.lr)]
    if RATE in values and not learner.takes_steps:
        raise UsageError(f"{name} has no learning rate: leave {RATE} out.")
    rate = values.get(RATE, recipe.protocol.lr)
    rates = [to_plain(lr) for lr in (rate if isinstance(rate, list) else [rate])]
    if not rates:
        raise UsageError(f"The grid gives no value for {RATE}: give at least one.")
    for lr in rates:
        if isinstance(lr, bool) or not isinstance(lr, int | float):
            raise UsageError(f"{RATE} of {name} is {lr!r}, but it must be a number.")
        replace(recipe.protocol, lr=lr)  # raises where it cannot be one
    settings = make_grid(learner.build_settings(name), {k: v for k, v in values.items() if k != RATE})
    return [Proposal(algorithm, float(lr)) for algorithm in settings for lr in rates]


def parse_settings_texts(texts: Sequence[str], candidates: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Parse texts such as `fo-s-mldg.alpha=0.1` into the settings that `compare` takes for the same algorithms."""
    settings: dict[str, dict[str, Any]] = {}
    full = {shorten(name): name for name in candidates or ALL_USUAL}  # with the file that an algorithm comes from
    for short, values in split_settings(texts, candidates or ALL_USUAL).items():
        if not values:  # of a candidate that may not be among those of these data
            continue
        name = full[short]
        rest = {setting: text for setting, text in values.items() if setting != RATE}
        built = parse_settings(find_learner(name).build_settings(name), rest, name)
        parsed = {setting: flatten_settings(built)[setting] for setting in rest}
        settings[name] = {**parsed, **({RATE: _parse_rate(name, values[RATE])} if RATE in values else {})}
    return settings


def _parse_rate(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{RATE} of {name} is '{text}', but it must be a number.") from None
