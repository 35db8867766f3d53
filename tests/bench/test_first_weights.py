"""What trainings start from is drawn and copied once where many start from the same, and stays what a seed says."""

from __future__ import annotations

from dataclasses import replace

import torch

from digits import TASK, build_stack, make_plan
from seqdg.base import Params
from seqdg.bench import Request, Trial
from seqdg.nets import build_net
from seqdg.training import make_generator
from seqdg.training.stack import stack_shared

REQUEST = Request(algorithms=["undo-bias"], held_out=["0", "75"], trials=2, steps=4, search=2)


def list_trials(**changes: object) -> tuple[Trial, ...]:
    return make_plan(replace(REQUEST, **changes)).trials  # type: ignore[arg-type]


def draw(seed: int) -> Params:
    """The weights that a seed draws, without anything that was kept."""
    dataset = TASK.dataset()
    module = build_net(TASK.net, dataset.shape, dataset.outputs, make_generator(seed, "net")).module
    return {name: p.detach() for name, p in module.named_parameters()}


def test_every_copy_of_every_trial_starts_from_the_weights_of_its_seed() -> None:
    trials = list_trials()
    started = build_stack(trials).start().params
    assert len(trials) == 8
    for i, trial in enumerate(trials):
        for name, weights in draw(trial.seed).items():
            copies = started[f"branch.{name}"][i]
            assert len(copies) == 5
            assert all(torch.equal(copy, weights) for copy in copies)


def test_what_a_stack_starts_from_has_memory_of_its_own() -> None:
    stack = build_stack(list_trials())
    state = stack.start()
    for value in state.params.values():
        assert value.is_contiguous()
        value.zero_()
    again = stack.start().params
    assert all(value.abs().sum() > 0 for value in again.values())


def test_trials_that_differ_in_the_held_out_domain_alone_begin_once() -> None:
    trials = list_trials()
    jobs = build_stack(trials).jobs
    begun = {id(job.params) for job in jobs}
    assert len(begun) == 4, "two candidates of two seeds"
    of = {(trial.settings, trial.seed, id(job.params)) for trial, job in zip(trials, jobs, strict=True)}
    assert len(of) == 4


def test_first_weights_are_of_the_precision_and_the_net_of_their_trials() -> None:
    wide = build_stack(list_trials(precision="float64")).start().params
    assert all(w.dtype == torch.float64 for w in wide.values())
    narrow = [replace(t, net=replace(t.net, hidden=(3,))) for t in list_trials()]
    assert build_stack(narrow).start().params["branch.linear1.weight"].shape[2] == 3


def test_a_net_of_the_user_s_own_is_not_taken_for_one_that_was_drawn() -> None:
    build_stack(list_trials())
    dataset = TASK.dataset()
    module = build_net(TASK.net, dataset.shape, dataset.outputs, make_generator(99, "net")).module
    stack = build_stack(list_trials(), task=replace(TASK, module=module))
    started = stack.start().params["branch.head.weight"].flatten(0, 1)
    assert all(torch.equal(copy, module.get_parameter("head.weight")) for copy in started)


def test_tensors_that_repeat_themselves_are_stacked_as_if_they_did_not() -> None:
    a, b = torch.arange(6.0).reshape(2, 3), torch.arange(6.0, 12.0).reshape(2, 3)
    expanded = [a.expand(4, 2, 3), b.expand(4, 2, 3)]
    values = [expanded[0], expanded[1], expanded[0]]
    for chosen in (values, values[:2], values[:1], [expanded[0], b.repeat(4, 1, 1)]):
        stacked = stack_shared(chosen, torch.device("cpu"))
        assert torch.equal(stacked, torch.stack(chosen))
        assert stacked.is_contiguous()
