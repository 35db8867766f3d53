from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap

from digits import build_stack, make_plan
from seqdg.base import UsageError
from seqdg.bench import Request
from seqdg.core import list_algorithms
from seqdg.training import replay
from seqdg.training.replay import Recorder, _is_same, record_at_first_call


def _train(name, recorded_from, steps=4, **request):
    request = {"held_out": ["30"], "trials": 2, **request}
    stack = build_stack(make_plan(Request(algorithms=[name], **request)).trials)
    stack.recorded_from = recorded_from
    return stack.advance(stack.advance(stack.start(), 1), steps), stack


CHAINS = ["fo-s-mldg+mixup+ema", "agg+sam", "agg+swad", "agg+lp+sma"]


LONG = pytest.param("s-mldg", marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("name", [LONG, *sorted({*list_algorithms()} - {"s-mldg"}), *CHAINS])
def test_recorded_steps_give_the_same_bits(name, monkeypatch):
    try:
        written, _ = _train(name, 10**9)
    except UsageError as error:
        pytest.skip(f"The bundled net cannot be trained by it: {error}")
    checks = []
    monkeypatch.setattr(replay, "_is_same", lambda *pair: checks.append(_is_same(*pair)) or checks[-1])
    recorded, _ = _train(name, 1)
    assert all(checks)  # no record was given up
    for key, value in {**written.params, **written.memory}.items():
        assert torch.equal({**recorded.params, **recorded.memory}[key], value), key
    assert torch.equal(torch.cat(recorded.losses), torch.cat(written.losses))


def test_one_trial_alone_is_recorded_too():
    written, _ = _train("fo-s-mldg", 10**9, trials=1)
    recorded, _ = _train("fo-s-mldg", 1, trials=1)
    assert all(torch.equal(recorded.params[key], value) for key, value in written.params.items())


def test_few_steps_are_not_recorded():
    _, stack = _train("agg", 10**9)
    assert not stack._is_recorded(0)
    stack.recorded_from = 300
    assert stack._is_recorded(0)
    stack.recorded_from = 301
    assert not stack._is_recorded(0)


def _count(function):
    """The same function, with a list that grows by one at each call."""
    calls = []

    def counted(*arguments):
        calls.append(1)
        return function(*arguments)

    return counted, calls


def _bend(x, y):
    """Gradients of gradients, mapped."""
    return vmap(grad(lambda a, b: (grad(lambda c: (c.sin() * b).sum())(a) ** 2).sum()))(x, y)


def test_gradients_of_gradients_are_replayed_on_other_numbers():
    function, calls = _count(_bend)
    recorded = record_at_first_call(function)
    for seed in range(5):
        x, y = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(recorded(x, y), _bend(x, y))
    assert len(calls) == 2  # to record, and to compare


def test_a_constant_that_changes_between_calls_is_read_anew():
    constant = torch.ones(3)
    recorded = record_at_first_call(lambda x: x * constant)
    for value in (1.0, 2.0, 3.0, 4.0):
        constant.fill_(value)
        assert recorded(torch.ones(3)).tolist() == [value] * 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().add_(1.0),
        lambda x: x * 2.0 if float(x.sum()) > 0 else x * 3.0,
        lambda x: x + torch.rand(3, generator=torch.Generator().manual_seed(0)),
    ],
    ids=["writes in place", "branches on a number", "draws"],
)
def test_what_cannot_be_written_down_stays_as_it_is(function):
    counted, calls = _count(function)
    recorded = record_at_first_call(counted)
    inputs = [torch.tensor([1.0, 2.0, -3.5]), *(s * torch.tensor([1.0, 2.0, 3.0]) for s in (1, -1, 2, -2))]
    for x in inputs:
        assert torch.equal(recorded(x), function(x))
    assert len(calls) > len(inputs) - 1


def test_a_function_that_computes_past_torch_is_found_out_at_the_second_call():
    def function(x):
        return x + torch.from_numpy(x.numpy() ** 2)

    recorded = record_at_first_call(function)
    for seed in range(4):
        x = torch.randn(3, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(recorded(x), function(x))


def test_what_is_computed_twice_is_computed_once():
    def function(x):
        return (x.exp() + 1.0) * (x.exp() + 1.0) + (x.exp() + 1)

    x = torch.ones(2)
    recorder = Recorder([x])
    with recorder:
        out = function(x)
    program = recorder.finish([out])
    functions = [node.function for node in program.operations]
    assert functions.count(torch.ops.aten.exp.default) == 1
    assert len(functions) == 5  # exp, + 1.0, their product, + 1 (which is not 1.0 to torch), the sum
    assert torch.equal(program(torch.zeros(2))[0], function(torch.zeros(2)))


@pytest.mark.parametrize("name", ["agg", "fo-s-mldg", "ffo-s-mldg"])
def test_recorded_steps_agree_stacked_and_alone(name):
    stacked, _ = _train(name, 1, trials=3, precision="float64")
    alone, _ = _train(name, 1, trials=1, precision="float64")
    for key, value in alone.params.items():
        torch.testing.assert_close(stacked.params[key][:1], value, rtol=0, atol=1e-9)


def test_recording_anew_in_the_middle_of_a_training_gives_the_same_bits():
    through, stack = _train("fo-s-mldg", 1, steps=8)
    state = _train("fo-s-mldg", 1, steps=5)[0]  # of a stack that is gone
    stack._steps.clear()
    resumed = stack.advance(state, 8)
    assert all(torch.equal(resumed.params[key], value) for key, value in through.params.items())
