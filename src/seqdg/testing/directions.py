"""Checks on the direction, the loss and the prediction, with the settings as they are."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from seqdg.base import Episode, Params, UsageError, count_things, tree
from seqdg.core import Algorithm, Wrapper
from seqdg.nets import Net
from seqdg.testing.case import (
    CLASSES,
    Case,
    Moment,
    Violation,
    assert_same,
    begin_walk,
    compute_direction,
    compute_everything,
    compute_step,
    count_stages,
    measure_difference,
    predict_deployed,
    remember,
    stack_trials,
    walk,
)

Change = Callable[[Sequence[str], Params], Params]  # of the entries of a memory with these names
EPISODES = 20  # a name that none of them trains is not trained


def check_form(case: Case) -> None:
    """Stages, shapes and types of all that is returned."""
    shares = [share for share, _ in case.algorithm.stages()]
    if not shares or min(shares) <= 0 or sum(shares) < 1 - 1e-9:
        raise Violation(f"the shares of the stages are {shares}, but they must be above 0 and add up to 1 or more.")
    params, trained = case.draw_weights(), set[str]()
    for k in range(len(shares)):
        for seed in range(EPISODES):  # a mask of gradients may leave a name alone in some of them
            direction, value = compute_direction(case.algorithm, k, case.net, params, case.draw_episode(seed))
            _assert_form(direction, value, params, f"stage {k + 1}")
            # A bias below BatchNorm has no gradient but rounding, so there a name is enough.
            trained |= {name for name, d in direction.items() if case.net.on_batch or d.any()}
            if trained >= direction.keys():
                break
        memory = case.algorithm.memory(case.net, params, case.sources)
        entered, kept = case.algorithm.stages()[k][1].enter(case.net, params, memory)
        if {n: w.shape for n, w in entered.items()} != {n: w.shape for n, w in params.items()}:
            raise Violation(f"stage {k + 1} enters with weights of other names or shapes than it was given.")
        _assert_same_kind(memory, kept, f"enter of stage {k + 1}")
    for name in params:
        if name not in trained:
            raise Violation(f"'{name}' is among the weights that init returns, but no stage's direction trains it.")
    memory = compute_step(case.algorithm, len(shares) - 1, case.net, params, case.draw_episode())[2]
    logits = predict_deployed(case.algorithm, case.net, params, memory, case.draw_probe())
    if logits.shape != (len(case.draw_probe()), CLASSES):
        raise Violation(f"predict returns logits of shape {tuple(logits.shape)} for {len(case.draw_probe())} inputs.")


def check_rows(case: Case) -> None:
    """With its BatchNorm statistics fixed, a row is predicted alike alone and among others."""
    if case.algorithm.together:
        return
    params, probe, last = case.draw_weights(), case.draw_probe(), count_stages(case.algorithm) - 1
    memory = compute_step(case.algorithm, last, case.net, params, case.draw_episode())[2]
    deployed = case.algorithm.deploy(params, memory)
    deployed = {**deployed, **case.algorithm.statistics(case.net, deployed, probe)}
    among = case.algorithm.predict(case.net, deployed, probe)
    alone = torch.cat([case.algorithm.predict(case.net, deployed, row) for row in torch.split(probe, 1)])
    if measure_difference({"": alone}, {"": among})[1] > 1e-9:
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
    for k in range(count_stages(case.algorithm)):
        _assert_same_kind(first, compute_step(case.algorithm, k, case.net, params, episode)[2], f"stage {k + 1}")
    losses = torch.ones(case.sources, dtype=torch.float64)
    _assert_same_kind(first, case.algorithm.evaluated(first, losses), "evaluated")
    moments = [begin_walk(case.algorithm, case.net, params, episode)]
    moments += walk(case.algorithm, case.net, episode, moments[0])
    predicted = {m.step: _predict_at(case, m, probe) for m in moments if m.is_evaluated}

    def is_read(names: Sequence[str], step: int, change: Change) -> bool:
        """Whether something else is predicted later where these entries are changed at a step."""
        here = moments[step]
        others = walk(case.algorithm, case.net, episode, here._replace(memory=change(names, here.memory)))
        later = ({"": _predict_at(case, m, probe)} for m in others if m.is_evaluated)
        wanted = ({"": p} for at, p in predicted.items() if at > step)
        return any(measure_difference(a, b)[1] > 1e-12 for a, b in zip(later, wanted, strict=True))

    kinds: dict[str, list[str]] = {}  # copies of several weights are one kind: not every weight is deployed
    for name in first:
        ends = [w for w in params if name.endswith(w)]
        kinds.setdefault(name.removesuffix(max(ends, key=len, default="")), []).append(name)
    for names in kinds.values():
        if not any(is_read(names, *at) for at in ((17, _raise_entries), (23, _lower_entries), (1, _raise_entries))):
            raise Violation(f"nothing reads '{names[0]}' in its memory: another value there changes no prediction.")


def _raise_entries(names: Sequence[str], memory: Params) -> Params:
    return {n: (m * 1.5 + 2 if m.is_floating_point() else m + 1) if n in names else m for n, m in memory.items()}


def _lower_entries(names: Sequence[str], memory: Params) -> Params:
    return {n: (m * 0.5 if m.is_floating_point() else m // 2) if n in names else m for n, m in memory.items()}


def _predict_at(case: Case, moment: Moment, x: Tensor) -> Tensor:
    return predict_deployed(case.algorithm, case.net, moment.params, moment.memory, x).nan_to_num(1e9)


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
        with _global_seed(seed):
            before = _global_state()
            values = {f"init of '{name}'": value for name, value in case.init_weights(7).items()}
            values |= compute_everything(
                case.algorithm, case.net, case.draw_weights(), case.draw_episode(), case.draw_probe()
            )
            if _global_state() != before:
                raise Violation("it draws from a global random number generator; draw from episode.key (seqdg.noise).")
        runs.append(values)
    for what, value in runs[0].items():
        if value.isnan().any():  # which would not even equal itself
            raise Violation(f"{what} is not a number.")
    for what in {**runs[0], **runs[1]}:
        if what not in runs[0] or what not in runs[1] or not torch.equal(runs[0][what], runs[1][what]):
            raise Violation(f"{what} differs between two runs on the same input.")


@contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        np.random.set_state(kept[2])


def _global_state() -> tuple[bytes, object, str]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), repr(np.random.get_state())


def check_untouched(case: Case) -> None:
    """Weights, episode and the net's own tensors are after a call what they were before."""
    params, episode, probe, start = case.draw_weights(), case.draw_episode(), case.draw_probe(), case.net.params()
    memory = case.algorithm.memory(case.net, params, case.sources)

    def list_inputs() -> dict[str, Tensor]:
        tensors = _list_tensors(case.net) | {f"the net's own weights['{name}']": w for name, w in start.items()}
        tensors |= {f"weights['{name}']": w for name, w in params.items()}
        tensors |= {f"the memory['{name}']": m for name, m in memory.items()}
        return tensors | {f"episode.{name}": v for name, v in episode._asdict().items()} | {"the inputs x": probe}

    calls: dict[str, Callable[[], object]] = {
        "init": lambda: case.algorithm.init(case.net, start, case.sources, torch.Generator().manual_seed(0)),
        "deploy, statistics or predict": lambda: predict_deployed(case.algorithm, case.net, params, memory, probe),
        "evaluated": lambda: case.algorithm.evaluated(memory, torch.ones(case.sources, dtype=torch.float64)),
    }
    for k in range(count_stages(case.algorithm)):
        stage = case.algorithm.stages()[k][1]
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
    for k, (_, stage) in enumerate(case.algorithm.stages()):
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
    one = partial(compute_everything, case.algorithm, case.net)
    trials = [(case.draw_weights(s), case.draw_episode(s), case.draw_probe(s)) for s in range(3)]
    stacked = tree.unstack(vmap(one)(*stack_trials(trials)))
    alone = tree.unstack(vmap(one)(*stack_trials(trials[:1])))
    for t, trial in enumerate(trials):
        assert_same(stacked[t], one(*trial), f"trial {t + 1} of a stack of 3 is not as in a loop")
    assert_same(alone[0], stacked[0], "a trial alone is not as in a stack of 3")


def check_domains(case: Case) -> None:
    """x and y of every source domain change what is predicted after a step of the stage that uses them."""
    params, episode = case.draw_weights(), case.draw_episode()
    noise = torch.randn(episode.x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    predict = [_step_and_predict(case, k, params, episode) for k in range(count_stages(case.algorithm))]
    before = [after_step(episode) for after_step in predict]
    for i in range(case.sources):
        row = (torch.arange(case.sources) == i).reshape(-1, 1)
        other = {
            "x": episode._replace(x=torch.where(row[..., None], episode.x + noise, episode.x)),
            "y": episode._replace(y=torch.where(row, (episode.y + 1) % CLASSES, episode.y)),
        }
        for part, changed in other.items():
            if all(
                measure_difference({"": after_step(changed)}, {"": unchanged})[1] <= 1e-9
                for after_step, unchanged in zip(reversed(predict), reversed(before), strict=True)
            ):
                raise Violation(
                    f"{part} of source domain {int(episode.domain[i])}, number {i + 1} of {case.sources} on the path, "
                    "changes no prediction after a step: its gradient never reaches the model that is deployed."
                )


def _step_and_predict(case: Case, k: int, params: Params, episode: Episode) -> Callable[[Episode], Tensor]:
    """Return a function to logits after a step of a stage on another episode, as long as it is on this one."""
    memory, stage = remember(case.algorithm, k, case.net, params, episode), case.algorithm.stages()[k][1]
    first, _, _ = stage.step(case.net, params, memory, episode)
    length = 0.1 / (max(float(d.abs().max()) for d in first.values()) or 1.0)

    def predict(changed: Episode) -> Tensor:
        direction, _, after = stage.step(case.net, params, memory, changed)
        moved = {name: w - length * direction[name] if name in direction else w for name, w in params.items()}
        return predict_deployed(case.algorithm, case.net, moved, after, case.draw_probe())

    return predict


def check_precision(case: Case) -> None:
    """float32 in, float32 out, and nearly the direction of float64."""
    low = replace(case, net=case.net.to(dtype=torch.float32))
    for name, value in low.init_weights().items():
        if value.dtype != torch.float32:
            raise Violation(f"init of a float32 net returns '{name}' as {value.dtype}.")
    params, episode = case.draw_weights(), case.draw_episode()
    fewer = {name: w.float() for name, w in params.items()}
    short = episode._replace(x=episode.x.float(), progress=episode.progress.float())
    for k in range(count_stages(case.algorithm)):
        direction, value = compute_direction(case.algorithm, k, low.net, fewer, short)
        _assert_form(direction, value, fewer, f"stage {k + 1} in float32")
    got = compute_everything(case.algorithm, low.net, fewer, short, case.draw_probe().float())
    want = compute_everything(case.algorithm, case.net, params, episode, case.draw_probe())
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
        for k in range(count_stages(case.algorithm)):
            try:
                params = these.draw_weights()
                direction, value = compute_direction(case.algorithm, k, case.net, params, these.draw_episode())
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
    for k, (_, stage) in enumerate(case.algorithm.stages()):
        where = f"in stage {k + 1}, where a step meets {case.sources} of {larger.sources} source domains"

        def step(params: Params, memory: Params, episode: Episode, stage: Algorithm = stage) -> dict[str, Params]:
            direction, value, kept = stage.step(case.net, params, memory, episode)
            return {"direction": direction, "memory": kept, "loss": {"loss": value}}

        try:
            alone = [step(*trial) for trial in zip(weights, memories, episodes, strict=True)]
            _, stacked, _ = stack_trials([(p, e, p[next(iter(p))]) for p, e in zip(weights, episodes, strict=True)])
            together = vmap(step)(tree.stack(weights), tree.stack(memories), stacked)
        except Exception as error:
            raise Violation(f"{where}, it raises {type(error).__name__}: {error}") from error
        for t, taken in enumerate(alone):
            _assert_form(taken["direction"], taken["loss"]["loss"], weights[t], f"stage {k + 1}, {where}")
            _assert_same_kind(memories[t], taken["memory"], where)
            for kind, values in taken.items():
                got = {name: v.select(0, t) for name, v in together[kind].items()}
                assert_same(got, values, f"{where}, the {kind} of a trial is not in a stack what it is alone", 1e-7)
        if not memories[0]:
            _assert_gradient(stage, case.net, weights[0], episodes[0], where)
