from __future__ import annotations

import pytest
import torch

from seqdg.paper.cost import LivingMemory, compute, count_gradients, measure, measure_peak_memory


@pytest.mark.parametrize(("name", "count"), [("agg", 3), ("fo-mldg", 3), ("fo-s-mldg", 3), ("ffo-s-mldg", 3)])
def test_first_order_algorithms_take_one_gradient_of_each_domain(dataset, study, name, count):
    stack = study(dataset(), [name]).build_stack(name)
    assert count_gradients(stack, stack.start()) == pytest.approx(count, rel=1e-3)


def test_exact_algorithms_take_more(dataset, study):
    def of(name):
        stack = study(dataset(), [name]).build_stack(name)
        return count_gradients(stack, stack.start())

    assert 3.5 < of("mldg") < of("s-mldg")


def test_a_stack_of_trials_counts_each_alike(dataset, study):
    stack = study(dataset(), ["fo-s-mldg"], trials=3).build_stack("fo-s-mldg")
    assert count_gradients(stack, stack.start()) == pytest.approx(3, rel=0.05)


def test_memory_is_counted_while_it_lives():
    with LivingMemory() as living:
        a = torch.zeros(1000)
        b = a + 1
        view = b[10:]
        assert living.now == 8000
        del a
        assert living.now == 4000
        del b
        assert living.now == 4000  # the view still holds it
        del view
        assert living.now == 0
    assert living.peak == 8000


def test_what_was_there_before_is_not_counted():
    a = torch.zeros(1000)
    with LivingMemory() as living:
        a.add_(1)
        assert living.peak == 0


def test_a_copy_of_the_net_for_each_source_takes_more_memory(dataset, study):
    def of(name):
        stack = study(dataset(), [name]).build_stack(name)
        return measure_peak_memory(stack, stack.advance(stack.start(), 1))

    weights = sum(p.numel() for p in study(dataset(), ["agg"]).build_stack("agg").net.params().values()) * 4
    assert of("agg") > 3 * weights  # weights, velocity, gradient
    assert of("undo-bias") > max(3 * 3 * weights, of("agg"))  # the same, of three sources


def test_every_stack_is_timed_from_where_it_is_and_none_is_changed(dataset, study):
    made = study(dataset(), ["agg", "s-mldg"])
    stacks = {name: made.build_stack(name) for name in made.names}
    found = measure(stacks, rounds=3, steps=3)
    assert found["s-mldg"].seconds > found["agg"].seconds > 0
    assert stacks["agg"].start().step == 0


def test_the_numbers_name_every_algorithm(dataset, study):
    found = compute(study(dataset(), ["agg", "fo-s-mldg"]))
    assert list(found["costs"]) == ["agg", "fo-s-mldg"]
    assert found["sources"] == 3
