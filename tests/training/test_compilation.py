from __future__ import annotations

import shutil
from collections import Counter
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from digits import build_stack, make_plan
from seqdg.bench import Request
from seqdg.training.step import _spell_out_factors, _trace, compile_at_first_call

MORE = ["s-undo-bias", "fo-s-mldg", "ffo-s-mldg", "crossgrad", "dann", "group-dro"]
NAMES = ["agg", "fo-s-mldg+ema", "rdm", *(pytest.param(name, marks=pytest.mark.soak) for name in MORE)]


def _train(name, device, compiles, steps, settings=()):
    request = Request(algorithms=[name], held_out=["30"], trials=2, precision="float64", settings=settings)
    stack = build_stack(make_plan(request).trials, device)
    stack.compiles = compiles
    state = stack.advance(stack.start(), 2)
    state = stack.advance(state, steps)
    return state, stack


@pytest.mark.parametrize("name", NAMES)
def test_a_traced_step_is_the_step(name, monkeypatch):
    monkeypatch.setattr("seqdg.training.step.compile_at_first_call", partial(compile_at_first_call, backend="none"))
    eager, _ = _train(name, "cpu", False, 5)
    traced, _ = _train(name, "cpu", True, 5)
    for key, value in eager.params.items():
        torch.testing.assert_close(traced.params[key], value, rtol=0, atol=1e-11)
    for key, value in eager.memory.items():
        torch.testing.assert_close(traced.memory[key], value, rtol=0, atol=1e-11)
    torch.testing.assert_close(torch.cat(traced.losses), torch.cat(eager.losses), rtol=0, atol=1e-11)


def test_a_traced_step_follows_a_schedule(monkeypatch):
    monkeypatch.setattr("seqdg.training.step.compile_at_first_call", partial(compile_at_first_call, backend="none"))
    settings = ("agg.schedule=cosine", "agg.warmup=0.1")
    eager, _ = _train("agg", "cpu", False, 5, settings)
    traced, _ = _train("agg", "cpu", True, 5, settings)
    plain, _ = _train("agg", "cpu", True, 5)
    for key, value in eager.params.items():
        torch.testing.assert_close(traced.params[key], value, rtol=0, atol=1e-11)
        assert not torch.allclose(traced.params[key], plain.params[key], rtol=0, atol=1e-9)


def test_a_step_that_cannot_be_compiled_is_taken_as_it_is_written(monkeypatch, caplog):
    def refuse(function, flat, backend):
        raise ValueError("no compiler\nand more")

    monkeypatch.setattr("seqdg.training.step._compile", refuse)
    eager, _ = _train("agg", "cpu", False, 4)
    refused, stack = _train("agg", "cpu", True, 4)
    assert [r.getMessage().split(": ")[1] for r in caplog.records] == ["no compiler"]
    assert not stack.compiles
    assert all(torch.equal(refused.params[key], value) for key, value in eager.params.items())


def test_a_step_that_is_compiled_into_another_is_taken_as_it_is_written(monkeypatch, caplog):
    def compile_wrongly(function, backend="none"):
        def call(carried, *others):
            loss = function(carried, *others)
            carried["params"]["head.bias"].add_(1e-4)
            return loss

        return call

    monkeypatch.setattr("seqdg.training.step.compile_at_first_call", compile_wrongly)
    eager, _ = _train("agg", "cpu", False, 4)
    refused, stack = _train("agg", "cpu", True, 4)
    assert "compiled, it changes 'head.bias' in another way" in caplog.text
    assert not stack.compiles
    assert all(torch.equal(refused.params[key], value) for key, value in eager.params.items())


def test_the_compiler_is_given_no_sum_with_a_factor():
    """It forgets the factor where one of the two is a product of matrices."""

    def decay(weight, a, b):
        return (torch.add(a @ b, weight, alpha=0.01) + torch.sub(weight, a @ b, alpha=0.5),)

    flat = [torch.randn(8, 8), torch.randn(8, 4), torch.randn(4, 8)]
    graph = _spell_out_factors(_trace(decay, flat))
    assert not [node for node in graph.graph.nodes if "alpha" in node.kwargs]
    torch.testing.assert_close(graph(*flat), decay(*flat))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++")
def test_a_step_of_a_network_that_trains_alone_is_compiled_as_it_is_written():
    """With weight decay, which torch's compiler forgets to scale: of a linear layer it would be 1."""
    plan = make_plan(
        Request(algorithms=["fo-s-mldg"], held_out=["30"], trials=1, settings=["fo-s-mldg.weight_decay=0.1"])
    )
    stacks = [build_stack(plan.trials, "cpu") for _ in range(2)]
    stacks[1].compiles = True
    eager, compiled = (stack.advance(stack.start(), 3) for stack in stacks)
    assert stacks[1].compiles, "it was not refused"
    for key, value in eager.params.items():
        torch.testing.assert_close(compiled.params[key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++")
def test_the_next_stack_of_the_same_shape_finds_its_program_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    hits = []
    for seed in (0, 1):
        before = Counter(counters["inductor"])
        stack = build_stack(make_plan(Request(algorithms=["agg"], held_out=["30"], trials=1, seed=seed)).trials, "cpu")
        stack.compiles = True
        stack.advance(stack.start(), 1)
        hits.append((Counter(counters["inductor"]) - before)["fxgraph_cache_hit"])
    assert hits == [0, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["agg", "fo-s-mldg", "s-undo-bias", "s-mldg", "fo-s-mldg+ema"])
def test_a_compiled_step_is_the_eager_step(name):
    eager, _ = _train(name, "cuda", False, 20)
    compiled, stack = _train(name, "cuda", True, 20)
    assert stack.compiles
    assert stack._graphs, "nothing was captured"
    for key, value in eager.params.items():
        torch.testing.assert_close(compiled.params[key], value, rtol=0, atol=1e-9)
