"""Steps that meet some of the source domains: k of M."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.func import grad

from digits import TASK, make_plan
from seqdg.algorithms.ema import EMA
from seqdg.base import Episode, UsageError, describe_fields
from seqdg.bench import Group, Request
from seqdg.bench.learners.contract import Draft
from seqdg.bench.learners.stack_learner import build_stack, choose_rate
from seqdg.core import Algorithm, build
from seqdg.nets import Net
from seqdg.testing import ContractError, check_algorithm
from seqdg.training import Protocol, Sampler


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double(), "none")


@pytest.fixture
def episode():
    """Sources 4 and 1 of five."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(2, 6, 4, generator=g, dtype=torch.float64)
    return Episode(x, torch.randint(3, (2, 6), generator=g), torch.tensor([4, 1]), torch.tensor(0.5).double())


def draw_params(algorithm, net, sources=5):
    g = torch.Generator().manual_seed(2)
    start = algorithm.init(net, net.params(), sources, torch.Generator().manual_seed(3))
    return {name: w + 0.3 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("which", ["all", "head"])
def test_undo_bias_draws_the_copies_of_the_domains_that_are_met_to_their_mean(net, episode, squared, which):
    algorithm = build("undo-bias", lam=0.7, squared=squared, branches=which)
    params = draw_params(algorithm, net)
    names = [name.removeprefix("branch.") for name in params if name.startswith("branch.")]

    def loss(weights):
        total = 0.0
        for i, source in enumerate((4, 1)):
            own = {n: weights[f"branch.{n}"][source] for n in names}
            shared = {n: w for n, w in weights.items() if not n.startswith("branch.")}
            total = total + net.loss({**shared, **own}, (episode.x[i], episode.y[i]))
            mean = {n: (weights[f"branch.{n}"][4] + weights[f"branch.{n}"][1]) / 2 for n in names}
            apart = sum(((own[n] - mean[n]) ** 2).sum() for n in names)
            total = total + 0.7 * (apart if squared else torch.sqrt(apart + 1e-12))
        return total

    direction, value = algorithm.gradient(net, params, episode)
    torch.testing.assert_close(value, loss(params))
    torch.testing.assert_close(direction, grad(loss)(params))
    assert all(not direction[f"branch.{n}"][[0, 2, 3]].any() for n in names)


def test_s_undo_bias_draws_a_copy_to_those_met_before(net, episode):
    algorithm = build("s-undo-bias", lam=0.7)
    params = draw_params(algorithm, net)

    def loss(weights):
        first, second = ({n: weights[f"branch.{n}"][s] for n in net.names} for s in (4, 1))
        apart = torch.sqrt(sum(((second[n] - first[n]) ** 2).sum() for n in net.names) + 1e-12)
        own = [net.loss(w, (episode.x[i], episode.y[i])) for i, w in enumerate((first, second))]
        return own[0] + own[1] + 0.7 * apart

    direction, _ = algorithm.gradient(net, params, episode)
    torch.testing.assert_close(direction, grad(loss)(params))


def test_group_dro_raises_only_those_that_are_met_and_its_loss_is_unbiased(net, episode):
    algorithm, params = build("group-dro", eta=0.3), net.params()
    q = torch.tensor([0.1, 0.3, 0.2, 0.25, 0.15], dtype=torch.float64)
    _, value, kept = algorithm.step(net, params, {"q": q}, episode)
    losses = [net.loss(params, (episode.x[i], episode.y[i])).item() for i in range(2)]
    raised = [0.1, 0.3 * math.exp(0.3 * losses[1]), 0.2, 0.25, 0.15 * math.exp(0.3 * losses[0])]
    want = torch.tensor([r / sum(raised) for r in raised], dtype=torch.float64)
    torch.testing.assert_close(kept["q"], want)
    torch.testing.assert_close(value, 5 / 2 * (want[4] * losses[0] + want[1] * losses[1]))


@pytest.mark.parametrize("name", ["fishr", "mtl"])
def test_what_is_remembered_of_a_domain_changes_where_it_is_met(net, episode, name):
    algorithm = build(name)
    params = draw_params(algorithm, net)
    memory = {n: m + 1.0 for n, m in algorithm.memory(net, params, 5).items()}
    _, _, kept = algorithm.stages()[-1][1].step(net, params, memory, episode)
    for key, before in memory.items():
        changed = (kept[key] != before).flatten(1).any(1)
        assert changed.tolist() == [False, True, False, False, True]
    swapped = episode._replace(x=episode.x.flip(0), y=episode.y.flip(0), domain=episode.domain.flip(0))
    _, _, other = algorithm.stages()[-1][1].step(net, params, memory, swapped)
    torch.testing.assert_close(other, kept)


@dataclass(frozen=True)
class Weighted(Algorithm):
    """One weight for every source, by its place among them (nobody, 2024)."""

    def init(self, net, params, sources, generator):
        return {**params, "own": torch.ones(sources, dtype=params[net.names[0]].dtype)}

    def loss(self, net, params, episode):
        return (net.losses(params, episode.by_source()) * params["own"]).mean()

    def deploy(self, params, memory):
        return {name: w for name, w in params.items() if name != "own"}


@dataclass(frozen=True)
class WeightedAll(Weighted):
    """One weight for every source, all of which every step must meet (nobody, 2024)."""

    needs_all: ClassVar[bool] = True


def test_an_algorithm_that_needs_all_domains_in_a_step_says_so():
    with pytest.raises(ContractError, match=r"where a step meets 3 of 5 source domains, it raises RuntimeError"):
        check_algorithm(Weighted())
    check_algorithm(WeightedAll())
    assert build("agg+ema").needs_all is False
    assert EMA(WeightedAll()).needs_all is True


@pytest.mark.parametrize("name", ["agg", "fo-s-mldg", "undo-bias", "dann", "fishr", "group-dro+ema"])
def test_trials_that_meet_some_domains_train_alike_alone_and_in_a_stack(name):
    settings = [f"{name}.{s}" for s in ("domains_per_step=2", "batch=4", "precision=float64")]
    plan = make_plan(Request(algorithms=[name], held_out=["0", "15"], trials=2, steps=4, settings=settings))
    (group,) = plan.groups
    stack = build_stack(group, TASK, torch.device("cpu"))
    state = stack.advance(stack.start(), 4)
    assert stack.upcoming.take(0, 4).domain.shape == (4, 4, 2)
    for i, trial in enumerate(group.trials):
        alone = build_stack(Group((trial,)), TASK, torch.device("cpu"))
        own = alone.advance(alone.start(), 4)
        for key, value in own.params.items():
            torch.testing.assert_close(state.params[key][i], value[0], rtol=0, atol=1e-9)


def test_more_domains_a_step_than_there_are_is_one_sentence():
    ask = Request(algorithms=["agg"], trials=1, steps=2, settings=["agg.domains_per_step=6"])
    with pytest.raises(UsageError, match=r"A step of agg is to meet 6 domains .* has 5 to learn from: ask for 5 or"):
        make_plan(ask)
    with pytest.raises(UsageError, match="domains_per_step is -1, but it must be a number of domains, or 0 for all"):
        make_plan(replace(ask, settings=["agg.domains_per_step=-1"]))


def test_a_path_has_as_many_positions_as_a_step_has_domains():
    ask = Request(algorithms=["s-mldg"], trials=1, steps=2)
    make_plan(replace(ask, settings=["s-mldg.domains_per_step=3", "s-mldg.alpha=0.1,0.2"]))
    with pytest.raises(UsageError, match="alpha"):
        make_plan(replace(ask, settings=["s-mldg.domains_per_step=3", "s-mldg.alpha=0.1,0.2,0.3,0.4"]))
    (trial,) = make_plan(replace(ask, held_out=["0"], settings=["s-mldg.domains_per_step=5"])).trials
    two = replace(trial, held_out=("0", "15"))  # for selection by leave-one-out: 4 sources
    assert two.protocol.count_domains(4) == 4
    build_stack(Group((two,)), TASK, torch.device("cpu"))


def test_the_rate_of_a_sum_over_domains_is_divided_by_those_of_a_step():
    draft = Draft("fo-s-mldg", Protocol(lr=0.6, domains_per_step=2, optimizer="momentum"), sources=5)
    assert choose_rate(draft, build("fo-s-mldg")) == pytest.approx(0.3)


def test_a_fixed_path_changes_a_sequential_training_and_leaves_one_that_treats_domains_alike():
    def train(name, path):
        settings = [f"{name}.{s}" for s in (f"path={path}", "batch=4", "precision=float64")]
        planned = make_plan(Request(algorithms=[name], held_out=["0"], trials=1, steps=6, settings=settings))
        stack = build_stack(planned.groups[0], TASK, torch.device("cpu"), sets_precision=False)
        return torch.cat([p.flatten() for p in stack.advance(stack.start(), 6).params.values()])

    assert not torch.allclose(train("fo-s-mldg", "random"), train("fo-s-mldg", "fixed"), rtol=1e-6)
    assert torch.allclose(train("agg", "random"), train("agg", "fixed"), rtol=1e-9, atol=1e-12)


def test_an_unknown_path_is_refused_and_a_random_one_changes_no_key():
    assert "path" not in describe_fields(Protocol())
    with pytest.raises(UsageError, match="random, fixed"):
        Protocol(path="sorted")


def test_domains_per_step_changes_no_key_while_it_is_0():
    assert "domains_per_step" not in describe_fields(Protocol())
    assert describe_fields(Protocol(domains_per_step=6))["domains_per_step"] == 6


def test_what_a_step_takes_does_not_grow_with_the_number_of_domains():
    """The same rows in 10 domains and in 1,000: what is held, and what is drawn, in numbers."""
    held = []
    for domains in (10, 1000):
        rows = torch.arange(100_000).reshape(domains, -1)
        sampler = Sampler([0], [list(rows)], 32, domains=6)
        held.append(sum(t.numel() * t.element_size() for t in (sampler._table, *sampler._of_source)))
        assert sampler.draw(0, 64).rows.shape == (64, 1, 6, 32)
    assert held[1] < 1.05 * held[0]
