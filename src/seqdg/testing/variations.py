"""Checks that vary the settings: each acts, as a number or as a tensor, is printed and read back, and is explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from seqdg.base import Episode, Params, UsageError, tree
from seqdg.core import (
    Algorithm,
    collect_numbers,
    collect_rules,
    flatten_settings,
    format_settings,
    list_alone,
    parse_settings,
    with_numbers,
    with_settings,
)
from seqdg.nets import Net
from seqdg.testing.case import (
    Case,
    Violation,
    assert_same,
    begin_walk,
    compute_everything,
    measure_difference,
    predict_deployed,
    stack_trials,
    walk,
)

EPISODES = 12


class Variation(NamedTuple):
    """One setting, or one position of it, changed."""

    name: str  # `alpha`, or `alpha_2` for a position
    before: Algorithm
    after: Algorithm


def list_variations(case: Case) -> Iterator[Variation]:
    """Yield every setting with another value that is allowed; one that may differ by position also as a tuple."""
    alone = list_alone(case.algorithm)
    for name, (_, rule) in collect_rules(case.algorithm).items():
        value = flatten_settings(case.algorithm)[name]
        if name in alone:  # another value is refused
            continue
        if isinstance(value, str):
            for choice in rule.get("choices", ()):
                if choice != value:
                    yield Variation(name, case.algorithm, with_settings(case.algorithm, {name: choice}))
        elif isinstance(value, bool):
            yield Variation(name, case.algorithm, with_settings(case.algorithm, {name: not value}))
        elif isinstance(value, tuple):
            yield from _vary_positions(case, case.algorithm, name, value)
        else:
            yield Variation(name, case.algorithm, _change_setting(case, case.algorithm, name, None))
            if rule.get("per_position"):
                longest = find_longest(case.algorithm, name, case.net, case.sources)
                yield from _vary_positions(case, with_settings(case.algorithm, {name: longest}), name, longest)


def find_longest(algorithm: Algorithm, name: str, net: Net, sources: int) -> tuple[Any, ...]:
    """Return the longest tuple of a setting's first value that the algorithm takes for so many source domains."""
    value = flatten_settings(algorithm)[name]
    first = value[0] if isinstance(value, tuple) else value
    for length in range(sources + 1, 0, -1):
        if _is_allowed(algorithm, {name: (first,) * length}, net, sources):
            return (first,) * length
    raise Violation(f"{name} is said to differ by position, but {sources} source domains take no tuple of it.")


def _vary_positions(case: Case, before: Algorithm, name: str, values: tuple[Any, ...]) -> Iterator[Variation]:
    for i in range(len(values)):
        yield Variation(f"{name}_{i + 1}", before, _change_setting(case, before, name, i))


def _change_setting(case: Case, algorithm: Algorithm, name: str, position: int | None) -> Algorithm:
    value = flatten_settings(algorithm)[name]
    old = value if position is None else value[position]
    others = (round(1.5 * old + 0.1, 12), 0.5 * old)
    if isinstance(old, int):
        searched = collect_rules(algorithm)[name][1].get("search")
        others = (old + 1, old - 1, *(v for v in (searched if isinstance(searched, tuple) else ()) if v != old))
    for new in others:
        changed = new if position is None else (*value[:position], new, *value[position + 1 :])
        if _is_allowed(algorithm, {name: changed}, case.net, case.sources):
            return with_settings(algorithm, {name: changed})
    raise Violation(f"{name} is {value}, and it allows none of {others} instead.")


def _is_allowed(algorithm: Algorithm, settings: dict[str, Any], net: Net, sources: int) -> bool:
    try:
        with_settings(algorithm, settings).check(net, sources)
    except UsageError:
        return False
    return True


def check_settings_act(case: Case) -> None:
    """Each setting changes the direction of a stage, or what init, stages or deploy make of the algorithm."""
    free = list_inert(case.algorithm)
    # A probability need not act in each episode.
    later = [partial(_compute_outcome, case, seed=seed) for seed in range(1, EPISODES)]
    ways = [cache(how) for how in (partial(_compute_outcome, case), partial(_follow, case), *later)]
    for name, before, after in list_variations(case):
        if name in free:
            continue
        if all(measure_difference(how(before), how(after))[1] <= 1e-9 for how in ways):
            old, new = flatten_settings(before), flatten_settings(after)
            setting = name if name in old else name.rpartition("_")[0]
            raise Violation(
                f"{name} is ignored: {setting} = {new[setting]} instead of {old[setting]} changes no direction. "
                "A setting that need not is named in the class variable `inert`."
            )


def list_inert(algorithm: Algorithm) -> set[str]:
    """Return the settings that need not change the direction, those of a wrapped base included."""
    inner = [list_inert(v) for f in fields(algorithm) if isinstance(v := getattr(algorithm, f.name), Algorithm)]
    return set(type(algorithm).inert).union(*inner)


def _compute_outcome(case: Case, algorithm: Algorithm, seed: int = 0) -> dict[str, Tensor]:
    """Return all that is trained and served: not the losses, which nothing follows."""
    values = compute_everything(
        algorithm, case.net, case.draw_weights(0, algorithm), case.draw_episode(seed), case.draw_probe()
    )
    shares = {f"the share of stage {k + 1}": torch.tensor(s) for k, (s, _) in enumerate(algorithm.stages())}
    return shares | {what: value for what, value in values.items() if not what.startswith("the loss")}


def _follow(case: Case, algorithm: Algorithm) -> dict[str, Tensor]:
    """Return what is predicted along a short training, where the algorithm remembers something."""
    params, episode, probe = case.draw_weights(0, algorithm), case.draw_episode(), case.draw_probe()
    if not algorithm.memory(case.net, params, case.sources):
        return {}
    walked = walk(algorithm, case.net, episode, begin_walk(algorithm, case.net, params, episode))
    return {
        f"the prediction after {m.step} steps": predict_deployed(algorithm, case.net, m.params, m.memory, probe)
        for m in walked
        if m.is_evaluated
    }


def check_one_for_all_positions(case: Case) -> None:
    """A single number acts as a tuple that repeats it."""
    for name, (_, rule) in collect_rules(case.algorithm).items():
        if rule.get("per_position") and not isinstance(flatten_settings(case.algorithm)[name], tuple):
            longest = find_longest(case.algorithm, name, case.net, case.sources)
            tuples = with_settings(case.algorithm, {name: longest})
            what = f"{name} = {longest} does not act as {name} = {longest[0]}"
            assert_same(_compute_outcome(case, tuples), _compute_outcome(case, case.algorithm), what)


def check_tensor_settings(case: Case) -> None:
    """Settings as 0-d tensors, another in each trial of a stack, act as the numbers do."""
    for algorithm in dict.fromkeys((case.algorithm, *(v.before for v in list_variations(case)))):
        if collect_numbers(algorithm):
            _assert_tensors_act(case, algorithm)


def _assert_tensors_act(case: Case, algorithm: Algorithm) -> None:
    settings = [algorithm, *(_scale_numbers(case, algorithm, by) for by in (0.9, 0.8))]
    trials = [(case.draw_weights(s, a), case.draw_episode(s), case.draw_probe(s)) for s, a in enumerate(settings)]
    for params, _, _ in trials:
        if {n: w.shape for n, w in params.items()} != {n: w.shape for n, w in trials[0][0].items()}:
            raise Violation("a numeric setting changes the shapes of the weights; declare it with static=True.")
    columns = tree.stack(
        [{k: torch.tensor(v, dtype=torch.float64) for k, v in collect_numbers(a).items()} for a in settings]
    )

    def run(values: Params, params: Params, episode: Episode, x: Tensor) -> dict[str, Tensor]:
        return compute_everything(with_numbers(algorithm, values), case.net, params, episode, x)

    together = tree.unstack(vmap(run)(columns, *stack_trials(trials)))
    for setting, values, trial, got in zip(settings, tree.unstack(columns), trials, together, strict=True):
        what = f"as tensors, {_format_numbers(setting)} do not act as numbers do"
        assert_same(got, compute_everything(setting, case.net, *trial), what)
        assert_same(run(values, *trial), got, what)


def _scale_numbers(case: Case, algorithm: Algorithm, by: float) -> Algorithm:
    """Return the algorithm with smaller numbers, where the rules allow them."""
    for path, value in collect_numbers(algorithm).items():
        try:
            changed = with_numbers(algorithm, {**collect_numbers(algorithm), path: by * float(value)})
            changed.check(case.net, case.sources)
        except UsageError:
            continue
        algorithm = changed
    return algorithm


def _format_numbers(algorithm: Algorithm) -> str:
    return ", ".join(f"{path} = {float(value):.4g}" for path, value in collect_numbers(algorithm).items())


def check_round_trip(case: Case) -> None:
    """Printed settings, read into the algorithm as it was before they changed, give the changed algorithm."""
    pairs = [(case.algorithm, case.algorithm), *((v.before, v.after) for v in list_variations(case))]
    for before, after in pairs:
        texts = format_settings(after)
        back = flatten_settings(parse_settings(before, texts))
        for name, value in flatten_settings(after).items():
            if (type(value), value) != (type(back[name]), back[name]):
                raise Violation(f"{name} = {value!r} is printed as '{texts[name]}' and read back as {back[name]!r}.")


def check_documented(case: Case) -> None:
    """The docstring cites a paper with its year and explains each setting after its name and a colon."""
    kind, settings = type(case.algorithm), [f.name for f in fields(case.algorithm)]
    bases = [v for name in settings if isinstance(v := getattr(case.algorithm, name), Algorithm)]
    for who in (case.algorithm, *bases):
        kind, doc = type(who), type(who).__dict__.get("__doc__") or ""
        if not doc or doc.startswith(f"{kind.__name__}("):
            raise Violation(f"{kind.__name__} has no docstring.")
        if not re.search(r"\b(19|20)\d\d\b", doc):
            raise Violation(
                f"the docstring of {kind.__name__} does not name the paper, with its year. Cite it, as in "
                "(Name, 2026), or yourself where it is your own idea."
            )
        for f in fields(who):
            if not re.search(rf"\b{re.escape(f.name)} ?:", doc):
                raise Violation(
                    f"the docstring of {kind.__name__} does not explain the setting '{f.name}'. Add a line "
                    f"`{f.name}: what it means`."
                )
