from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from seqdg.algorithms.agg import AGG
from seqdg.data import Dataset
from seqdg.nets import Net
from seqdg.training import Inputs, Job, Protocol, Stack, count_filled, fill_cyclically, shuffle_order, split_rows
from seqdg.training.trainer import evaluate_stack

TOGETHER = 7


@dataclass(frozen=True)
class Centered(AGG):
    """Logits less their mean over the batch (nobody, 2024)."""

    together = TOGETHER

    def predict(self, net, deployed, x):
        assert len(x) == TOGETHER
        logits = net(deployed, x)
        return logits - logits.mean(0)


@pytest.fixture
def dataset():
    generator = torch.Generator().manual_seed(0)
    domain = torch.tensor([0] * 33 + [1] * 10 + [2] * 47 + [3] * 21)
    x = torch.randn(len(domain), 4, generator=generator, dtype=torch.float64) + domain[:, None]
    y = torch.randint(0, 3, (len(domain),), generator=generator)
    return Dataset("toy", ("a", "b", "c", "d"), ("x", "y", "z"), x, y, domain, "f")


def make_net():
    torch.manual_seed(0)
    return Net(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double(), "none")


def make_stack(dataset, held_out):
    jobs = [
        Job(Centered(), p, split_rows(dataset, p, (name,), i), i, make_net().params())
        for i, name in held_out
        for p in [Protocol(steps=3, batch=5, lr=0.1 * (i + 1))]
    ]
    return Stack(make_net(), Inputs(dataset.x, dataset.y, torch.device("cpu"), torch.float64), jobs)


def train(stack):
    state = stack.advance(stack.start(), 3)
    return state, stack.deploy(state)


def test_rows_fill_whole_batches_from_the_first_on():
    rows = torch.tensor([4, 5, 6])
    assert [count_filled(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]
    assert count_filled(5, 0) == 5
    assert fill_cyclically(rows, 8).tolist() == [4, 5, 6, 4, 5, 6, 4, 5]
    assert fill_cyclically(rows[:0], 2).tolist() == [0, 0]


def test_batches_of_a_domain_whose_rows_are_listed_class_by_class_hold_all_classes():
    labels = torch.arange(10).repeat_interleave(50)
    order = shuffle_order(500)
    assert sorted(order.tolist()) == list(range(500))
    assert torch.equal(order, shuffle_order(500))
    assert min(len(batch.unique()) for batch in labels[order].split(50)) > 6


def test_a_domain_is_predicted_in_whole_batches_of_its_own_rows(dataset):
    stack = make_stack(dataset, [(0, "b")])
    _, deployed = train(stack)
    weights, net = {name: w[0] for name, w in deployed.items()}, make_net()
    split = stack.jobs[0].split
    predicted = stack.predict_domains(deployed)
    for rows, domain in zip((*split.validation, *split.test), predicted, strict=True):
        own = [rows.tolist()[i] for i in shuffle_order(len(rows)).tolist()]
        for first in range(0, len(own), TOGETHER):
            batch = own[first : first + TOGETHER]
            k = 0
            while len(batch) < TOGETHER:
                batch.append(own[k % len(own)])
                k += 1
            logits = net(weights, dataset.x[batch])
            want = logits - logits.mean(0)
            count = min(TOGETHER, len(own) - first)
            assert torch.allclose(domain.logits[0, first : first + count], want[:count], atol=1e-12)
        assert domain.mask.sum() == len(own)


def test_a_trial_predicts_alike_alone_and_in_a_stack_with_longer_domains(dataset):
    held_out = [(0, "a"), (1, "b"), (2, "c")]
    stack = make_stack(dataset, held_out)
    state, deployed = train(stack)
    stacked = evaluate_stack(stack, state, deployed)
    for i, which in enumerate(held_out):
        alone = make_stack(dataset, [which])
        assert_alike(evaluate_stack(alone, *train(alone))[0], stacked[i])


def assert_alike(a, b):
    for part in ("source", "held_out"):
        for name, values in getattr(a, part).items():
            assert values == pytest.approx(getattr(b, part)[name], abs=1e-9), (part, name)


def test_the_batch_changes_what_is_predicted(dataset):
    """Else the tests above would hold for any batches."""
    stack = make_stack(dataset, [(0, "c")])
    _, deployed = train(stack)
    before = stack.predict_domains(deployed)[-1].logits
    job = stack.jobs[0]
    reverse = replace(job, split=job.split._replace(test=(job.split.test[0].flip(0),)))
    after = Stack(stack.net, stack.inputs, [reverse]).predict_domains(deployed)[-1].logits
    count = len(job.split.test[0])
    assert not torch.allclose(before[0, :count], after[0, :count].flip(0), atol=1e-3)
