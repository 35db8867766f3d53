"""The checks of the contract: of directions, losses, memories and predictions, and of what the settings change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from seqdg.base import Episode, Params, UsageError, count_things, tree
from seqdg.core import (
    Algorithm,
    Wrapper,
    collect_numbers,
    collect_rules,
    flatten_settings,
    format_settings,
    list_alone,
    list_layers,
    parse_settings,
    with_numbers,
    with_settings,
)
from seqdg.nets import Net
from seqdg.testing.case import Case, Moment, Violation, assert_same, measure_difference, stack_trials
from seqdg.training import lend_randomness, read_generators

Change = Callable[[Sequence[str], Params], Params]  # of the entries of a memory with these names
EPISODES = 20  # a name that none of them trains is not trained
MORE_EPISODES = 12  # a probability need not act in each


def check_form(case: Case) -> None:
    """Stages, shapes and types of all that is returned."""
    shares = [share for share, _ in case.algorithm.stages()]
    if not shares or min(shares) <= 0 or sum(shares) < 1 - 1e-9:
        raise Violation(f"the shares of the stages are {shares}, but they must be above 0 and add up to 1 or more.")
    params, trained = case.draw_weights(), set[str]()
    for k, stage in enumerate(case.stages):
        for seed in range(EPISODES):  # a mask of gradients may leave a name alone in some of them
            direction, value, _ = case.compute_step(k, params, case.draw_episode(seed))
            _assert_form(direction, value, params, f"stage {k + 1}")
            # A bias below BatchNorm has no gradient but rounding, so there a name is enough.
            trained |= {name for name, d in direction.items() if case.net.on_batch or d.any()}
            if trained >= direction.keys():
                break
        memory = case.algorithm.memory(case.net, params, case.sources)
        entered, kept = stage.enter(case.net, params, memory)
        if {n: w.shape for n, w in entered.items()} != {n: w.shape for n, w in params.items()}:
            raise Violation(f"stage {k + 1} enters with weights of other names or shapes than it was given.")
        _assert_same_kind(memory, kept, f"enter of stage {k + 1}")
    for name in params:
        if name not in trained:
            raise Violation(f"'{name}' is among the weights that init returns, but no stage's direction trains it.")
    memory = case.compute_step(-1, params, case.draw_episode())[2]
    logits = case.predict(params, memory, case.draw_probe())
    if logits.shape != (len(case.draw_probe()), case.classes):
        raise Violation(f"predict returns logits of shape {tuple(logits.shape)} for {len(case.draw_probe())} inputs.")


def check_rows(case: Case) -> None:
    """With its BatchNorm statistics fixed, a row is predicted alike alone and among others."""
    if case.algorithm.together:
        return
    params, probe = case.draw_weights(), case.draw_probe()
    memory = case.compute_step(-1, params, case.draw_episode())[2]
    deployed = case.algorithm.deploy(params, memory)
    deployed = {**deployed, **case.algorithm.statistics(case.net, deployed, probe)}
    among = case.algorithm.predict(case.net, deployed, probe)
    alone = torch.cat([case.algorithm.predict(case.net, deployed, row) for row in torch.split(probe, 1)])
    if not _is_close(alone, among):
        raise Violation(
            "the prediction of a row depends on the rows beside it. Where that is meant, the class variable `together` "
            "says how many rows of one domain `predict` wants at once."
        )


def check_memory(case: Case) -> None:
    """A memory keeps its names, shapes and types, stays finite, and is read."""
    params, episode, probe = case.draw_weights(), case.draw_episode(), case.draw_probe()
    first = case.algorithm.memory(case.net, params, case.sources)
    if not first:
        return
    for k in range(len(case.stages)):
        _assert_same_kind(first, case.compute_step(k, params, episode)[2], f"stage {k + 1}")
    losses = torch.ones(case.sources, dtype=torch.float64)
    _assert_same_kind(first, case.algorithm.evaluated(first, losses), "evaluated")
    moments = [case.begin_walk(params, episode)]
    moments += case.walk(episode, moments[0])
    predicted = {m.step: _predict_at(case, m, probe) for m in moments if m.is_evaluated}

    def is_read(names: Sequence[str], step: int, change: Change) -> bool:
        """Whether something else is predicted later where these entries are changed at a step."""
        here = moments[step]
        others = case.walk(episode, here._replace(memory=change(names, here.memory)))
        later = (_predict_at(case, m, probe) for m in others if m.is_evaluated)
        wanted = (p for at, p in predicted.items() if at > step)
        return not all(_is_close(a, b, 1e-12) for a, b in zip(later, wanted, strict=True))

    kinds: dict[str, list[str]] = {}  # copies of several weights are one kind: not every weight is deployed
    for name in first:
        ends = [w for w in (*params, *case.net.names) if name.endswith(w)]
        kinds.setdefault(name.removesuffix(max(ends, key=len, default="")), []).append(name)
    for names in kinds.values():
        if not any(is_read(names, *at) for at in ((17, _raise_entries), (23, _lower_entries), (1, _raise_entries))):
            raise Violation(f"nothing reads '{names[0]}' in its memory: another value there changes no prediction.")


def _raise_entries(names: Sequence[str], memory: Params) -> Params:
    return {n: (m * 1.5 + 2 if m.is_floating_point() else m + 1) if n in names else m for n, m in memory.items()}


def _lower_entries(names: Sequence[str], memory: Params) -> Params:
    return {n: (m * 0.5 if m.is_floating_point() else m // 2) if n in names else m for n, m in memory.items()}


def _predict_at(case: Case, moment: Moment, x: Tensor) -> Tensor:
    return case.predict(moment.params, moment.memory, x).nan_to_num(1e9)


def _assert_same_kind(before: Params, after: Params, what: str) -> None:
    for name in {**before, **after}:
        if name not in before or name not in after:
            raise Violation(f"{what} {'adds' if name in after else 'drops'} '{name}', but a memory keeps its names.")
        old, new = before[name], after[name]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise Violation(
                f"{what} returns '{name}' of the memory as {new.dtype} of shape {tuple(new.shape)}, but it was "
                f"{old.dtype} of shape {tuple(old.shape)}."
            )
        if not torch.isfinite(new).all():
            raise Violation(f"'{name}' in the memory that {what} returns is not finite.")


def _assert_form(direction: Params, value: Tensor, params: Params, where: str) -> None:
    if value.shape != ():
        raise Violation(f"the loss of {where} has shape {tuple(value.shape)}, but it must be a single number.")
    for name, d in direction.items():
        if name not in params:
            raise Violation(f"the direction of {where} has '{name}', which is not among the weights.")
        if d.shape != params[name].shape or d.dtype != params[name].dtype:
            raise Violation(
                f"the direction of {where} is {d.dtype} of shape {tuple(d.shape)} at '{name}', but the weights are "
                f"{params[name].dtype} of shape {tuple(params[name].shape)}."
            )
    for name, d in {**direction, "the loss": value}.items():
        if not torch.isfinite(d).all():
            raise Violation(f"'{name}' of {where} is not finite.")


def check_deterministic(case: Case) -> None:
    """The same bits whatever the state of the global random number generators, which stay as they are."""
    runs = []
    for seed in (1, 2):
        with lend_randomness(seed):
            before = read_generators()
            values = {f"init of '{name}'": value for name, value in case.init_weights(7).items()}
            values |= case.compute_everything(case.draw_weights(), case.draw_episode(), case.draw_probe())
            if read_generators() != before:
                raise Violation("it draws from a global random number generator; draw from episode.key (seqdg.noise).")
        runs.append(values)
    for what, value in runs[0].items():
        if value.isnan().any():  # which would not even equal itself
            raise Violation(f"{what} is not a number.")
    for what in {**runs[0], **runs[1]}:
        if what not in runs[0] or what not in runs[1] or not torch.equal(runs[0][what], runs[1][what]):
            raise Violation(f"{what} differs between two runs on the same input.")


def check_untouched(case: Case) -> None:
    """Weights, episode and the net's own tensors are after a call what they were before."""
    params, episode, probe, start = case.draw_weights(), case.draw_episode(), case.draw_probe(), case.net.params()
    memory = case.algorithm.memory(case.net, params, case.sources)

    def list_inputs() -> dict[str, Tensor]:
        tensors = _list_tensors(case.net) | {f"the net's own weights['{name}']": w for name, w in start.items()}
        tensors |= {f"weights['{name}']": w for name, w in params.items()}
        tensors |= {f"the memory['{name}']": m for name, m in memory.items()}
        parts = {**episode._asdict(), **episode.extras}
        del parts["extras"]
        return tensors | {f"episode.{name}": v for name, v in parts.items()} | {"the inputs x": probe}

    calls: dict[str, Callable[[], object]] = {
        "init": lambda: case.algorithm.init(case.net, start, case.sources, torch.Generator().manual_seed(0)),
        "deploy, statistics or predict": lambda: case.predict(params, memory, probe),
        "evaluated": lambda: case.algorithm.evaluated(memory, torch.ones(case.sources, dtype=torch.float64)),
    }
    for k, stage in enumerate(case.stages):
        calls[f"the gradient of stage {k + 1}"] = partial(stage.step, case.net, params, memory, episode)
        calls[f"enter of stage {k + 1}"] = partial(stage.enter, case.net, params, memory)
    before = {name: value.clone() for name, value in list_inputs().items()}
    for what, call in calls.items():
        call()
        after = list_inputs()
        for name in {**before, **after}:
            if name not in before or name not in after or not torch.equal(before[name], after[name]):
                raise Violation(f"{what} changes {name}; work on a copy.")


def _list_tensors(net: Net) -> dict[str, Tensor]:
    """Return all tensors that a net holds."""
    held = {}
    for attribute, value in vars(net).items():
        tensors = value.state_dict() if isinstance(value, nn.Module) else value
        if isinstance(tensors, dict):
            held.update({f"net.{attribute}['{n}']": v.detach() for n, v in tensors.items() if isinstance(v, Tensor)})
    return held


def check_gradient(case: Case) -> None:
    """Where a loss is defined, its value and its gradient, at every name that the direction has."""
    for k, stage in enumerate(case.stages):
        _assert_gradient(stage, case.net, case.draw_weights(), case.draw_episode(), f"in stage {k + 1}")


def _assert_gradient(stage: Algorithm, net: Net, params: Params, episode: Episode, where: str) -> None:
    if not _defines_loss(stage):
        return
    direction, value = stage.gradient(net, params, episode)
    want, loss = grad_and_value(lambda w: stage.loss(net, w, episode))(params)
    assert_same({"the loss": value}, {"the loss": loss}, f"{where}, gradient and loss return other losses")
    what = f"{where}, the direction is not the gradient of the loss"
    assert_same({f"'{n}'": d for n, d in direction.items()}, {f"'{n}'": want[n] for n in direction}, what)


def _defines_loss(algorithm: Algorithm) -> bool:
    """Whether the direction is the gradient of a loss that the algorithm, or what it wraps, defines."""
    if isinstance(algorithm, Wrapper) and type(algorithm).loss is not Algorithm.loss:
        return _defines_loss(algorithm.base)
    return type(algorithm).loss is not Algorithm.loss


def check_vmap(case: Case) -> None:
    """A stack of trials with other weights, data, orders and keys gives what a loop gives, and what a stack of one
    gives."""
    if not case.stacks:
        return
    one = case.compute_everything
    trials = [(case.draw_weights(s), case.draw_episode(s), case.draw_probe(s)) for s in range(3)]
    stacked = tree.unstack(vmap(one)(*stack_trials(trials)))
    alone = tree.unstack(vmap(one)(*stack_trials(trials[:1])))
    for t, trial in enumerate(trials):
        assert_same(stacked[t], one(*trial), f"trial {t + 1} of a stack of 3 is not as in a loop")
    assert_same(alone[0], stacked[0], "a trial alone is not as in a stack of 3")


def check_domains(case: Case) -> None:
    """x and y of every source domain change what is predicted after a step of the stage that uses them."""
    params, episode = case.draw_weights(), case.draw_episode()
    changed_x = _disturb(episode.x)
    predict = [_step_and_predict(case, k, params, episode) for k in range(len(case.stages))]
    before = [after_step(episode) for after_step in predict]
    for i in range(case.sources):
        row = (torch.arange(case.sources) == i).reshape(-1, 1)
        other = {
            "x": episode._replace(x=torch.where(row.reshape(-1, *[1] * (episode.x.dim() - 1)), changed_x, episode.x)),
            "y": episode._replace(y=torch.where(row, (episode.y + 1) % case.classes, episode.y)),
        }
        for part, changed in other.items():
            if all(
                _is_close(after_step(changed), unchanged)
                for after_step, unchanged in zip(reversed(predict), reversed(before), strict=True)
            ):
                raise Violation(
                    f"{part} of source domain {int(episode.domain[i])}, number {i + 1} of {case.sources} on the path, "
                    "changes no prediction after a step: its gradient never reaches the model that is deployed."
                )


def _disturb(x: Tensor) -> Tensor:
    """Return other inputs: with noise, or whole numbers (tokens) in another order."""
    if not x.is_floating_point():
        return x.flip(-1)
    return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype)


def _step_and_predict(case: Case, k: int, params: Params, episode: Episode) -> Callable[[Episode], Tensor]:
    """Return a function to logits after a step of a stage on another episode, as long as it is on this one."""
    memory, stage = case.remember(k, params, episode), case.stages[k]
    first, _, _ = case.take(stage, params, memory, episode)
    length = 0.1 / (max(float(d.abs().max()) for d in first.values()) or 1.0)

    def predict(changed: Episode) -> Tensor:
        direction, _, after = case.take(stage, params, memory, changed)
        moved = {name: w - length * direction[name] if name in direction else w for name, w in params.items()}
        return case.predict(moved, after, case.draw_probe())

    return predict


def check_precision(case: Case) -> None:
    """float32 in, float32 out, and nearly the direction of float64."""
    low = replace(case, net=case.net.to(dtype=torch.float32))
    for name, value in low.init_weights().items():
        if value.dtype != torch.float32:
            raise Violation(f"init of a float32 net returns '{name}' as {value.dtype}.")
    params, episode = case.draw_weights(), case.draw_episode()
    fewer = {name: w.float() for name, w in params.items()}
    x, probe = episode.x, case.draw_probe()
    low_x, low_probe = (t.float() if t.is_floating_point() else t for t in (x, probe))
    extras = {name: t.float() if t.is_floating_point() else t for name, t in episode.extras.items()}
    short = episode._replace(x=low_x, progress=episode.progress.float(), rate=episode.rate.float(), extras=extras)
    for k in range(len(case.stages)):
        direction, value, _ = low.compute_step(k, fewer, short)
        _assert_form(direction, value, fewer, f"stage {k + 1} in float32")
    got = low.compute_everything(fewer, short, low_probe)
    want = case.compute_everything(params, episode, probe)
    assert_same({what: v.double() for what, v in got.items()}, want, "float32 does not give what float64 gives", 1e-3)


def check_counts(case: Case) -> None:
    """1, 2, 3 and 5 source domains work, or a UsageError says how many are needed."""
    for n in (1, 2, 3, 5):
        try:
            case.algorithm.check(case.net, n)
        except UsageError as error:
            if not set(re.findall(r"\d+", str(error))) - {str(n)}:
                raise Violation(f"with {n} source domains it does not say how many are needed, but: {error}") from None
            continue
        hint = f" (`needs = {n + 1}` in the class refuses that)" if n < 3 else ""
        these, where = replace(case, sources=n), f"with {count_things(n, 'source domain')}, which it accepts{hint},"
        for k in range(len(case.stages)):
            try:
                params = these.draw_weights()
                direction, value, _ = these.compute_step(k, params, these.draw_episode())
            except Exception as error:
                raise Violation(f"{where} stage {k + 1} raises {type(error).__name__}: {error}") from error
            _assert_form(direction, value, params, f"stage {k + 1} {where}")


def check_some_domains(case: Case) -> None:
    """A step may meet some of the sources: forms, the gradient of the loss and a stack are as where it meets all."""
    if case.algorithm.needs_all:
        return
    larger = replace(case, sources=case.sources + 2)
    weights = [larger.draw_weights(seed) for seed in range(2)]
    episodes = [larger.draw_episode(seed).part(seed, seed + case.sources) for seed in range(2)]
    memories = [case.algorithm.memory(case.net, params, larger.sources) for params in weights]
    for k, stage in enumerate(case.stages):
        where = f"in stage {k + 1}, where a step meets {case.sources} of {larger.sources} source domains"

        def step(params: Params, memory: Params, episode: Episode, stage: Algorithm = stage) -> dict[str, Params]:
            direction, value, kept = case.take(stage, params, memory, episode)
            return {"direction": direction, "memory": kept, "loss": {"loss": value}}

        try:
            alone = [step(*trial) for trial in zip(weights, memories, episodes, strict=True)]
            _, stacked, _ = stack_trials([(p, e, p[next(iter(p))]) for p, e in zip(weights, episodes, strict=True)])
            together = vmap(step)(tree.stack(weights), tree.stack(memories), stacked) if case.stacks else {}
        except Exception as error:
            raise Violation(f"{where}, it raises {type(error).__name__}: {error}") from error
        for t, taken in enumerate(alone):
            _assert_form(taken["direction"], taken["loss"]["loss"], weights[t], f"stage {k + 1}, {where}")
            _assert_same_kind(memories[t], taken["memory"], where)
            for kind, values in taken.items() if case.stacks else ():
                got = {name: v.select(0, t) for name, v in together[kind].items()}
                assert_same(got, values, f"{where}, the {kind} of a trial is not in a stack what it is alone", 1e-7)
        if not memories[0]:
            _assert_gradient(stage, case.net, weights[0], episodes[0], where)


def _is_close(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> bool:
    return measure_difference({"": a}, {"": b})[1] <= tolerance


# ---------------------------------------------------------------------------- settings


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
        if isinstance(value, str | bool):
            for choice in (not value,) if isinstance(value, bool) else rule.get("choices", ()):
                if choice != value:
                    yield Variation(name, case.algorithm, with_settings(case.algorithm, {name: choice}))
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
    later = [partial(_compute_outcome, case, seed=seed) for seed in range(1, MORE_EPISODES)]
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
    return {name for layer in list_layers(algorithm) for name in type(layer).inert}


def _compute_outcome(case: Case, algorithm: Algorithm, seed: int = 0) -> dict[str, Tensor]:
    """Return all that is trained and served: not the losses, which nothing follows."""
    case = replace(case, algorithm=algorithm)
    values = case.compute_everything(case.draw_weights(), case.draw_episode(seed), case.draw_probe())
    shares = {f"the share of stage {k + 1}": torch.tensor(s) for k, (s, _) in enumerate(algorithm.stages())}
    return shares | {what: value for what, value in values.items() if not what.startswith("the loss")}


def _follow(case: Case, algorithm: Algorithm) -> dict[str, Tensor]:
    """Return what is predicted along a short training, where the algorithm remembers something."""
    case = replace(case, algorithm=algorithm)
    params, episode, probe = case.draw_weights(), case.draw_episode(), case.draw_probe()
    if not algorithm.memory(case.net, params, case.sources):
        return {}
    moments = case.walk(episode, case.begin_walk(params, episode))
    evaluated = (m for m in moments if m.is_evaluated)
    return {f"the prediction after {m.step} steps": case.predict(m.params, m.memory, probe) for m in evaluated}


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
    cases = [replace(case, algorithm=a) for a in settings]
    trials = [(c.draw_weights(s), c.draw_episode(s), c.draw_probe(s)) for s, c in enumerate(cases)]
    for params, _, _ in trials:
        if {n: w.shape for n, w in params.items()} != {n: w.shape for n, w in trials[0][0].items()}:
            raise Violation("a numeric setting changes the shapes of the weights; declare it with static=True.")
    columns = tree.stack(
        [{k: torch.tensor(v, dtype=torch.float64) for k, v in collect_numbers(a).items()} for a in settings]
    )

    def run(values: Params, params: Params, episode: Episode, x: Tensor) -> dict[str, Tensor]:
        return replace(case, algorithm=with_numbers(algorithm, values)).compute_everything(params, episode, x)

    alone = [run(values, *trial) for values, trial in zip(tree.unstack(columns), trials, strict=True)]
    together = tree.unstack(vmap(run)(columns, *stack_trials(trials))) if case.stacks else alone
    for each, one, trial, got in zip(cases, alone, trials, together, strict=True):
        what = f"as tensors, {_format_numbers(each.algorithm)} do not act as numbers do"
        assert_same(got, each.compute_everything(*trial), what)
        assert_same(one, got, what)


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
    for who in list_layers(case.algorithm)[:2]:
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
