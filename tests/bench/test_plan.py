from __future__ import annotations

from dataclasses import replace

import pytest

from digits import make_plan
from seqdg.base import UsageError
from seqdg.bench import Request
from seqdg.bench.planning import LONE_STEPS, choose_compiled
from seqdg.nets import NetSpec


@pytest.mark.parametrize(("compiling", "device", "steps", "expected"), [
    ("auto", "cuda", 10, False), ("auto", "cuda", 10**8, True), ("auto", "cpu", 10**8, False),
    ("on", "cuda", 10, True), ("on", "cpu", 10, True), ("off", "cuda", 10**8, False),
])  # fmt: skip
def test_a_long_training_of_a_stack_on_a_gpu_is_compiled(compiling, device, steps, expected):
    planned = make_plan(Request(algorithms=["agg"], trials=2, steps=steps))
    chosen = choose_compiled(planned, device, compiling)
    assert {g.compiles for g in chosen.groups} == {g.compiles for g in chosen.missing} == {expected}


@pytest.mark.parametrize(("net", "steps", "expected"), [
    ("timm:vit_small_patch16_224", LONE_STEPS, True), ("dinov2-small", LONE_STEPS, True),
    ("timm:vit_small_patch16_224", LONE_STEPS - 1, False), ("resnet18", 10**8, False), ("mlp", 10**8, False),
])  # fmt: skip
def test_a_lone_network_of_another_package_is_compiled_where_it_trains_for_long(net, steps, expected):
    planned = make_plan(Request(algorithms=["agg"], held_out=["0"], trials=1, steps=steps))
    trial = replace(planned.trials[0], net=NetSpec(net))
    groups = (replace(planned.groups[0], trials=(trial,)),)
    chosen = choose_compiled(replace(planned, trials=(trial,), groups=groups, missing=groups), "cuda")
    assert chosen.groups[0].compiles is expected


def test_what_is_left_of_a_group_is_compiled_as_the_whole_was():
    request = Request(algorithms=["agg"], trials=2, steps=10**8)
    whole = make_plan(request)
    done = [trial.key for trial in whole.groups[0].trials[:-1]]
    left = choose_compiled(make_plan(request, finished=done), "cuda")
    assert len(left.missing[0].trials) == 1
    assert left.missing[0].compiles


def test_a_choice_for_compiling_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="'maybe'"):
        choose_compiled(make_plan(Request(algorithms=["agg"], trials=1)), "cpu", "maybe")
