"""Training in float64: weights, inputs and numbers are, and rounding no longer decides where a training ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import seqdg
from command import seqdg as command
from digits import BENCHMARK, build_stack, make_plan
from seqdg.base import Params
from seqdg.bench import Request, RowsInMemory, Task, Trial
from seqdg.data import Dataset, ImageTransform, find_augmentation
from seqdg.nets import NetSpec
from seqdg.training import Inputs, Protocol, Stack

REQUEST = Request(held_out=["0"], trials=2, steps=60, precision="float64")


def trials_of(name: str, precision: str = "float64") -> tuple[Trial, ...]:
    return make_plan(replace(REQUEST, algorithms=[name], precision=precision)).trials


def nudged(params: Params) -> Params:
    """Off by a rounding."""
    return {name: p * (1 + torch.finfo(p.dtype).eps) for name, p in params.items()}


def ended(stack: Stack, nudge: bool = False) -> Params:
    state = stack.start()
    if nudge:
        state.params = nudged(state.params)
    return stack.advance(state, 60).params


@pytest.mark.slow
@pytest.mark.parametrize("name", seqdg.list_algorithms())
def test_all_that_is_trained_is_float64_and_begins_as_in_float32(name: str) -> None:
    wide, narrow = (build_stack(trials_of(name, p)) for p in ("float64", "float32"))
    begun = narrow.start().params
    state = wide.start()
    for key, value in state.params.items():
        assert value.dtype == torch.float64
        if key in wide.net.names:
            torch.testing.assert_close(value.float(), begun[key], rtol=0, atol=0)
    state = wide.advance(state, 2)
    assert {p.dtype for p in state.params.values()} == {torch.float64}
    assert {s.dtype for of in state.slots.values() for s in of.values()} <= {torch.float64}
    assert all(bool(torch.isfinite(p).all()) for p in state.params.values())


def test_a_rounding_grows_a_million_times_less_than_in_float32() -> None:
    apart = {}
    for precision in ("float64", "float32"):
        trial = trials_of("fo-s-mldg", precision)[:1]
        one, other = ended(build_stack(trial)), ended(build_stack(trial), nudge=True)
        apart[precision] = max(float((one[n].double() - other[n].double()).abs().max()) for n in one)
    assert 0 < apart["float64"] < 1e-6 * apart["float32"]


def test_it_is_another_trial_in_stacks_of_half_the_size() -> None:
    large = replace(BENCHMARK, net=replace(BENCHMARK.net, hidden=(4000, 1000)))  # 5 million weights
    plans = [
        make_plan(replace(REQUEST, algorithms=["agg"], trials=80, precision=p), (), "cuda", large)
        for p in ("float64", "float32", None)
    ]
    keys = [{t.key for t in plan.trials} for plan in plans]
    assert not keys[0] & keys[1]
    assert keys[1] == keys[2]
    assert [[len(g.trials) for g in plan.groups] for plan in plans] == [[20] * 4, [40] * 2, [40] * 2]


@pytest.mark.parametrize("augment", ["", "pacs"])
@pytest.mark.parametrize("trials", [1, 2])
def test_images_are_prepared_in_it(augment: str, trials: int) -> None:
    x = torch.randint(0, 256, (12, 3, 9, 9), dtype=torch.uint8)
    made = ImageTransform(8, recipe=find_augmentation(augment))
    wide, narrow = (Inputs(x, torch.zeros(12), torch.device("cpu"), d, made) for d in (torch.float64, torch.float32))
    rows, key = torch.arange(12).reshape(1, 2, 6).expand(trials, 2, 6), torch.arange(trials)
    for ours, theirs in (
        (wide.load_step(rows, key), narrow.load_step(rows, key)),
        (wide.serve(rows), narrow.serve(rows)),
    ):
        assert ours[0].dtype == torch.float64
        torch.testing.assert_close(ours[0].float(), theirs[0], rtol=0, atol=1e-5)
        assert not torch.equal(ours[0], ours[0].float().double()), "rounded to float32 on the way"


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_a_net_with_batchnorm_trains_and_serves_in_it(policy: str) -> None:
    x, y = torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8), torch.arange(40) % 3
    data = Dataset("images", ("a", "b"), ("x", "y", "z"), x, y, torch.arange(40) // 20, "images")
    protocol = Protocol(steps=2, batch=4, precision="float64")
    trial = Trial("images", NetSpec("resnet18", ()), policy, None, "agg", (), protocol, ("b",), 0, 1, 32, "")
    task = Task("images", RowsInMemory(data), trial.net, policy, protocol, size=32)
    stack = build_stack([trial], task=task)
    rows = torch.arange(5)
    if policy == "frozen":  # the module itself, in float64
        want = task.build_net(trial).module.double().eval()(stack.inputs.serve(rows)[0])
        torch.testing.assert_close(stack.predict(stack.start().params, rows[None])[0][0], want, rtol=1e-11, atol=1e-11)
    state = stack.advance(stack.start(), 2)
    deployed = stack.deploy(state)
    assert {p.dtype for p in (*state.params.values(), *deployed.values())} == {torch.float64}
    assert stack.predict(deployed, rows[None])[0].dtype == torch.float64


def test_the_command_takes_it_and_refuses_what_is_none(tmp_path) -> None:
    words = ("bench", "--algorithms", "agg", "--held-out", "0", "--trials", "1", "--steps", "4", "--workers", "0")
    done = command(*words, "--precision", "float64", "--out", tmp_path / "run")
    assert not done.returncode, done.stderr
    refused = command(*words, "--precision", "float16", "--out", tmp_path / "other")
    assert refused.returncode == 2
    assert "precision" in refused.stderr
    assert "float64" in refused.stderr
