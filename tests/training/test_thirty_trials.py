"""Thirty trials of the bundled benchmark, all at once and one by one, in float64."""

from __future__ import annotations

import pytest
import torch

from digits import TASK, make_plan
from seqdg.bench import Request
from seqdg.data.rotated_mnist import load
from seqdg.nets import Net
from seqdg.training import Inputs, Job, Stack, make_generator, split_rows
from toys import mark_all

STEPS = 25


def job(trial, dataset):
    algorithm, parts = trial.build_algorithm(), split_rows(dataset, trial.protocol, trial.held_out, trial.seed)
    net = Net(TASK.build_net(trial).module.double(), "none")
    params = algorithm.init(net, net.params(), len(parts.train), make_generator(trial.seed, "extra"))
    return net, Job(algorithm, trial.protocol, parts, trial.seed, params)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agg", "fo-s-mldg", *mark_all(["ffo-s-mldg", "s-undo-bias"], pytest.mark.soak)])
def test_a_stack_of_thirty_ends_with_the_weights_of_thirty_loops(name):
    dataset = load()
    trials = make_plan(Request(algorithms=[name])).trials
    assert len(trials) == 30
    nets, jobs = zip(*(job(trial, dataset) for trial in trials), strict=True)
    inputs = Inputs(dataset.x, dataset.y, torch.device("cpu"), torch.float64)
    together = Stack(nets[0], inputs, jobs)
    stacked = together.advance(together.start(), STEPS).params
    for i, (net, own) in enumerate(zip(nets, jobs, strict=True)):
        alone = Stack(net, inputs, [own])
        for key, value in alone.advance(alone.start(), STEPS).params.items():
            torch.testing.assert_close(stacked[key][i], value[0], rtol=0, atol=1e-9)
