"""Learning rates that change: by the step, by the trial of a stack, by the name of a weight."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR, StepLR

from digits import build_stack, make_plan
from seqdg.base import UsageError
from seqdg.bench import Request
from seqdg.core import Algorithm, Number, build, setting
from seqdg.data import Dataset
from seqdg.nets import Net
from seqdg.training import Inputs, Job, Protocol, Sampler, Stack, split_rows

STEPS = 40


def list_rates(protocol: Protocol, total: int | None = None) -> list[float]:
    return [protocol.scale_rate(step, total or protocol.steps) for step in range(total or protocol.steps)]


def list_torch_rates(make) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, rates = make(optimizer), []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def warm_up(optimizer, steps, then):
    first = LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)
    return SequentialLR(optimizer, [first, then], milestones=[steps])


@pytest.mark.parametrize(
    ("fields", "make"),
    [
        ({"schedule": "cosine"}, lambda o: CosineAnnealingLR(o, STEPS)),
        ({"schedule": "steps", "drop_every": 0.25, "drop": 0.2}, lambda o: StepLR(o, 10, 0.2)),
        ({"schedule": "steps"}, lambda o: StepLR(o, 12, 0.1)),
        ({"warmup": 0.2}, lambda o: warm_up(o, 8, StepLR(o, 1000))),
        ({"schedule": "cosine", "warmup": 0.2}, lambda o: warm_up(o, 8, CosineAnnealingLR(o, STEPS - 8))),
    ],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_a_schedule_is_that_of_torch(fields, make):
    assert list_rates(Protocol(steps=STEPS, **fields)) == pytest.approx(list_torch_rates(make), abs=1e-12)


def test_without_a_schedule_the_rate_stays():
    assert list_rates(Protocol(steps=STEPS)) == [1.0] * STEPS
    assert not Protocol().has_schedule
    assert Protocol(warmup=0.1).has_schedule


def test_stages_on_top_have_a_schedule_of_their_own():
    """MetaReg's second stage is a whole training after the first."""
    protocol = Protocol(steps=STEPS, schedule="cosine", warmup=0.1)
    assert list_rates(protocol, 2 * STEPS) == pytest.approx(list_rates(protocol) * 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"warmup": 1.0}, "warmup is 1.0, but it must be a share of the steps, from 0 to below 1"),
        ({"warmup": -0.1}, "warmup is -0.1"),
        ({"drop_every": 0.0}, "drop_every is 0.0, but it must be a share of the steps, above 0"),
        ({"drop": 0.0}, "drop is 0.0, but it must be a factor above 0 and at most 1"),
        ({"drop": 2.0}, "drop is 2.0"),
    ],
)
def test_a_bad_schedule_is_a_sentence(change, sentence):
    with pytest.raises(UsageError, match=sentence):
        replace(Protocol(), **change)


@dataclass(frozen=True)
class Paced(Algorithm):
    """Aggregation whose head learns faster."""

    faster: Number = setting(3.0)

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()

    def pace(self, name: str) -> Number:
        return self.faster if name.startswith("2.") else 1.0


@pytest.fixture(scope="module")
def dataset():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=g, dtype=torch.float64)
    return Dataset("toy", ("a", "b", "c"), ("x", "y"), x, (x[:, 0] > 0).long(), torch.arange(120) % 3, "f")


def make_net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double(), "none")


def train(dataset, algorithms, protocol):
    net, split = make_net(), split_rows(dataset, protocol, ("a",), 0)
    jobs = [Job(a, protocol, split, 0, net.params()) for a in algorithms]
    stack = Stack(net, Inputs(dataset.x, dataset.y, torch.device("cpu"), torch.float64), jobs)
    return stack.advance(stack.start(), protocol.steps).params


MAKERS = {
    "sgd": lambda groups: torch.optim.SGD(groups),
    "momentum": lambda groups: torch.optim.SGD(groups, momentum=0.9, weight_decay=0.1),
    "adam": lambda groups: torch.optim.AdamW(groups, weight_decay=0.1),
    "adam-l2": lambda groups: torch.optim.Adam(groups, weight_decay=0.1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_paced_and_scheduled_training_is_a_loop_in_plain_torch(dataset, name):
    protocol = Protocol(
        steps=12,
        batch=5,
        lr=0.05,
        weight_decay=0.1,
        optimizer=name,
        schedule="cosine",
        warmup=0.25,
        precision="float64",
    )
    ours = train(dataset, [Paced()], protocol)
    weights = {k: v.clone().requires_grad_() for k, v in make_net().params().items()}
    groups = [{"params": [w], "lr": 0.05 * (3.0 if k.startswith("2.") else 1.0)} for k, w in weights.items()]
    optimizer = MAKERS[name](groups)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    split, rates = split_rows(dataset, protocol, ("a",), 0), [g["lr"] for g in groups]
    for step, rows in enumerate(Sampler([0], [split.train], 5).draw(0, 12).rows):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            half = 0.5 * (1 + torch.cos(torch.tensor(torch.pi * (step - 3) / 9, dtype=torch.float64)))
            group["lr"] = rate * ((step + 1) / 4 if step < 3 else float(half))
        logits = torch.func.functional_call(module, weights, dataset.x[rows.flatten()])
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, dataset.y[rows.flatten()]).backward()
        optimizer.step()
    for key, value in weights.items():
        torch.testing.assert_close(ours[key][0], value.detach(), rtol=0, atol=1e-9)


def test_a_pace_may_be_another_in_each_trial_of_a_stack(dataset):
    protocol = Protocol(steps=5, batch=5, lr=0.1, precision="float64")
    together = train(dataset, [Paced(1.0), Paced(4.0)], protocol)
    for i, faster in enumerate((1.0, 4.0)):
        for key, value in train(dataset, [Paced(faster)], protocol).items():
            torch.testing.assert_close(together[key][i], value[0], rtol=0, atol=1e-12)
    for key, value in train(dataset, [build("agg")], protocol).items():
        torch.testing.assert_close(together[key][0], value[0], rtol=0, atol=1e-12)


def plan_trials(*settings):
    fields = {"held_out": ["0"], "trials": 1, "steps": 12, "precision": "float64"}
    return make_plan(Request(algorithms=["agg"], settings=settings, **fields)).trials


def test_trials_with_other_schedules_share_a_stack_and_train_as_each_does_alone():
    given = [
        [],
        ["agg.schedule=cosine"],
        ["agg.schedule=steps", "agg.drop_every=0.25"],
        ["agg.warmup=0.5", "agg.schedule=cosine"],
    ]
    trials = [trial for settings in given for trial in plan_trials(*settings)]
    assert len({trial.key for trial in trials}) == 4
    stack = build_stack(trials)
    together = stack.advance(stack.start(), 12)
    halfway = build_stack(trials)
    resumed = build_stack(trials).advance(halfway.advance(halfway.start(), 7), 12)
    for name, value in together.params.items():
        assert torch.equal(resumed.params[name], value), "in two goes as in one"
    for i, trial in enumerate(trials):
        alone = build_stack([trial])
        own = alone.advance(alone.start(), 12)
        for name, value in own.params.items():
            torch.testing.assert_close(together.params[name][i], value[0], rtol=0, atol=1e-9)
    first, second, *_ = next(iter(together.params.values()))
    assert not torch.equal(first, second)


def test_a_schedule_that_is_not_asked_for_leaves_a_trial_s_key_alone():
    (plain,) = plan_trials()
    assert "schedule" not in plain.description()["protocol"]
    assert plain.key == replace(plain, protocol=replace(plain.protocol, schedule="constant", warmup=0.0)).key
