"""Trials and domains are evaluated in few calls, with the numbers that each has by itself."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqdg.algorithms.agg import AGG
from seqdg.data import Dataset
from seqdg.nets import Net
from seqdg.training import (
    DomainPredictions,
    Groups,
    Inputs,
    Job,
    Protocol,
    Stack,
    measure_predictions,
    split_rows,
)
from seqdg.training.device import use_serving_precision
from seqdg.training.metrics import compute_metrics
from seqdg.training.trainer import evaluate_stack


@pytest.mark.parametrize("classes", [2, 7])
def test_domains_that_are_measured_together_have_the_values_that_each_has_alone(classes):
    generator = torch.Generator().manual_seed(classes)

    def predict(rows: int, lengths: list[int]) -> DomainPredictions:
        logits = torch.randn(3, rows, classes, generator=generator)
        y = torch.randint(0, classes, (3, rows), generator=generator)
        mask = torch.arange(rows) < torch.tensor(lengths)[:, None]
        groups = Groups(torch.randint(0, 5, (3, rows), generator=generator), 5)
        return DomainPredictions(logits, y, mask, groups=groups)

    domains = [predict(40, [40, 31, 12]), predict(400, [400, 399, 20]), predict(0, [0, 0, 0]), predict(55, [55, 55, 0])]
    domains[0].logits[1, 3] = math.nan
    evaluations = measure_predictions(domains, 2, 10)
    for k, domain in enumerate(domains):
        for i, evaluation in enumerate(evaluations):
            part = evaluation.source if k < 2 else evaluation.held_out
            logits, y, mask, number = (t[i : i + 1] for t in (*domain[:3], domain.groups.number))
            for name, values in compute_metrics(logits, y, mask, Groups(number, 5)).items():
                assert part[name][k % 2] == pytest.approx(values.item(), abs=1e-12, nan_ok=True), (name, k, i)


class Counted(TorchDispatchMode):
    """Counts the operations of torch."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_an_evaluation_takes_as_many_operations_for_many_trials_as_for_two():
    generator = torch.Generator().manual_seed(0)
    domain = torch.arange(4).repeat_interleave(30)
    x = torch.randn(len(domain), 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (len(domain),), generator=generator)
    dataset = Dataset("toy", ("a", "b", "c", "d"), ("x", "y", "z"), x, y, domain, "f")
    module = nn.Linear(4, 3, dtype=torch.float64, device="meta").to_empty(device="cpu")
    nn.init.constant_(module.weight, 0.1)
    nn.init.constant_(module.bias, 0.0)
    net, protocol = Net(module, "none"), Protocol(steps=3, batch=5)
    counts = []
    for trials in (2, 12):
        jobs = [
            Job(AGG(), protocol, split_rows(dataset, protocol, ("abcd"[i % 4],), i), i, net.params())
            for i in range(trials)
        ]
        stack = Stack(net, Inputs(x, y, torch.device("cpu"), torch.float64), jobs)
        state = stack.start()
        evaluate_stack(stack, state, stack.deploy(state))  # what is the same in every evaluation is made in the first
        with Counted() as counted:
            evaluate_stack(stack, state, stack.deploy(state))
        counts.append(counted.count)
    assert counts[0] == counts[1] > 0


class Watched(nn.Module):
    """Returns its inputs, and notes whether tf32 is allowed."""

    seen: ClassVar[list[bool]] = []

    def forward(self, x):
        self.seen.append(torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32)
        return x


@pytest.mark.parametrize(("precision", "expected"), [("bf16", True), ("float32", False)])
def test_a_net_that_trains_in_half_precision_predicts_in_tf32_and_leaves_the_settings_as_they_were(precision, expected):
    with use_serving_precision("float32"):  # which puts back what was
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        _check_serving_precision(precision, expected)


def _check_serving_precision(precision, expected):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 3, generator=generator), torch.randint(0, 3, (60,), generator=generator)
    dataset = Dataset("toy", tuple("abc"), tuple("xyz"), x, y, torch.arange(3).repeat_interleave(20), "f")
    layer = nn.Linear(3, 3, device="meta").to_empty(device="cpu")
    nn.init.eye_(layer.weight)
    nn.init.constant_(layer.bias, 0.0)
    net, protocol = Net(nn.Sequential(Watched(), layer), "none"), Protocol(steps=2, batch=4, precision=precision)
    job = Job(AGG(), protocol, split_rows(dataset, protocol, ("a",), 0), 0, net.params())
    stack = Stack(net, Inputs(x, y, torch.device("cpu")), [job])
    logits, _ = stack.predict(stack.deploy(stack.start()), torch.arange(5)[None])
    assert torch.equal(logits[0], x[:5])
    assert Watched.seen[-1] is expected
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
