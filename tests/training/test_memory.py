"""What an algorithm remembers, in a stack, over evaluations and interruptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from seqdg.algorithms.ema import EMA
from seqdg.algorithms.swad import SWAD
from seqdg.base import Folder, UsageError
from seqdg.core import Algorithm, SharedTraining, build, split_average, with_settings
from seqdg.data import Dataset
from seqdg.nets import Net
from seqdg.results import Record
from seqdg.training import Inputs, Job, Protocol, Saving, Stack, View, run_stack, split_rows, trainer
from toys import Remembers

PROTOCOL = Protocol(steps=20, batch=5, lr=0.3, evaluations=10, precision="float64")
CPU = torch.device("cpu")
ALGORITHMS = {
    "agg+swad": build("agg+swad"),
    "agg+mixup+sam+lp+ema": build("agg+mixup+sam+lp+ema"),
    "fo-s-mldg+ema": build("fo-s-mldg+ema", decay=0.8),
    "metareg+sma": build("metareg+sma"),
    "memory": Remembers(),
    "memory+swad": SWAD(Remembers()),
}


@pytest.fixture(scope="module")
def dataset():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(160, 4, generator=g, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(160, generator=g, dtype=torch.float64) > 0).long()
    return Dataset("toy", ("a", "b", "c", "d"), ("x", "y"), x, y, torch.arange(160) % 4, "f")


def make_net(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Net(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double(), "none")


def make_jobs(dataset, algorithms, protocol=PROTOCOL, device=CPU):
    jobs = []
    for i, algorithm in enumerate(algorithms):
        split = split_rows(dataset, protocol, (dataset.domains[i % 4],), seed=i)
        params = algorithm.init(make_net(i), make_net(i).params(), 3, torch.Generator().manual_seed(i))
        views = (View(f"trial {i}", {"algorithm": "toy"}),)
        own = replace(protocol, lr=protocol.lr * (1 + 0.2 * i))
        jobs.append(Job(algorithm, own, split, i, {n: p.to(device) for n, p in params.items()}, views))
    return jobs


def make_stack(dataset, jobs, device=CPU, capture=True):
    inputs = Inputs(dataset.x, dataset.y, device, torch.float64)
    return Stack(make_net().to(device), inputs, jobs, capture=capture)


def told(record: Record) -> tuple[object, ...]:
    return record.key, record.status, record.weights, record.history, record.losses


def run(dataset, jobs, **more):
    return run_stack(lambda: make_stack(dataset, jobs), "toy", CPU, **more)


def vary(algorithm: Algorithm, i: int) -> Algorithm:
    """The same algorithm with another value of a numeric setting, so that trials of a stack differ."""
    for name, values in {"decay": (0.7, 0.9), "since": (0.1, 0.4), "ratio": (0.2, 0.4), "eta": (0.3, 0.9)}.items():
        try:
            algorithm = with_settings(algorithm, {name: values[i]})
        except UsageError:
            continue
    return algorithm


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_stack_remembers_for_every_trial_what_it_would_alone(dataset, name):
    jobs = make_jobs(dataset, [vary(ALGORITHMS[name], i) for i in range(2)])
    together = run(dataset, jobs)
    for job, record in zip(jobs, together, strict=True):
        (alone,) = run(dataset, [job])
        torch.testing.assert_close(torch.tensor(record.losses), torch.tensor(alone.losses), rtol=0, atol=1e-9)
        for ours, theirs in zip(record.history, alone.history, strict=True):
            for part in ("source", "held_out"):
                got, want = (torch.tensor(getattr(e, part)["log_loss"]) for e in (ours, theirs))
                torch.testing.assert_close(got, want, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("trials", [1, 2])
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path: Path, dataset, name, trials):
    jobs = make_jobs(dataset, [vary(ALGORITHMS[name], i) for i in range(trials)])
    whole, saving = run(dataset, jobs), Saving(Folder(tmp_path), 3600.0)
    last = whole[0].history[-1].step

    def interrupt(at, step):
        if step >= at:
            raise KeyboardInterrupt

    for at in (3, last // 2, last - 1):  # each time a little further
        with pytest.raises(KeyboardInterrupt):
            run(dataset, jobs, on_step=partial(interrupt, at), saving=saving)
    assert [told(r) for r in run(dataset, jobs, saving=saving)] == [told(r) for r in whole]


@pytest.mark.parametrize("name", ["agg+swad", "memory+swad"])
@pytest.mark.parametrize("call", [0, 1, 8, 9])
def test_an_interruption_inside_an_evaluation_is_heard_once(tmp_path: Path, dataset, monkeypatch, name, call):
    jobs = make_jobs(dataset, [ALGORITHMS[name]])
    whole, saving, calls = run(dataset, jobs), Saving(Folder(tmp_path), 3600.0), []
    evaluate = trainer.evaluate_stack

    def interrupted(*others, **named):
        calls.append(1)
        if len(calls) == call + 1:
            raise KeyboardInterrupt
        return evaluate(*others, **named)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "evaluate_stack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(dataset, jobs, saving=saving)
    resumed = run(dataset, jobs, saving=saving)
    assert [told(r) for r in resumed] == [told(r) for r in whole]


def test_the_losses_that_are_heard_are_of_the_weights_as_they_are(dataset):
    """Not of the average, and equal to those that the algorithm inside is evaluated with."""
    heard = []

    @dataclass(frozen=True)
    class Listens(Algorithm):
        """Notes what it is told."""

        def memory(self, net, params, sources):
            return {"last": params["0.bias"].new_zeros(sources)}

        def loss(self, net, params, episode):
            return net.losses(params, episode).mean()

        def evaluated(self, memory, losses):
            heard.append(losses)
            return {"last": losses}

    (job,) = make_jobs(dataset, [SharedTraining(Listens(), (EMA(Algorithm()),))])
    (record,) = run(dataset, [replace(job, views=(None, View()))])
    (plain,) = run(dataset, make_jobs(dataset, [build("agg")]))
    got = torch.stack(heard[1:]).reshape(10, 3)  # the first is asked whether it listens
    torch.testing.assert_close(got, torch.tensor([e.source["log_loss"] for e in plain.history], dtype=torch.float64))
    assert record.history != plain.history, "the record is of the average"


def test_one_training_deployed_in_several_ways_is_several_trainings(dataset):
    names = ["agg", "agg+ema", "agg+sma", "agg+swad"]
    averages = tuple(a for name in names if (a := split_average(build(name))[1]) is not None)
    (job,) = make_jobs(dataset, [SharedTraining(build("agg"), averages)])
    shared = run(dataset, [replace(job, views=tuple(View(name) for name in names))])
    for name, record in zip(names, shared, strict=True):
        (alone,) = run(dataset, make_jobs(dataset, [build(name)]))
        assert told(record)[1:] == told(alone)[1:]
        assert record.key == name


@dataclass(frozen=True)
class Grows(Remembers):
    """Its memory grows."""

    def step(self, net, params, memory, episode):
        direction, value, kept = super().step(net, params, {"q": memory["q"][:3]}, episode)
        return direction, value, {"q": torch.cat([kept["q"], kept["q"][:1]])}


@dataclass(frozen=True)
class InPlace(Remembers):
    """Changes its memory in place."""

    def step(self, net, params, memory, episode):
        direction, value, kept = super().step(net, params, memory, episode)
        memory["q"].mul_(1.0)
        return direction, value, kept


@pytest.mark.parametrize("trials", [1, 2])
def test_a_memory_that_changes_shape_or_in_place_is_refused(dataset, trials):
    for algorithm, words in (
        (Grows(), rf"Grows is given 'q' in its memory as \(\({trials}, 3\), torch.float64\) and returns it as"),
        (InPlace(), r"InPlace changes the memory that it is given \('q'\) in place"),
    ):
        stack = make_stack(dataset, make_jobs(dataset, [algorithm] * trials))
        with pytest.raises(UsageError, match=words):
            stack.advance(stack.start(), 1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("trials", [1, 3])
def test_a_captured_step_remembers_as_an_eager_one(dataset, name, trials):
    device = torch.device("cuda", torch.cuda.current_device())
    protocol = replace(PROTOCOL, schedule="cosine", warmup=0.2)
    jobs = make_jobs(dataset, [vary(ALGORITHMS[name], i % 2) for i in range(trials)], protocol, device)
    states = []
    for capture in (True, False):
        stack = make_stack(dataset, jobs, device, capture)
        state = stack.start()
        for stop in range(2, stack.bounds[-1] + 1, 2):
            state = stack.advance(state, stop)
            if stack.uses_evaluations:
                losses = 1.0 + 0.02 * torch.full((trials, 3), float((stop // 2 - 4) ** 2))
                state = stack.note_evaluation(state, losses)
        assert stack.captures == capture, "the graph was recorded"
        states.append((state, stack.deploy(state)))
    (captured, served), (eager, want) = states
    for ours, theirs in ((captured.params, eager.params), (captured.memory, eager.memory), (served, want)):
        for key, value in theirs.items():
            torch.testing.assert_close(ours[key], value, rtol=1e-9, atol=1e-9)


@dataclass(frozen=True)
class Lags(Algorithm):
    """Follows the gradient of the step before, remembers the weights of the step before, and swaps two tensors."""

    def memory(self, net, params, sources):
        zeros = {f"late.{name}": torch.zeros_like(w) for name, w in params.items()}
        before = {f"before.{name}": w.clone() for name, w in params.items()}
        return {**zeros, **before, "left": torch.zeros(()), "right": torch.ones(())}

    def step(self, net, params, memory, episode):
        gradient, loss = self.gradient(net, params, episode)
        new = {f"late.{name}": d for name, d in gradient.items()}
        held = {f"before.{name}": w for name, w in params.items()}
        direction = {name: memory[f"late.{name}"] for name in params}
        return direction, loss, {**new, **held, "left": memory["right"], "right": memory["left"]}

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()


@pytest.mark.parametrize("trials", [1, 2])
def test_a_memory_may_hold_weights_and_a_direction_may_be_the_memory(dataset, trials):
    protocol = replace(PROTOCOL, optimizer="sgd")
    stack = Stack(
        make_net(), Inputs(dataset.x, dataset.y, CPU, torch.float64), make_jobs(dataset, [Lags()] * trials, protocol)
    )
    states = [stack.start()]
    for step in range(1, 4):
        states.append(stack.advance(states[-1], step))
    rates = [job.protocol.lr for job in stack.jobs]
    for before, after in pairwise(states):
        for name, w in before.params.items():
            assert torch.equal(after.memory[f"before.{name}"], w)
            for i, lr in enumerate(rates):
                want = w[i] - lr * before.memory[f"late.{name}"][i]
                torch.testing.assert_close(after.params[name][i], want, rtol=0, atol=1e-12)
    assert torch.equal(states[1].params["0.weight"], states[0].params["0.weight"])
    assert not torch.equal(states[3].params["0.weight"], states[1].params["0.weight"])
    assert [s.memory["left"].tolist() for s in states] == [
        [0.0] * trials,
        [1.0] * trials,
        [0.0] * trials,
        [1.0] * trials,
    ]
