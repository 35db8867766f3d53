from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import seqdg
from digits import BENCHMARK, build_stack, make_plan
from seqdg.base import UsageError
from seqdg.bench import Request

pytestmark = pytest.mark.gpu


def trained(trials, device, captures, steps=70):
    stack = build_stack(trials, device)
    stack.captures &= captures
    state = stack.advance(stack.start(), 3)
    state = stack.advance(state, steps)
    return stack, {name: p.cpu() for name, p in state.params.items()}, torch.cat(state.losses).cpu()


@pytest.mark.parametrize("name", seqdg.list_algorithms())
@pytest.mark.parametrize("count", [1, 3])
def test_a_captured_step_is_the_eager_step(name, count):
    benchmark = replace(BENCHMARK, protocol=replace(BENCHMARK.protocol, steps=100))
    try:
        request = Request(algorithms=[name], held_out=["30"], trials=count)
        trials = make_plan(request, benchmark=benchmark).trials
        stack, captured, losses = trained(trials, "cuda", True)
    except UsageError as error:
        pytest.skip(str(error))
    assert stack._graphs, "nothing was captured"
    _, eager, eager_losses = trained(trials, "cuda", False)
    torch.testing.assert_close(losses, eager_losses, rtol=2e-3, atol=1e-4)
    for key, value in eager.items():
        torch.testing.assert_close(captured[key], value, rtol=2e-2, atol=2e-3)


def test_a_stack_on_the_gpu_trains_as_on_the_cpu():
    trials = make_plan(Request(algorithms=["fo-s-mldg"], held_out=["30"], trials=2)).trials
    _, gpu, _ = trained(trials, "cuda", True, steps=20)
    _, cpu, _ = trained(trials, "cpu", False, steps=20)
    for key, value in cpu.items():
        torch.testing.assert_close(gpu[key], value, rtol=1e-2, atol=1e-3)


def test_the_same_trial_twice_gives_the_same_bits():
    trials = make_plan(Request(algorithms=["fo-s-mldg"], held_out=["30"], trials=3)).trials
    _, first, _ = trained(trials, "cuda", True)
    _, second, _ = trained(trials, "cuda", True)
    assert all(torch.equal(first[key], second[key]) for key in first)
