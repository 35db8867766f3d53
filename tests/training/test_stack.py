from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from seqdg.base import Episode, UsageError, tree
from seqdg.core import Algorithm, build
from seqdg.data import Dataset
from seqdg.nets import Net
from seqdg.training import Inputs, Job, Protocol, Sampler, Stack, end_stages, split_rows

PROTOCOL = Protocol(steps=6, batch=5, lr=0.1)


@pytest.fixture
def dataset():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (120,), generator=generator)
    return Dataset("toy", ("a", "b", "c", "d"), ("x", "y", "z"), x, y, torch.arange(120) % 4, "f")


def make_net(seed=0, batchnorm=False, policy="recalibrate"):
    torch.manual_seed(seed)
    middle = [nn.BatchNorm1d(6)] if batchnorm else []
    module = nn.Sequential(nn.Linear(4, 6), *middle, nn.Tanh(), nn.Linear(6, 3)).double()
    return Net(module, policy if batchnorm else "none")


def jobs_of(dataset, algorithms, protocol=PROTOCOL, batchnorm=False):
    made = []
    for i, algorithm in enumerate(algorithms):
        own = replace(protocol, lr=protocol.lr * (1 + i))
        parts = split_rows(dataset, own, (dataset.domains[i % 4],), seed=i)
        made.append(Job(algorithm, own, parts, i, make_net(i, batchnorm).params()))
    return made


def stack_of(dataset, jobs, batchnorm=False, policy="recalibrate"):
    inputs = Inputs(dataset.x, dataset.y, torch.device("cpu"), torch.float64)
    return Stack(make_net(batchnorm=batchnorm, policy=policy), inputs, jobs)


@pytest.mark.parametrize("name", ["agg", "mldg", "fo-mldg", "s-mldg", "fo-s-mldg", "ffo-s-mldg"])
@pytest.mark.parametrize("batchnorm", [False, True])
def test_a_stack_trains_every_trial_as_if_it_were_alone(dataset, name, batchnorm):
    settings = [{}] * 3 if name == "agg" else [{"alpha": a} for a in (0.05, 0.1, 0.3)]
    jobs = jobs_of(dataset, [build(name, **s) for s in settings], batchnorm=batchnorm)
    together = stack_of(dataset, jobs, batchnorm)
    state = together.advance(together.start(), 6)
    served = together.deploy(state)
    for i, job in enumerate(jobs):
        alone = stack_of(dataset, [job], batchnorm)
        own = alone.advance(alone.start(), 6)
        for key, value in alone.deploy(own).items():
            torch.testing.assert_close(served[key][i], value[0], rtol=0, atol=1e-11)
        rows = job.split.test[0][None]
        torch.testing.assert_close(torch.cat(state.losses)[:, i], torch.cat(own.losses)[:, 0], rtol=0, atol=1e-11)
        assert alone.predict(alone.deploy(own), rows)[0].shape == (1, len(job.split.test[0]), 3)


def test_where_no_graph_can_be_recorded_training_goes_on_as_it_would_without(dataset, monkeypatch, caplog):
    kept = []

    def fails(*_):
        guard = torch._C._DisableFuncTorch()  # as torch's own frames have it that print a tensor
        kept.append(RuntimeError(f"not while recording\nand more words, {guard}"))
        raise kept[-1]

    def fails_twice(*_):
        try:
            fails()
        finally:
            raise RuntimeError("something failed before")

    monkeypatch.setattr("seqdg.training.step.CapturedStep", fails_twice)
    jobs = jobs_of(dataset, [build("agg")])
    refused, eager = stack_of(dataset, jobs), stack_of(dataset, jobs)
    theirs = eager.advance(eager.start(), 6)
    refused.captures = True
    try:
        raise ValueError("what is being handled meanwhile")
    except ValueError:
        ours = refused.advance(refused.start(), 6)
    assert [r.getMessage().split(": ")[1] for r in caplog.records] == ["not while recording"]
    assert all(torch.equal(ours.params[key], value) for key, value in theirs.params.items())


@dataclass(frozen=True)
class Asks(Algorithm):
    """Whether a gradient is taken in the thread that asks for it."""

    def loss(self, net, params, episode):
        assert not torch._C._is_multithreading_enabled()
        return net.losses(params, episode).mean()


def test_gradients_are_taken_in_one_thread_so_that_they_are_summed_in_one_order(dataset):
    stack = stack_of(dataset, jobs_of(dataset, [Asks()]))
    stack.advance(stack.start(), 1)
    assert torch._C._is_multithreading_enabled()


@dataclass(frozen=True)
class Changes(Algorithm):
    """The weights that it is given."""

    def gradient(self, net, params, episode):
        direction, loss = super().gradient(net, params, episode)
        params["2.bias"].add_(0.1)
        return direction, loss

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()


@pytest.mark.parametrize("trials", [1, 3])
def test_an_algorithm_that_changes_its_weights_in_place_is_refused(dataset, trials):
    stack = stack_of(dataset, jobs_of(dataset, [Changes()] * trials))
    with pytest.raises(UsageError, match=r"Changes changes the weights that it is given \('2.bias'\) in place"):
        stack.advance(stack.start(), 1)


def test_training_is_what_a_loop_in_plain_torch_does(dataset):
    (job,) = jobs_of(dataset, [build("agg")])
    stack = stack_of(dataset, [job])
    got = stack.advance(stack.start(), 6).params
    weights = {k: v.clone().requires_grad_() for k, v in job.params.items()}
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    optimizer = torch.optim.SGD(list(weights.values()), lr=0.1, momentum=0.9, weight_decay=5e-5)
    draws = Sampler([job.seed], [job.split.train], 5).draw(0, 6)
    for rows in draws.rows:
        logits = torch.func.functional_call(module, weights, dataset.x[rows.flatten()])
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, dataset.y[rows.flatten()]).backward()
        optimizer.step()
    for key, value in weights.items():
        torch.testing.assert_close(got[key][0], value.detach(), rtol=0, atol=1e-12)


def test_ffo_by_default_takes_the_paper_s_update_without_momentum_or_decay(dataset):
    (job,) = jobs_of(dataset, [build("ffo-s-mldg", alpha=0.2)])
    stack = stack_of(dataset, [job])
    state = stack.start()
    after = stack.advance(state, 1).params
    rows = Sampler([job.seed], [job.split.train], 5).draw(0, 1).rows[0, 0]
    weights, net = job.params, stack.net
    for r in rows:
        step = torch.func.grad(net.loss)(weights, (dataset.x[r], dataset.y[r]))
        weights = tree.add(weights, step, -0.2)
    want = {k: w + 0.1 * (weights[k] - w) for k, w in job.params.items()}
    for key, value in want.items():
        torch.testing.assert_close(after[key][0], value, rtol=0, atol=1e-12)


def test_training_in_two_goes_is_training_in_one_bit_for_bit(dataset):
    jobs = jobs_of(dataset, [build("fo-s-mldg"), build("fo-s-mldg", alpha=0.4)])
    stack = stack_of(dataset, jobs)
    whole = stack.advance(stack.start(), 6)
    again = stack_of(dataset, jobs)
    half = again.advance(again.start(), 3)
    rest = stack_of(dataset, jobs).advance(half, 6)
    assert all(torch.equal(whole.params[k], rest.params[k]) for k in whole.params)
    assert half.step == 3


@dataclass(frozen=True)
class Nudge(Algorithm):
    """Moves one weight by a constant, and doubles it on entering."""

    name: str = "0.bias"
    by: float = 1.0

    def enter(self, net, params, memory):
        return {**params, self.name: 2 * params[self.name]}, memory

    def gradient(self, net, params, episode: Episode):
        return {self.name: torch.full_like(params[self.name], self.by)}, episode.progress


@dataclass(frozen=True)
class TwoStages(Algorithm):
    """A third of the steps on one weight, the rest on another."""

    def stages(self):
        return ((1 / 3, Nudge("0.bias")), (2 / 3, Nudge("2.bias")))


def test_stages_follow_each_other_with_fresh_momentum_and_leave_other_weights_alone(dataset):
    protocol = replace(PROTOCOL, weight_decay=0.0, lr=1.0, momentum=0.5)
    (job,) = jobs_of(dataset, [TwoStages()], protocol)
    stack = stack_of(dataset, [job])
    assert end_stages(TwoStages(), 6) == [2, 6]
    state = stack.advance(stack.start(), 6)
    start = job.params
    torch.testing.assert_close(state.params["0.bias"][0], 2 * start["0.bias"] - (1 + 1.5))
    torch.testing.assert_close(state.params["2.bias"][0], 2 * start["2.bias"] - (1 + 1.5 + 1.75 + 1.875))
    assert torch.equal(state.params["0.weight"][0], start["0.weight"])
    progress = torch.cat(state.losses)[:, 0].tolist()
    assert progress == pytest.approx([0, 0.5, 0, 0.25, 0.5, 0.75])


def test_a_trial_that_diverges_leaves_the_others_alone(dataset):
    calm, wild = build("agg"), build("agg")
    jobs = jobs_of(dataset, [calm, wild])
    jobs[1] = replace(jobs[1], protocol=replace(PROTOCOL, lr=1e200))
    stack = stack_of(dataset, jobs)
    state = stack.advance(stack.start(), 6)
    alone = stack_of(dataset, jobs[:1])
    own = alone.advance(alone.start(), 6)
    assert not torch.isfinite(torch.cat(state.losses)[:, 1]).all()
    for key, value in own.params.items():
        torch.testing.assert_close(state.params[key][0], value[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("trials", [1, 2])
def test_running_batchnorm_is_torchs_running_average_of_the_sources_minibatches(dataset, trials):
    moved = replace(dataset, x=dataset.x + 3.0 * dataset.domain.unsqueeze(1))  # sources that lie apart
    jobs = jobs_of(moved, [build("agg")] * trials, replace(PROTOCOL, batch=7), batchnorm=True)
    stack = stack_of(moved, jobs, batchnorm=True, policy="running")
    state = stack.advance(stack.start(), 4)
    served, other = stack.deploy(state), stack_of(moved, jobs, batchnorm=True).deploy(state)
    for i, job in enumerate(jobs):
        module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.Tanh(), nn.Linear(6, 3)).double()
        module.load_state_dict({name: p[i] for name, p in state.params.items()}, strict=False)
        module.train()
        for rows in Sampler([job.seed], [job.split.train], 7).draw(0, 3).rows.flatten(0, 2):  # of 24 rows a source
            module(moved.x[rows])
        assert module[1].num_batches_tracked == 9
        torch.testing.assert_close(served["1.running_mean"][i], module[1].running_mean)
        torch.testing.assert_close(served["1.running_var"][i], module[1].running_var)
        x = moved.x[job.split.train[0]]
        torch.testing.assert_close(stack.net({n: p[i] for n, p in served.items()}, x), module.eval()(x))
    torch.testing.assert_close(served["1.running_mean"], other["1.running_mean"])
    assert (other["1.running_var"] > 1.5 * served["1.running_var"]).any()


def test_deployed_batchnorm_has_the_statistics_of_the_source_rows(dataset):
    (job,) = jobs_of(dataset, [build("agg")], replace(PROTOCOL, batch=3), batchnorm=True)
    stack = stack_of(dataset, [job], batchnorm=True)
    state = stack.advance(stack.start(), 2)
    served = stack.deploy(state)
    count = min(len(r) for r in job.split.train) // 3
    rows = Sampler([job.seed], [job.split.train], 3).draw(0, count).rows.flatten()
    hidden = dataset.x[rows] @ state.params["0.weight"][0].T + state.params["0.bias"][0]
    torch.testing.assert_close(served["1.running_mean"][0], hidden.mean(0))
    torch.testing.assert_close(served["1.running_var"][0], hidden.var(0, unbiased=False))
    logits, y = stack.predict(served, job.split.test[0][None])
    one, _ = stack.predict(served, job.split.test[0][None, :1])
    torch.testing.assert_close(logits[:, :1], one)  # a row's prediction does not depend on the others
    assert torch.equal(y[0], dataset.y[job.split.test[0]])
