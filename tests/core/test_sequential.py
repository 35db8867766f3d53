from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch.testing import assert_close

from seqdg import Chainable, Sequential, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.mldg import MLDG
from seqdg.base import tree
from seqdg.testing import Case, build_nets

NET = next(iter(build_nets().values()))


@dataclass(frozen=True)
class Telling(Chainable):
    """Adds (i + 1) times the next loss, in words that record the order."""

    def extend(self, net, past, episode, i):
        return lambda w: past(w) + (i + 1) * net.loss(w, episode.minibatch(i))

    def init(self, net, params, sources, generator):
        return params | {"extra": torch.ones(sources, dtype=torch.float64)}

    def enter(self, net, params, memory):
        return {name: 3 * w for name, w in params.items()}, memory

    def deploy(self, params, memory):
        return {name: 2 * w for name, w in params.items() if name != "extra"}

    def predict(self, net, deployed, x):
        return -net(deployed, x)


@dataclass(frozen=True)
class Quick(Telling):
    """The same on directions."""

    def advance(self, net, params, past, episode, i):
        direction, value = past
        new, loss = torch.func.grad_and_value(lambda w: net.loss(w, episode.minibatch(i)))(params)
        return tree.add(direction, new, i + 1), value + (i + 1) * loss


@pytest.mark.parametrize("domains", [1, 2, 4])
def test_the_fold_extends_the_loss_along_the_path(domains):
    case = Case(Sequential(Telling()), NET, domains)
    w, episode = case.draw_weights(), case.draw_episode()
    want = sum((i + 1) * NET.loss(w, (episode.x[i], episode.y[i])) for i in range(domains))
    assert_close(case.algorithm.loss(NET, w, episode), want)


def test_the_fold_on_directions_is_the_gradient_of_the_fold_on_losses():
    case = Case(Sequential(Quick()), NET, 4)
    w, episode = case.draw_weights(), case.draw_episode()
    assert_close(case.algorithm.gradient(NET, w, episode), Sequential(Telling()).gradient(NET, w, episode))


def test_what_the_base_adds_begins_with_deploys_and_predicts_is_the_wrappers_too():
    case = Case(Sequential(Telling()), NET, 3)
    params = case.init_weights()
    assert params["extra"].shape == (3,)
    assert_close(case.algorithm.enter(NET, params, {})[0], {name: 3 * w for name, w in params.items()})
    deployed = case.algorithm.deploy(params, {})
    assert_close(deployed, {name: 2 * w for name, w in NET.params().items()})
    assert_close(case.algorithm.predict(NET, deployed, case.draw_probe()), -NET(deployed, case.draw_probe()))


def test_what_cannot_be_chained_is_refused_at_construction():
    with pytest.raises(UsageError, match=r"AGG cannot be chained: it does not say how a loss over past domains is"):
        Sequential(AGG())
    with pytest.raises(UsageError, match=r"Sequential cannot be chained"):
        Sequential(Sequential(MLDG()))

    @dataclass(frozen=True)
    class Unfinished(Chainable):
        """Chainable in name only."""

    with pytest.raises(UsageError, match=r"Unfinished cannot be chained: it has no `extend` method of its own\."):
        Sequential(Unfinished())


def test_it_trains_with_the_optimizer_of_its_base():
    @dataclass(frozen=True)
    class Plain(MLDG):
        optimizer: ClassVar[str] = "sgd"

    assert Sequential(Plain()).optimizer == "sgd"
    assert Sequential(MLDG()).optimizer == "momentum"
    assert Sequential(Plain(alpha=0.2)) == Sequential(Plain(alpha=0.2))


def test_a_setting_of_the_base_by_itself_is_refused_along_a_path():
    with pytest.raises(UsageError, match="reduction is a setting of FirstOrderMLDG by itself and means nothing along"):
        build("fo-s-mldg", reduction="sum").check(NET, 3)
    build("fo-mldg", reduction="sum").check(NET, 3)


@dataclass(frozen=True)
class Remembering(Telling):
    """Counts its steps, by itself."""

    def memory(self, net, params, sources):
        return {"steps": torch.zeros((), dtype=torch.int64)}

    def step(self, net, params, memory, episode):
        direction, value = self.gradient(net, params, episode)
        return direction, value, {"steps": memory["steps"] + 1}


@dataclass(frozen=True)
class Following(Remembering):
    """Counts the domains, along a path."""

    def follow(self, net, params, memory, episode):
        direction, value = Sequential(self).gradient(net, params, episode)
        return direction, value, {"steps": memory["steps"] + episode.domains}


def test_a_chain_has_the_memory_of_its_base_only_where_the_base_follows_a_path():
    for base, steps in ((Remembering(), {}), (Following(), {"steps": torch.tensor(3)})):
        case = Case(Sequential(base), NET, 3)
        w, episode = case.draw_weights(), case.draw_episode()
        memory = case.algorithm.memory(NET, w, 3)
        assert memory.keys() == steps.keys()
        direction, value, kept = case.algorithm.step(NET, w, memory, episode)
        assert kept == steps
        assert_close((direction, value), case.algorithm.gradient(NET, w, episode))
