from __future__ import annotations

import random

import pytest
import torch

from seqdg.training.replay import Recorder

F64 = torch.float64


def _record(function, *inputs, renews=True):
    """The function as a program, and what it returns for these inputs."""
    with Recorder(list(inputs)) as recorder:
        out = function(*inputs)
    return recorder.finish(list(out), renews), out


def _draw(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def _list_written(program):
    """What each operation of a prepared program writes into, if it writes over anything."""
    return [call.kwargs.get("out") for call in program.prepared.calls]


def test_operations_on_numbers_write_over_what_nobody_reads_later():
    def function(x):
        return (((x * 2.0).exp() + 1.0).log() - x).sum(0, keepdim=True) + 0.0, x + 1.0

    x = _draw(4, 3)
    program, _ = _record(function, x)
    program(x)
    written = [out for out in _list_written(program) if out is not None and out.shape == x.shape]
    assert len(written) == 5
    assert len({out.data_ptr() for out in written}) == 1


def test_what_is_read_later_is_not_written_over():
    def function(x):
        a = x.exp()
        b = a + 1.0
        c = b.mT @ a  # a and b are still needed
        d = a.mT.relu().mT + b  # through a view
        return c * 2.0, d * a

    x = _draw(4, 4)
    program, _ = _record(function, x)
    for seed in range(4):
        x = _draw(4, 4, seed=seed)
        assert all(torch.equal(a, b) for a, b in zip(program(x), function(x), strict=True))


def test_a_tensor_is_not_written_over_while_its_transpose_is_read():
    def function(x):
        a = x.exp()
        return ((a + a.mT) * 1.5, (a - 1.0).sum())

    program, _ = _record(function, _draw(3, 3))
    for seed in range(3):
        x = _draw(3, 3, seed=seed)
        assert all(torch.equal(a, b) for a, b in zip(program(x), function(x), strict=True))


def test_results_stay_as_they_are_when_the_program_runs_again():
    def function(x):
        a = x.exp()
        return a, a.mT, a.clone(), x.new_ones(2), (x * 1.0), a.sort(0)[0], *a.unbind(1)

    program, _ = _record(function, _draw(2, 2))
    inputs = [_draw(2, 2, seed=seed) for seed in range(4)]
    results = [program(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(result, function(x), strict=True))
    for result in results:
        result[3].fill_(7.0)  # a result is the caller's to change
        result[4].fill_(7.0)
    assert program(inputs[0])[3].tolist() == [1.0, 1.0]
    assert torch.equal(inputs[0], _draw(2, 2))


def test_an_input_that_is_returned_is_the_same_tensor():
    program, _ = _record(lambda x, y: (x, y.mT, x + y), _draw(2, 2), _draw(2, 2))
    for seed in range(3):
        x, y = _draw(2, 2, seed=seed), _draw(2, 2, seed=seed + 9)
        one, other, _ = program(x, y)
        assert one is x
        assert other.data_ptr() == y.data_ptr()


def test_inputs_may_be_other_tensors_or_lie_otherwise_in_memory():
    def function(x, y):
        return (x.mT.reshape(2, 6) @ y.exp(), (x.sum(1) * 2.0).sum())

    program, _ = _record(function, _draw(3, 4), _draw(6, 2))
    x, y = _draw(3, 4, seed=1), _draw(6, 2, seed=2)
    for one in (x, x, x.mT.contiguous().mT, x + 1.0, x):
        for other in (y, y * 2.0, y):
            assert all(torch.equal(a, b) for a, b in zip(program(one, other), function(one, other), strict=True))


def test_numbers_that_change_in_place_are_read_anew():
    x = _draw(3, 3)
    program, _ = _record(lambda x: (x.mT * 2.0, x * 1.0 + x.clone()), x)
    for _ in range(3):
        x.add_(1.0)
        one, other = program(x)
        assert torch.equal(one, x.mT * 2.0)
        assert torch.equal(other, x + x)


def test_tensors_that_are_passed_by_name_are_passed_anew():
    def function(x, y):
        return (torch.searchsorted(x, y, sorter=x.argsort()) * 2, torch.searchsorted(x, y + 1.0, sorter=x.argsort()))

    program, _ = _record(function, _draw(5), _draw(3))
    for seed in range(4):
        x, y = _draw(5, seed=seed), _draw(3, seed=seed + 9)
        assert all(torch.equal(a, b) for a, b in zip(program(x, y), function(x, y), strict=True))


def test_views_copies_and_constants_take_no_call():
    def function(x):
        ones = torch.ones_like(x) * 3.0 + torch.arange(3.0, dtype=F64)
        a = x.exp().mT.unsqueeze(0).expand(2, 3, 3).clone()[0] * 1
        return (a.mT + ones,)

    x = _draw(3, 3)
    program, out = _record(function, x)
    assert torch.equal(program(x)[0], out[0])
    # exp, the copy that lies otherwise in memory, and the sum
    assert len(program.prepared.calls) == 3


def _compose(seed, count=40):
    """A function of many random operations, which read any results before them, also through views."""
    chance = random.Random(seed)
    choices = [
        lambda a, b: a + b, lambda a, b: a * b, lambda a, b: torch.where(a > b, a, b), lambda a, b: a @ b * 0.3,
        lambda a, b: a.mT, lambda a, b: a.tanh(), lambda a, b: a * 1.0, lambda a, b: a.clone(), lambda a, b: a.relu(),
        lambda a, b: a.sum(1, keepdim=True) * 0.1 + b, lambda a, b: a.mT.contiguous(), lambda a, b: torch.zeros_like(a),
        lambda a, b: a.flip(0), lambda a, b: torch.cat([a[:2], b[2:]]), lambda a, b: a.sort(1)[0],
        lambda a, b: a.expand(2, 4, 4).mean(0) - b, lambda a, b: torch.stack(a.unbind(1)), lambda a, b: a[1] + b,
    ]  # fmt: skip
    plan = [(chance.choice(choices), chance.random(), chance.random()) for _ in range(count)]
    kept = chance.sample(range(count + 2), 5)

    def function(x, y):
        values = [x, y]
        for operation, one, other in plan:
            # Mostly what was computed lately, so that memory is handed on.
            a, b = (values[max(0, len(values) - 1 - int(8 * r**2))] for r in (one, other))
            values.append(operation(a, b))
        return [values[i] for i in kept]

    return function


@pytest.mark.parametrize("seed", range(40))
def test_a_program_that_renews_nothing_is_right_until_the_next_call(seed):
    function = _compose(seed)
    program, _ = _record(function, _draw(4, 4), _draw(4, 4, seed=1), renews=False)
    for k in range(4):
        x, y = _draw(4, 4, seed=100 + k), _draw(4, 4, seed=200 + k)
        assert all(torch.equal(a, b) for a, b in zip(program(x, y), function(x, y), strict=True))
        assert torch.equal(x, _draw(4, 4, seed=100 + k))


def test_what_is_not_renewed_lies_where_it_lay():
    program, _ = _record(lambda x: [x.exp(), x @ x], _draw(3, 3), renews=False)
    first, second = ([out.data_ptr() for out in program(_draw(3, 3, seed=seed))] for seed in (1, 2))
    assert first == second


@pytest.mark.parametrize("seed", range(40))
def test_any_program_gives_the_bits_of_its_function(seed):
    function = _compose(seed)
    program, _ = _record(function, _draw(4, 4), _draw(4, 4, seed=1))
    results = []
    for k in range(4):
        x, y = _draw(4, 4, seed=100 + k), _draw(4, 4, seed=200 + k)
        results.append((program(x, y), function(x, y)))
    for got, wanted in results:  # after all runs: none has changed what another returned
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
